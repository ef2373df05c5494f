"""Who keeps a storage alive: by hand, then of real programs whose fault is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

import analyzer
from analyzer.graph import Category, Graph, Phase
from analyzer.liveness.holders import Holder, holders
from analyzer.liveness.lifetimes import lifetimes
from analyzer.results.estimate import Estimate, TensorRow
from tests.liveness.programs import Builder, programs
from tests.paths import MODELS


def held(b: Builder, position: int) -> dict[str, Holder]:
    """By name, of all that is alive at that moment."""
    graph = b.graph()
    alive = lifetimes(graph, "eager").alive_at(position)
    return {graph.storages[index].name: holder for index, holder in holders(graph, position, alive).items()}


def step() -> Builder:
    """A training step by hand: h is saved, y is the program's `output`, the loss is read by nobody."""
    b = Builder()
    b.birth("w", 16, Category.PARAMETER)  # 0
    b.birth("x", 100, Category.INPUT)  # 1
    b.storage("h", 80, Category.SAVED, saved=True)
    b.run("mul", "x w", "h", gradients=True)  # 2
    b.storage("y", 40)
    b.run("square", "h", "y", gradients=True)  # 3
    b.storage("loss", 4)
    b.run("sum", "y", "loss", gradients=True)  # 4
    b.phase = Phase.BACKWARD
    b.storage("gh", 80, Category.GRADIENT)
    b.run("square_backward", "h", "gh")  # 5
    b.death("h")  # 6
    b.storage("w.grad", 16, Category.GRADIENT)
    b.run("mul_backward", "gh x", "w.grad")  # 7
    b.death("gh")  # 8
    b.phase = Phase.OPTIMIZER
    b.run("update", "w w.grad", "w", writes="w")  # 9
    b.death("y loss")
    return b


def test_a_training_step_by_hand() -> None:
    b = step()
    forward = held(b, 2)
    assert forward == {
        "w": Holder("model"), "x": Holder("caller"), "h": Holder("autograd", 3),
    }  # fmt: skip
    backward = held(b, 5)
    assert backward["h"] == Holder("autograd", 3)  # which is running
    assert backward["gh"] == Holder("reader", 4)
    # Both die together, and `loss` was computed from `y`: but a backward pass goes through that, and did not save `y`.
    assert backward["y"] == backward["loss"] == Holder("program", None, 5)
    assert held(b, 7)["w.grad"] == Holder("model")


def test_a_graph_that_no_backward_pass_reads() -> None:
    """Evaluation with gradients: what is saved dies with the result; what a variable has held dies at its own time."""
    b = Builder()
    b.birth("w", 16, Category.PARAMETER)
    b.birth("x", 100, Category.INPUT)
    for name, reads in (("a", "x w"), ("b", "a w"), ("c", "b w")):
        b.storage(name, 80)
        b.run(f"make_{name}", reads, name, gradients=True)  # 2, 3, 4
    b.death("b")
    b.run("print", "x", "")
    b.death("a c")
    assert held(b, 4)["a"] == Holder("graph", 2, 3)
    assert held(b, 4)["c"] == Holder("program", None, 3)
    # Without gradients nothing is saved: both are somebody's variables.
    plain = Builder()
    plain.birth("x", 100, Category.INPUT)
    for name, reads in (("a", "x"), ("c", "a")):
        plain.storage(name, 80)
        plain.run(f"make_{name}", reads, name)
    plain.run("print", "x", "")
    assert held(plain, 3)["a"].kind == "program" == held(plain, 3)["c"].kind


def test_what_never_dies_and_what_no_one_named() -> None:
    b = Builder()
    b.birth("aten::randn.default", 8, Category.BUFFER)  # a tensor of the program, which no module registered
    b.storage("y", 8)
    b.run("op", "aten::randn.default", "y")
    assert held(b, 1) == {"aten::randn.default": Holder("reader", 0), "y": Holder("program")}


@settings(max_examples=200, deadline=None)
@given(programs())
def test_everything_alive_has_one(graph: Graph) -> None:
    """And who waits for a reader is alive, by last use, until that reader ran."""
    eager, last_use = lifetimes(graph, "eager"), lifetimes(graph, "last_use")
    positions = {
        moment.operator: place for place, moment in enumerate(graph.program) if hasattr(moment, "operator")
    }
    for position in range(len(graph.program)):
        alive = eager.alive_at(position)
        found = holders(graph, position, alive)
        assert set(found) == set(alive)
        for index, holder in found.items():
            if holder.kind in ("reader", "autograd"):
                assert holder.operator is not None
                assert position <= positions[holder.operator] <= last_use.last[index]


def largest(estimate: Estimate, **wanted: str) -> TensorRow:
    return next(
        row for row in estimate.tensors if all(getattr(row, key) == value for key, value in wanted.items())
    )


def test_a_language_models_logits_outlive_their_use() -> None:
    """At the peak of its training the logits, which the loss has read, are a variable of the step."""
    pytest.importorskip("torch")
    found = analyzer.analyze(MODELS / "gpt2.py", batch=1, mode="train", amp="bf16", steps=1, device="h200")
    assert largest(found, module="lm_head", category="activations").path[0] == "a variable"
    saved = largest(found, category="saved for backward", module="transformer.h.3.mlp.act")
    assert (
        saved.path[0] == "the backward pass"
        and "transformer.h.3.mlp" in saved.path[1]
        and ":" in saved.path[1]
    )
    assert largest(found, name="transformer.wte.weight").path == ("the model",)


EVALUATION = """
import torch
from torch import nn
model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(4)]).cuda()
images = torch.randn(4096, 1024).cuda()
scores = []
for _ in range(3):
    scores.append(model(images).mean())
"""


def test_evaluation_without_no_grad_names_the_result_that_keeps_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "evaluate.py").write_text(EVALUATION)
    found = analyzer.run(tmp_path / "evaluate.py", device="h200")
    kept = [row for row in found.tensors if row.path[:1] == ("a graph",)]
    assert sum(row.nbytes for row in kept) >= 3 * 7 * 16 * 2**20
    assert all(row.path[1].startswith("mean evaluate.py:8") and row.path[2] == "a variable" for row in kept)
    (tmp_path / "evaluate.py").write_text(
        EVALUATION.replace("scores = []", "scores = []; torch.set_grad_enabled(False)")
    )
    found = analyzer.run(tmp_path / "evaluate.py", device="h200")
    assert not any(row.path[:1] == ("a graph",) for row in found.tensors)


def test_an_onnx_files_tensors_by_their_names() -> None:
    found = analyzer.analyze(MODELS / "resnet50.onnx", batch=8, device="h200")
    assert largest(found, name="fc.weight").path == ("the session",)
    assert largest(found, category="inputs").path == ("the caller",)
    assert largest(found, category="scratch").path == ("the operator that runs",)
    assert largest(found, name="add_95").path[0] == "its last reader"
