"""Runtimes by name, what they refuse, and what the pipeline makes of their answers: on a graph of three operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzer.allocators import create
from analyzer.analysis import Analysis
from analyzer.devices import DeviceProfile, load
from analyzer.errors import OptionError, UnknownOperatorError
from analyzer.graph import Birth, Category, Death, Graph, Mark, Operator, Run, Storage, TensorMeta
from analyzer.liveness.naive import formula
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.runtimes import base
from analyzer.runtimes.base import Capped, Description, Prediction, Runtime, Saving, Source, check_runtime
from analyzer.runtimes.events import Event, Free, Malloc
from tests.paths import MODELS

MIB = 2**20


def tensor(storage: int) -> TensorMeta:
    return TensorMeta(storage, (MIB // 4,), (1,), "float32")


# a weight; x comes in; h = Mul(x, weight); x dies; y = Relu(h); h dies.
GRAPH = Graph(
    "onnx",
    (
        Storage(0, MIB, Category.PARAMETER, "block.weight"),
        Storage(1, MIB, Category.INPUT, "x"),
        Storage(2, MIB, Category.ACTIVATION),
        Storage(3, MIB, Category.ACTIVATION, "y"),
    ),
    (
        Operator(0, "Mul", (tensor(1), tensor(0)), (tensor(2),), module="block", source="net.py:3"),
        Operator(1, "Relu", (tensor(2),), (tensor(3),), module="relu"),
    ),
    (
        Birth(0), Mark("model"), Birth(1), Mark("0.input"), Run(0), Death(1), Run(1), Death(2), Mark("0.forward"),
    ),
    batch=4,
    notes=("from the graph",),
).check()  # fmt: skip
# The same in the order of its requests, with 3 MiB of scratch beside Mul.
EVENTS = (
    Malloc(0, MIB, Category.PARAMETER, storage=0, label="block.weight"),
    Event("model"),
    Malloc(1, MIB, Category.INPUT, storage=1),
    Event("0.input"),
    Malloc(2, MIB, Category.ACTIVATION, 0, 2, label="Mul"),
    Malloc(9, 3 * MIB, Category.SCRATCH, 0, basis="bounded", label="Mul scratch"),
    Free(9),
    Free(1),
    Malloc(3, MIB, Category.ACTIVATION, 1, 3, basis="measured"),
    Free(2),
    Event("0.forward"),
)


class Made(Runtime):
    """A runtime that answers what it was made with."""

    name = "made"
    frameworks = ("onnx",)

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def predict(self, source: Source, options: Options, profile: DeviceProfile) -> Prediction:
        assert source.graph is GRAPH and source.model is None and options.mode == "infer"
        assert profile.name == "h200"
        fixed = {"events": EVENTS, "allocator": lambda: create("pytorch")}
        return Prediction(
            **{**fixed, "device_used": lambda simulation: 7 + simulation.peak_reserved, **self.answers}
        )


def analysed(options: Options | None = None, **answers: Any) -> Analysis:
    captured = Captured(
        target="small",
        framework="onnx",
        batch=4,
        source=Source(GRAPH),
        profile=load("h200"),
        device_note="the note",
        naive=formula(data_bytes=1, weight_bytes=2, output_bytes=3),
        notes=("from the capture",),
    )
    return assemble(captured, options or Options(), Made(**answers))


# -- the registry ----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers goes with it."""
    monkeypatch.setattr(base, "_registered", dict(base._registered))


def test_the_projects_own_runtimes() -> None:
    assert {"pytorch", "onnxruntime"} <= set(base.names())
    for name in base._OWN:
        found = base.named(name)
        assert (
            isinstance(found, Runtime) and found.name == name and set(found.frameworks) <= {"pytorch", "onnx"}
        )
    assert base.named("pytorch").frameworks == ("pytorch",) and base.named("onnxruntime").frameworks == (
        "onnx",
    )


def test_a_registered_runtime_is_known_and_comes_before_others_of_its_name() -> None:
    made = Made()
    assert "made" not in base.names()
    base.register(made)
    assert base.named("made") is made and base.names().count("made") == 1

    class Instead(Made):
        name = "onnxruntime"

    instead = Instead()
    base.register(instead)
    assert base.named("onnxruntime") is instead and base.names().count("onnxruntime") == 1


@pytest.mark.parametrize(
    ("name", "hint"), [("onnxruntim", "did you mean 'onnxruntime'? "), ("xyz", "one of ")]
)
def test_an_unknown_runtime(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"unknown runtime '{name}'") as caught:
        base.named(name)
    assert caught.value.hint.startswith(hint)
    assert caught.value.hint.endswith(f"one of {', '.join(base.names())}")


def test_a_package_announces_its_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "announced_runtime.py").write_text(
        "from tests.runtimes.test_base import Made\nclass Announced(Made):\n    name = 'announced'\n"
    )
    folder = tmp_path / "announced-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: announced\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[analyzer.runtimes]\nannounced = announced_runtime:Announced\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "announced" in base.names() and base.named("announced").name == "announced"


# -- what a runtime refuses ------------------------------------------------------------------------------------------


def test_a_front_end_a_runtime_does_not_run() -> None:
    class Neither(Made):
        frameworks = ()

    check_runtime(Made(), "onnx", "net.onnx")
    with pytest.raises(OptionError, match=r"net\.py is a PyTorch target"):
        check_runtime(Made(), "pytorch", "net.py")
    with pytest.raises(OptionError, match="an ONNX file does not run under made for inference"):
        check_runtime(Neither(), "onnx", "net.onnx")


def test_settings_of_a_runtime_that_has_none() -> None:
    profile = load("h200")
    assert Made().profile(profile, Options()) == profile
    with pytest.raises(OptionError, match="unknown runtime option 'speed' for made") as caught:
        Made().profile(profile, Options(runtime_options={"speed": "high"}))
    assert caught.value.hint == "it has none"


def test_training_an_onnx_file_is_asked_of_runtimes_that_run_pytorch() -> None:
    base.register(Made())
    with pytest.raises(OptionError, match="made does not train an ONNX file") as caught:
        analysis(str(MODELS / "cnn.onnx"), Options(mode="train", runtime="made", batch=2))
    assert caught.value.hint == "leave --runtime out"


# -- what is made of an answer ---------------------------------------------------------------------------------------


def test_an_answer_may_be_events_an_allocator_and_device_memory_alone() -> None:
    plain = Prediction(EVENTS, lambda: create("pytorch"), lambda simulation: 0)
    assert (plain.libraries, dict(plain.unknown), plain.notes) == (frozenset(), {}, ())
    assert (plain.describe, plain.savings, plain.capped) == (None, (), None)


def test_the_estimate_of_an_answer() -> None:
    """Peak by hand: the weight, x and h of 1 MiB each, and 3 MiB of scratch."""
    found = analysed()
    estimate = found.estimate
    assert estimate.peak_requested == estimate.peak_allocated == 6 * MIB
    assert estimate.breakdown == {
        "scratch": 3 * MIB, "parameters": MIB, "inputs": MIB, "activations": MIB,
    }  # fmt: skip
    assert estimate.peak_at == "0.forward" and estimate.device_used == estimate.peak_reserved + 7
    assert [(mark.event, mark.allocated // MIB, mark.peak // MIB) for mark in estimate.marks] == [
        ("model", 1, 1), ("0.input", 2, 2), ("0.forward", 2, 6),
    ]  # fmt: skip
    assert (estimate.certainty.exact, estimate.certainty.measured, estimate.certainty.bounded) == (
        3 * MIB, 0, 3 * MIB,
    )  # fmt: skip
    assert (estimate.runtime, estimate.device, estimate.device_note) == ("made", "h200", "the note")
    assert estimate.notes == ("from the capture", "from the graph")
    assert estimate.graph_peak == 3 * MIB
    assert found.events == EVENTS and found.graph is GRAPH and found.profile == load("h200")


def test_allocations_are_described_by_the_graph_unless_the_runtime_knows_better() -> None:
    rows = {row.name: row for row in analysed().estimate.tensors}
    assert rows["Mul scratch"].module == "block" and rows["Mul scratch"].source == "net.py:3"
    assert rows["block.weight"].module == "block"
    told = analysed(describe=lambda malloc: Description(f"key {malloc.key}", "int8", (malloc.nbytes,)))
    largest = told.estimate.top(1)[0]
    assert (largest.name, largest.dtype, largest.shape, largest.nbytes) == (
        "key 9", "int8", (3 * MIB,), 3 * MIB,
    )  # fmt: skip


def test_notes_and_unknown_operators() -> None:
    unknown = {"mylib::op": 2}
    found = analysed(notes=("from the runtime",), unknown=unknown)
    assert found.notes == ("from the runtime", "from the capture", "from the graph")
    assert found.estimate.certainty.unknown_operators == unknown
    assert analysed(Options(strict=True)).estimate.certainty.unknown_operators == {}
    with pytest.raises(UnknownOperatorError, match=r"small has operators .* not known: mylib::op"):
        analysed(Options(strict=True), unknown=unknown)


def test_a_setting_that_leaves_less_than_the_device_has() -> None:
    whole = load("h200").capacity_bytes
    found = analysed(capped=Capped(5 * MIB, "a limit of 5 MiB"))
    assert (found.estimate.capacity_bytes, found.estimate.fits()) == (5 * MIB, False)
    assert found.estimate.device_note == "the note; a limit of 5 MiB"
    assert found.profile == load("h200").of_memory(5 * MIB)
    for capacity in (whole, whole + 1):
        loose = analysed(capped=Capped(capacity, "no limit at all"))
        assert (loose.estimate.capacity_bytes, loose.estimate.device_note) == (whole, "the note")


def test_savings_are_kept_for_whoever_asks() -> None:
    saving = Saving("arena=small", 1, 2)
    assert analysed(savings=(saving,)).prediction.savings == (saving,)
