"""Programs as people write them (`tests/programs`), each kind once, small; and at full size against an H200.

What a small one must hold at its peak is worked out by hand from its arguments: parameters, their gradients, the
optimizer's state. The measured ones are `tests/data/h200/programs.json`: to the byte where they were.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import analyzer  # noqa: E402
from analyzer import Estimate  # noqa: E402
from tests.extensions.sandbox.folders import state  # noqa: E402
from tests.models.torchvision_cpu import torchvision_schemas  # noqa: E402, F401

PROGRAMS = Path(__file__).parents[2] / "programs"
MEASURED = {
    row["name"]: row
    for row in json.loads((Path(__file__).parents[2] / "data" / "h200" / "programs.json").read_text())
}
FLOAT = 4


@pytest.fixture(autouse=True)
def checked_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: PyTorch's compiler, once another test has called it, leaves their arguments unchecked."""
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library asks a hub for anything."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module", autouse=True)
def unchanged() -> Iterator[None]:
    """A prediction changes nothing: the programs' folder and the one they ran in are what they were."""

    def found() -> tuple[dict[str, tuple[object, ...]], set[str]]:
        kept = {
            name: known
            for name, known in state(PROGRAMS).items()
            if "__pycache__" not in name and name != "."
        }
        return kept, {path.name for path in Path.cwd().iterdir() if not path.name.startswith(".")}

    before = found()
    yield
    assert found() == before


def run(name: str, *args: str, needs: str = "", **options: Any) -> Estimate:
    """The estimate of one of the programs; skipped where the library it needs is not installed."""
    if needs:
        pytest.importorskip(needs)
    return analyzer.run(PROGRAMS / f"{name}.py", args, **{"device": "h200", **options})


def steps(estimate: Estimate) -> int:
    """How many optimizer steps were followed."""
    return sum(mark.event.endswith(".step") for mark in estimate.marks)


def dense(*sizes: int) -> int:
    """Weights and biases of a chain of linear layers."""
    return sum(a * b + b for a, b in itertools.pairwise(sizes))


def test_a_loop_of_reinforcement_learning_with_a_target_network() -> None:
    """Two networks of 64, 512, 512 and 6 units; RMSprop keeps one number a parameter of the first."""
    estimate = run("q_learning", "--batch", "64", "--width", "512", "--moves", "6")
    weights = dense(64, 512, 512, 6) * FLOAT
    assert estimate.breakdown["parameters"] >= weights
    assert estimate.breakdown["optimizer state"] >= weights
    assert estimate.peak_allocated >= 4 * weights  # both networks, gradients, state


def test_two_networks_and_two_optimizers() -> None:
    """Adam keeps two numbers for each of both networks' weights; those of the deconvolutions are as many as convolutions'."""
    estimate = run("gan", "--batch", "4", "--width", "8", "--steps", "2")
    channels = (100, 64, 32, 16, 8)
    make = sum(16 * a * b + 2 * b for a, b in itertools.pairwise(channels)) + 16 * 8 * 3
    judge = 16 * 3 * 8 + sum(16 * a * b + 2 * b for a, b in ((8, 16), (16, 32), (32, 64))) + 16 * 64
    assert steps(estimate) == 4
    assert estimate.breakdown["optimizer state"] >= 2 * FLOAT * (make + judge)
    assert estimate.breakdown["parameters"] >= FLOAT * (make + judge)


def test_proximal_policy_optimisation() -> None:
    """An update: 2 epochs of 4 minibatches; the pictures seen, 4 x 4 of 4 x 44 x 44, stay throughout."""
    estimate = run("ppo", "--environments", "4", "--length", "4", "--size", "44", "--updates", "1")
    assert steps(estimate) == 8
    assert "the arguments of distributions are assumed to be valid" in estimate.notes
    assert any(t.nbytes == 4 * 4 * 4 * 44 * 44 * FLOAT for t in estimate.top(50))


def test_graph_networks() -> None:
    """Edges are 8 a node; layers gather 32 numbers for each."""
    estimate = run("graph_network", "--graphs", "4", "--nodes", "50", "--width", "32", "--steps", "1")
    assert not any("depends on data" in note for note in estimate.notes), (
        "which graph a node is of was made here"
    )
    assert any(t.nbytes == 8 * 4 * 50 * 32 * FLOAT for t in estimate.top(500))


@pytest.mark.parametrize("kind", ["gcn", "gat", "sage", "gin"])
@pytest.mark.parametrize("whole", [False, True], ids=["nodes", "graphs"])
def test_torch_geometric(kind: str, whole: bool) -> None:
    """Messages along every edge, 8 a node, of the width of a layer; a mask's results are as many as there are nodes."""
    args = (
        "--kind",
        kind,
        "--nodes",
        "640",
        "--width",
        "32",
        "--epochs",
        "1",
        *(["--whole"] if whole else []),
    )
    estimate = run("geometric", *args, needs="torch_geometric")
    assert steps(estimate) == (2 if whole else 1)
    assert any(t.nbytes >= 8 * 640 * 32 * FLOAT for t in estimate.top(500))
    assert whole or any("how many results index has" in note for note in estimate.notes)


def test_sparse_gradients_and_matrices() -> None:
    """Adagrad keeps a sum for every number of the table; gradients are rows, never a table."""
    args = ("--nodes", "100", "--edges", "400", "--width", "32", "--words", "4000", "--steps", "1")
    estimate = run("sparse_matrices", *args)
    assert steps(estimate) == 3
    assert (
        sum(t.nbytes == 4000 * 32 * FLOAT for t in estimate.top(500)) == 2
    )  # one table and its sums at a time


def test_sparse_adam() -> None:
    """Three tables; two have two moments each."""
    estimate = run("word_vectors", "--vocabulary", "20000", "--width", "32", "--batch", "64", "--steps", "1")
    table = 20_000 * 32 * FLOAT
    assert estimate.breakdown["parameters"] == 3 * table
    assert estimate.breakdown["optimizer state"] == 4 * table
    besides = estimate.peak_allocated - estimate.breakdown["workspace"] - 7 * table
    assert besides < table / 2  # no gradient is as large as a table
    assert any("entries of a sparse tensor differ" in note for note in estimate.notes)


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_bags_of_embeddings(mode: str) -> None:
    """Eight tables, their gradients, Adagrad's sums."""
    estimate = run("recommendation", "--rows", "4000", "--batch", "32", "--steps", "1", "--mode", mode)
    assert sum(t.nbytes == 4000 * 64 * FLOAT for t in estimate.top(500)) >= 3 * 8


def test_continuous_control_with_three_optimizers() -> None:
    """Two critics and the averages of both; Adam's two moments of critics, actor and temperature."""
    estimate = run("continuous_control", "--width", "128", "--batch", "16", "--buffer", "100", "--steps", "2")
    critic, actor = dense(119, 128, 128, 1) * FLOAT, dense(111, 128, 128, 16) * FLOAT
    assert steps(estimate) == 6
    assert estimate.breakdown["optimizer state"] >= 2 * (2 * critic + actor)
    assert "the arguments of distributions are assumed to be valid" in estimate.notes


def test_sampling() -> None:
    estimate = run("sampling", "--rows", "4", "--columns", "6", "5000")
    assert not [name for name in estimate.certainty.unknown_operators if "multinomial" in name]


def test_a_gradient_that_is_penalised() -> None:
    estimate = run("penalised", "--width", "32", "--size", "8", "--batch", "4")
    assert any("followed through 8 optimizer steps" in note for note in estimate.notes)


def test_threads() -> None:
    """Each replica's thread has a handle after the other, the backward pass one of its own: two workspaces of cuBLAS."""
    estimate = run("threads", "--width", "64", "--batch", "32")
    assert any("followed through 8 optimizer steps" in note for note in estimate.notes)
    assert sum(t.nbytes == 32 << 20 for t in estimate.top(500)) == 2


@pytest.mark.parametrize("model", ["listener", "wav2vec"])
def test_speech_with_ctc(model: str) -> None:
    args = (
        "--model",
        model,
        "--batch",
        "2",
        "--hidden",
        "64",
        "--frames",
        "100",
        "--characters",
        "8",
        "--steps",
        "1",
    )
    assert steps(run("speech", *args, needs="transformers")) == 1


@pytest.mark.parametrize("search", [(), ("--line-search",)])
def test_lbfgs_with_a_closure(search: tuple[str, ...]) -> None:
    """Two steps of Adam, two of L-BFGS; the loss is built of second derivatives."""
    estimate = run("closures", "--width", "16", "--points", "100", *search)
    assert steps(estimate) == 4
    assert any("L-BFGS is assumed to remember every step" in note for note in estimate.notes)


def test_a_diffusion_model_with_a_scaler_and_an_average() -> None:
    estimate = run("diffusion", "--width", "16", "--size", "16", "--batch", "2", "--steps", "2", "--amp")
    assert steps(estimate) == 2


def test_a_prefetcher_on_a_stream_of_its_own() -> None:
    """The statistics' 4 MiB are taken on the default stream, what comes there on the side stream: pools of its own."""
    estimate = run("prefetching", "--batch", "4", "--size", "32", "--width", "8", "--steps", "2")
    assert steps(estimate) == 2 and estimate.peak_reserved >= 2 * (20 << 20)


@pytest.mark.parametrize("model", ["bart", "t5"])
def test_sequence_to_sequence_with_beams(model: str) -> None:
    args = (
        "--vocabulary",
        "100",
        "--width",
        "32",
        "--layers",
        "1",
        "--batch",
        "2",
        "--length",
        "32",
        "--new",
        "3",
    )
    assert (
        steps(run("sequence_to_sequence", "--model", model, "--steps", "1", *args, needs="transformers")) == 1
    )


@pytest.mark.parametrize(
    "how",
    [("--accumulation", "2"), ("--bf16", "--checkpointing"), ("--optimizer", "adafactor")],
    ids=" ".join,
)
def test_transformers_trainer(how: tuple[str, ...]) -> None:
    pytest.importorskip("accelerate")
    args = ("--width", "32", "--layers", "1", "--batch", "2", "--length", "16")
    assert steps(run("train_with_transformers", *args, *how, needs="transformers")) == 2


def test_transformers_trainer_in_bfloat16_where_it_is_emulated() -> None:
    """`is_torch_bf16_gpu_available` is PyTorch's `is_bf16_supported`: Colab's T4 trains so."""
    pytest.importorskip("accelerate")
    args = ("--width", "32", "--layers", "1", "--batch", "2", "--length", "16", "--bf16")
    assert steps(run("train_with_transformers", *args, needs="transformers", device="t4")) == 2


def test_lightning() -> None:
    """Four batches, two a step. Adam at its peak: parameters, gradients, two moments, and one temporary of their size."""
    estimate = run("fit_with_lightning", "--width", "4096", "--batch", "4", needs="lightning")
    weights = dense(64, 4096, 10) * FLOAT
    assert steps(estimate) == 2
    assert estimate.breakdown["optimizer state"] >= 2 * weights and estimate.peak_allocated >= 5 * weights


@pytest.mark.parametrize("how", ["greedy", "sample", "beams", "static"])
def test_adapters_and_generation(how: str) -> None:
    args = (
        "--hidden",
        "32",
        "--layers",
        "1",
        "--vocabulary",
        "64",
        "--length",
        "8",
        "--steps",
        "1",
        "--write",
        how,
    )
    assert steps(run("adapters", *args, needs="peft")) == 1


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit", "paged_adamw8bit"])
def test_quantized_weights_with_adapters(optimizer: str) -> None:
    pytest.importorskip("peft")
    args = ("--hidden", "64", "--layers", "1", "--batch", "2", "--length", "8", "--steps", "1")
    assert steps(run("quantized", *args, "--optimizer", optimizer, needs="bitsandbytes")) == 1


def test_accelerate_with_timm() -> None:
    pytest.importorskip("timm")
    args = ("--model", "vit_tiny_patch16_224", "--batch", "2", "--batches", "2")
    assert steps(run("with_accelerate", *args, needs="accelerate")) == 1


def test_distillation_with_an_average() -> None:
    args = (
        "--batch",
        "2",
        "--size",
        "32",
        "--steps",
        "1",
        "--teacher",
        "resnet10t",
        "--student",
        "resnet10t",
    )
    assert steps(run("distillation", *args, needs="timm")) == 1


def test_a_large_model_made_on_the_host() -> None:
    """As large as Llama 2 with 7 billion parameters, in bfloat16, with adapters: nothing of its size is allocated here."""
    args = ("--hidden", "4096", "--layers", "2", "--heads", "32", "--vocabulary", "32000", "--steps", "1")
    estimate = run("adapters", *args, needs="peft")
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11264
    assert estimate.peak_allocated >= 2 * (2 * layer + 2 * 32000 * 4096)


@pytest.mark.parametrize(
    "name",
    [
        "gan", "graph_network", "graph_network_wide", "speech_lstm", "prefetching", "prefetching_expandable", "closures",
        "q_learning", "sampling", "sparse_matrices", "sparse_matrices_uncoalesced", "recommendation", "recommendation_mean",
        "recommendation_max", "recommendation_sparse", "continuous_control", "continuous_control_small", "geometric_gcn",
        "geometric_gin", "geometric_gcn_whole", "geometric_gat_whole",
    ],
)  # fmt: skip
@pytest.mark.sampled(8)
def test_a_measured_program_to_the_byte(name: str) -> None:
    row = MEASURED[name]
    if name.startswith("geometric"):
        pytest.importorskip("torch_geometric")
    estimate = run(Path(row["program"]).stem, *row["args"], environment=row["environment"])
    assert (estimate.peak_allocated, estimate.peak_reserved) == (row["peak_allocated"], row["peak_reserved"])
