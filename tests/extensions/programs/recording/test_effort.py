"""What a program decides by its numbers, beside what PyTorch itself computes on the CPU; and where it is no longer followed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer import Estimate  # noqa: E402
from analyzer.capture.pytorch.recording.answers import BY_NUMBERS  # noqa: E402
from analyzer.devices import load  # noqa: E402
from analyzer.ranks import Rank  # noqa: E402
from analyzer.values.budget import (  # noqa: E402
    _CALL,
    BETWEEN_QUESTIONS,
    MOST_ELEMENTS,
    SMALL_ELEMENTS,
    Effort,
)
from analyzer.values.calls import DispatchedCall  # noqa: E402
from analyzer_programs.following.as_main import as_main  # noqa: E402
from analyzer_programs.following.script import follow  # noqa: E402
from tests.sizes_by_numbers import NUMBERED  # noqa: E402

aten = torch.ops.aten
NEWTON = """
x = torch.linspace(1.0, 50.0, {elements}).to({device!r})
steps, kept = 0, []
while ((x * x - 2).abs() > 1e-3).any():
    kept.append(x)
    x = x - (x * x - 2) / (2 * x)
    steps += 1
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Estimate]:
    """Runs a program given as text to its end; its assertions hold."""

    def run(text: str, **options: Any) -> Estimate:
        script = tmp_path / "program.py"
        script.write_text("import torch\n" + text)
        estimate = analyzer.run(script, device="h200", **options)
        assert estimate.incomplete is None, (estimate.incomplete, estimate.notes)
        return estimate

    return run


def test_steps_until_it_is_near_enough_are_those_of_the_numbers(run: Callable[..., Estimate]) -> None:
    """Newton's method from 50 down to the root of 2: as many steps as on the CPU, each of which keeps 1 MiB."""
    elements = 1 << 18
    told: dict[str, Any] = {"torch": torch}
    exec(NEWTON.format(elements=elements, device="cpu"), told)
    steps = told["steps"]
    assert 5 < steps < 12
    estimate = run(
        f"{NEWTON.format(elements=elements, device='cuda')}"
        f"assert steps == {steps}\nassert torch.cuda.memory_allocated() == {(steps + 1) * elements * 4}\n"
    )
    assert BY_NUMBERS in estimate.notes
    assert not any("stands in for it" in note for note in estimate.notes)


def test_sizes_follow_from_numbers_too(run: Callable[..., Estimate]) -> None:
    estimate = run(
        f"""{NUMBERED}left = torch.empty(1 << 17, device="cuda")
left[: 1 << 16] = x[: 1 << 16]
left[1 << 16 :] = 0.0
assert int((left > 0).sum()) == int((host[: 1 << 16] > 0).sum())
"""
    )
    assert BY_NUMBERS in estimate.notes and not any("depends on data" in note for note in estimate.notes)


@pytest.mark.parametrize(
    "made",
    [f"torch.rand({MOST_ELEMENTS + 1}).cuda()", "torch.rand(100, device='cuda')"],
    ids=["large", "drawn"],
)
def test_large_tensors_and_what_the_gpu_draws_are_not_followed(
    made: str, run: Callable[..., Estimate]
) -> None:
    estimate = run(f"x = {made}\nassert x[x.square() > 2].shape == x.shape\n")
    assert any("depends on data" in note for note in estimate.notes) and BY_NUMBERS not in estimate.notes


WORKS = """
x = torch.ones(1 << 20, device="cuda")
small = torch.ones(4).cuda()
for _ in range({calls}):
    x = x + 1
    small = small + 1
    {asks}
flag = bool((x > 0).all())
assert flag is {known}
assert small.tolist() == [{calls} + 1.0] * 4
"""
CALLS = BETWEEN_QUESTIONS // (2 << 20)


def test_a_program_that_asks_nothing_is_soon_followed_no_more(run: Callable[..., Estimate]) -> None:
    """Small tensors still are. A flag nobody knows is false."""
    estimate = run(WORKS.format(calls=CALLS + 10, asks="pass", known=False))
    assert any("false stands in for it" in note for note in estimate.notes)


def test_one_that_asks_goes_on(run: Callable[..., Estimate]) -> None:
    run(WORKS.format(calls=CALLS + 10, asks="assert bool((x > 1).all())", known=True))


def test_what_is_written_where_it_is_not_followed_is_not_known(run: Callable[..., Estimate]) -> None:
    """Also by operators on lists, which return nothing; and gradients that are unscaled."""
    estimate = run(
        """
x = torch.ones(8).cuda()
y = torch.ones(8).cuda()
torch._foreach_add_([x, y], [torch.rand(8, device="cuda"), torch.ones(8, device="cuda")])
flag = bool((x > 0).all())
assert flag is False
"""
    )
    assert any("false stands in for it" in note for note in estimate.notes)


def test_what_other_ranks_compute_is_not_known(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, torch\nx = torch.ones(1 << 13).cuda()\nflag = bool((x > 0).all())\nassert str(flag) == os.environ['KNOWN']\n"
    )
    for rank, known in ((Rank(), "True"), (Rank(1, 2, 2), "False")):
        with as_main(script, [], {"KNOWN": known}) as main:
            assert follow(main, load("h200"), rank=rank).error is None


GENERATES = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(200, 64)
    def forward(self, tokens):
        return self.table(tokens) @ self.table.weight.t()

def {name}(model, tokens):
    for _ in range(8):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
        if bool((tokens[:, -1] == 5).all()):
            break
    return tokens

with torch.no_grad():
    assert {name}(Model().cuda(), torch.tensor([[1, 5]]).cuda()).shape[1] == {length}
"""


@pytest.mark.parametrize(("name", "length"), [("generate", 10), ("predict", 3)])
def test_a_generation_goes_on_whatever_the_numbers_say(
    name: str, length: int, run: Callable[..., Estimate]
) -> None:
    """The likeliest token after one is itself, as its numbers are its own: elsewhere it ends there."""
    run(GENERATES.format(name=name, length=length))


def test_work_is_counted_in_elements_and_multiplications() -> None:
    def spent(func: Any, args: Any) -> int:
        effort = Effort()
        before = effort._budget
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        out = func(*args)
        assert effort.spend(DispatchedCall(func, args, {}), tensors, [out])
        return before - effort._budget - _CALL

    a, b = torch.zeros(64, 128, device="meta"), torch.zeros(128, 32, device="meta")
    assert spent(aten.mm.default, (a, b)) == 64 * 128 + 128 * 32 + 64 * 32 + 64 * 128 * 32 // 32
    assert spent(aten.add.Tensor, (a, a)) == 3 * 64 * 128
    assert spent(aten.view.default, (a, [128, 64])) == 0
    image, weight = torch.zeros(2, 3, 8, 8, device="meta"), torch.zeros(5, 3, 3, 3, device="meta")
    convolution = (image, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    products = 2 * 5 * 8 * 8 * 27 // 32
    assert spent(aten.convolution.default, convolution) == 2 * 3 * 64 + 5 * 27 + 2 * 5 * 64 + products


def test_what_is_kept_is_bounded() -> None:
    effort = Effort()
    tensor = torch.empty(1 << 30, dtype=torch.float32, device="meta")
    effort.keep(1, tensor)
    assert (
        not effort.spend(DispatchedCall(aten.neg.default, (tensor,), {}), [], [])
        and effort.most == SMALL_ELEMENTS
    )
    effort.forget(1)
    assert not effort.kept
