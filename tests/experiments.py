"""Programs and scripts that were run once on an H200 (`tests/data/experiments`), beside their predictions now.

The runs are those of docs/evidence/EXPERIMENTS.md, which names the commit that has the script that made them.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from analyzer.allocators import create
from analyzer.capture.pytorch.capture import capture_script
from analyzer.devices import load
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.results.estimate import Estimate
from analyzer.runtimes.events import Event, Free, Malloc
from analyzer.runtimes.pytorch.eager import requests
from analyzer.runtimes.pytorch.settings import with_workspaces
from analyzer.runtimes.timeline import Simulation, simulate
from analyzer_verify.pytorch import compared
from analyzer_verify.results import Verification
from benchmarks.harness import files
from benchmarks.subjects import experiments as scripts
from tests.paths import ROOT

DATA = ROOT / "tests/data/experiments"
DEVICE = "h200"
PUBLISHED_WORKSPACE = ":4096:2:16:8"  # what older GPUs take: 8,519,680 bytes, as in documents 001 and 002


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """name: also the data file's. target, options: as for `analyzer.analyze`. title: the row in the table."""

    name: str
    document: str
    title: str
    target: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Script:
    """A function of `benchmarks/subjects/experiments.py`. workspace: `CUBLAS_WORKSPACE_CONFIG`, None for the GPU's own default."""

    name: str
    document: str
    function: str
    workspace: str | None = None


def _case(document: str, name: str, title: str, model: str, **options: Any) -> Case:
    return Case(f"{document}_{name}", document, title, f"models/{model}", options)


_RETINANET = "retinanet_r50_fpn.py"
_WITH_CP = f"{_RETINANET}:make_model_checkpointed"
_SGD = {"batch": 2, "mode": "train", "optimizer": "momentum"}

CASES = (
    _case("000", "variable", "variable, 1 GiB", "variable.py"),
    _case("000", "cnn_infer", "CNN, batch 128", "cnn.py", batch=128),
    _case("000", "cnn_train", "CNN, batch 128, SGD", "cnn.py", batch=128, mode="train", optimizer="sgd"),
    _case("000", "resnet50_infer", "ResNet50, batch 32", "resnet50.py", batch=32),
    _case("000", "resnet50_train", "ResNet50, batch 32, Adam", "resnet50.py", batch=32, mode="train", optimizer="adam"),
    _case("000", "vit_infer", "ViT-B/16, batch 32", "vit_b_16.py", batch=32),
    _case("000", "vit_train", "ViT-B/16, batch 32, AdamW", "vit_b_16.py", batch=32, mode="train", optimizer="adamw"),
    _case("000", "unetr_infer", "UNETR, batch 2", "unetr.py", batch=2),
    _case("000", "unetr_train", "UNETR, batch 2, AdamW", "unetr.py", batch=2, mode="train", optimizer="adamw"),
    _case("002", "base", "base", _RETINANET, **_SGD),
    _case("002", "amp", "AMP", _RETINANET, **_SGD, amp="fp16"),
    _case("002", "accumulation", "accumulation x2", _RETINANET, **_SGD, grad_accumulation=2),
    _case("002", "checkpointing", "checkpointing", _WITH_CP, **_SGD),
    _case("002", "amp_accumulation", "AMP, accumulation x2", _RETINANET, **_SGD, amp="fp16", grad_accumulation=2),
    _case("002", "amp_checkpointing", "AMP, checkpointing", _WITH_CP, **_SGD, amp="fp16"),
    _case("002", "accumulation_checkpointing", "accumulation x2, checkpointing", _WITH_CP, **_SGD, grad_accumulation=2),
    _case("002", "all", "all three", _WITH_CP, **_SGD, amp="fp16", grad_accumulation=2),
    _case("004", "sgd", "SGD", "linear_mnist.py", batch=100, mode="train", optimizer="sgd",
          runtime_options={"cublas_workspace": ":0:0"}),
    _case("004", "adam", "Adam", "linear_mnist.py", batch=100, mode="train", optimizer="adam",
          runtime_options={"cublas_workspace": ":0:0"}),
)  # fmt: skip

SCRIPTS = (
    Script("000_variable_nvml", "000", "variable_nvml"),
    Script("001_reservation", "001", "reservation_released"),
    Script("001_dtypes", "001", "dtypes"),
    Script("001_sizes", "001", "sizes"),
    Script("001_linear", "001", "linear"),
    Script("001_linear_published_workspace", "001", "linear", PUBLISHED_WORKSPACE),
    Script("001_linear_no_workspace", "001", "linear", ":0:0"),
    Script("001_blocks_inference", "001", "blocks_inference", PUBLISHED_WORKSPACE),
    Script("001_blocks_training", "001", "blocks_training", PUBLISHED_WORKSPACE),
    Script("001_normalisation", "001", "normalisation"),
    Script("001_sgd", "001", "sgd", ":0:0"),
    Script("001_adam", "001", "adam", ":0:0"),
    Script("004_batches_nvml", "004", "batches_nvml"),
)

# Every file in models/. `tests/data/verify/NAME.json` is what `analyze verify` printed for it, on the same GPU.
MODELS = (
    ("variable", "models/variable.py", {}),
    ("cnn", "models/cnn.py", {"batch": 128, "mode": "train", "optimizer": "adam"}),
    ("resnet50", "models/resnet50.py", {"batch": 32, "mode": "train", "optimizer": "adam"}),
    ("vit_b_16", "models/vit_b_16.py", {"batch": 32, "mode": "train", "optimizer": "adam"}),
    ("unetr", "models/unetr.py", {"batch": 2, "mode": "train", "optimizer": "adam"}),
    ("linear", "models/linear.py", {"batch": 100, "mode": "train", "optimizer": "adam"}),
    ("feedforward", "models/feedforward.py", {"batch": 5, "mode": "train", "optimizer": "adam"}),
    ("retinanet_r50_fpn", "models/retinanet_r50_fpn.py", {"batch": 2, "mode": "train", "optimizer": "adam"}),
    ("linear_mnist", "models/linear_mnist.py", {"batch": 100, "mode": "train", "optimizer": "adam"}),
    ("gpt2", "models/gpt2.py", {"batch": 4, "mode": "train", "optimizer": "adam"}),
    ("gpt2_bf16", "models/gpt2.py", {"batch": 4, "mode": "train", "optimizer": "adamw", "amp": "bf16"}),
    ("llama", "models/llama.py", {"batch": 1}),
)


def model_cases() -> list[Case]:
    """`MODELS` as cases."""
    return [Case(f"model_{name}", "models", name, target, options) for name, target, options in MODELS]


@cache
def raw(name: str) -> dict[str, Any]:
    """The recorded file of that name."""
    return dict(files.read(DATA / f"{name}.json.gz"))


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A case, today's estimate, and both sides compared."""

    case: Case
    estimate: Estimate
    verification: Verification


@cache
def _compare(name: str) -> Compared:
    case = next(case for case in (*CASES, *model_cases()) if case.name == name)
    recorded = raw(name)
    options = Options(**{**case.options, "device": DEVICE})
    predicted = analysis(str(ROOT / case.target), options)
    live_peak = recorded["graph"]["ok"]["live_peak"]
    found = compared(predicted, recorded["program"]["ok"], live_peak, recorded["environment"])
    return Compared(case, predicted.estimate, dataclasses.replace(found, target=case.target))


def compare(case: Case) -> Compared:
    """Predict the case and put the recorded run beside it."""
    return _compare(case.name)


def measured_marks(name: str) -> list[tuple[str, int, int]]:
    """(event, allocated, reserved) of a recorded script."""
    return [(m["event"], m["allocated"], m["reserved"]) for m in raw(name)["program"]["ok"]["marks"]]


@dataclasses.dataclass(frozen=True, slots=True)
class ScriptPrediction:
    """What was simulated, and the bytes of each category at each mark."""

    simulation: Simulation
    categories: tuple[tuple[str, dict[str, int]], ...]

    def marks(self) -> list[tuple[str, int, int]]:
        """(event, allocated, reserved)."""
        return [(mark.event, mark.allocated, mark.reserved) for mark in self.simulation.marks]


def predict_script(script: Script, function: str = "") -> ScriptPrediction:
    """Capture a script's function and simulate it. `function` is the part that runs without a GPU, if it is not all."""
    given = {} if script.workspace is None else {"cublas_workspace": script.workspace}
    device = with_workspaces(load(DEVICE), given)
    graph = capture_script(getattr(scripts, function or script.function), device)
    events = requests(graph, device).events
    simulation = simulate(events, create("pytorch"))
    alive: dict[int, tuple[str, int]] = {}
    rows: list[tuple[str, dict[str, int]]] = []
    for event, delta in zip(events, simulation.delta, strict=True):
        if isinstance(event, Malloc):
            alive[event.key] = (event.category.value, delta)
        elif isinstance(event, Free):
            del alive[event.key]
        elif isinstance(event, Event):
            sums: dict[str, int] = {}
            for category, nbytes in alive.values():
                sums[category] = sums.get(category, 0) + nbytes
            rows.append((event.name, sums))
    return ScriptPrediction(simulation, tuple(rows))
