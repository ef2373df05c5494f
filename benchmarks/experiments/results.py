"""Recorded measurements beside today's predictions: what `report.py` writes down and tests check.

Measurements are the committed files of `data/h200`, made by `run.py`; predictions are made here, now, by this checkout.
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
from benchmarks import ROOT
from benchmarks.experiments import scripts
from benchmarks.experiments.cases import CASES, MODELS, SCRIPTS, Case, Script
from benchmarks.harness import files

FOLDER = ROOT / "benchmarks/experiments"
DATA = FOLDER / "data/h200"
DEVICE = "h200"


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


def script(name: str) -> Script:
    """The script of that name."""
    return next(entry for entry in SCRIPTS if entry.name == name)
