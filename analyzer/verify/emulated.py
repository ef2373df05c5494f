"""A target or a program predicted, beside PyTorch's own CUDA build that runs it on an emulated GPU (`analyze
emulate`): no GPU is needed.

1. Both are of the same GPU, and of the release of PyTorch that is emulated, where no other was asked for.
2. Marks are the ends of optimizer steps, as the allocator's history tells them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analyzer.analysis import Analysis
from analyzer.emulation import launch
from analyzer.emulation.emulate import Emulated
from analyzer.errors import AnalyzerError, RunError
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.pipeline.program import follow, place_of
from analyzer.ranks import Rank
from analyzer.results.verification import Verification
from analyzer.runs import emulated, jobs, machine, program
from analyzer.verify.program import compared

Progress = Callable[[str], None]


def verify_target(
    target: str, options: Options, python: str | None, progress: Progress | None = None
) -> Verification:
    """Predict and emulate a PyTorch target. python: as in `analyzer.emulate`."""
    tell = progress or (lambda _: None)
    options = _of_its_release(options, python)
    predicted = analysis(target, options, progress)
    tell("emulating")
    emulation = emulated.of_target(target, options, python, {})
    return beside(predicted, emulation, target)


def verify_script(
    script: str | os.PathLike[str],
    arguments: Sequence[str],
    options: Options,
    python: str | None,
    progress: Progress | None = None,
) -> Verification:
    """Compare prediction and emulation of a whole program, as `verify_target`. Raises AnalyzerError."""
    tell = progress or (lambda _: None)
    name, _ = place_of(script)
    options = _of_its_release(options, python)
    predicted, error = follow(script, arguments, options, {}, progress=progress, whole=True)
    if isinstance(error, AnalyzerError):
        raise error
    tell("emulating")
    chosen = replace(options, runtime_options={}, release={})
    emulation = emulated.of_script(script, arguments, chosen, python, jobs.environment_of(options), Rank())
    return beside(predicted, emulation, name)


def beside(predicted: Analysis, emulation: Emulated, name: str) -> Verification:
    """Compare an analysis with its emulation. Raises RunError if that was ended early."""
    estimate = emulation.estimate
    if estimate.incomplete is not None:
        raise RunError(
            f"{name} could not be emulated: {estimate.incomplete}",
            "analyze emulate shows what it did until then",
        )
    environment = {name: value for name, value in machine.fingerprint(None).items() if name != "torch"}
    verification = compared(
        predicted,
        _measured(emulation),
        {**environment, "emulated": estimate.device_note.removeprefix("emulated: ")},
    )
    return replace(verification, notes=(*verification.notes, *estimate.notes))


def _of_its_release(options: Options, python: str | None) -> Options:
    if "torch" in options.release:
        return options
    release = launch.find_torch(python).version
    return replace(options, release={**options.release, "torch": release.partition("+")[0]})


def _measured(emulation: Emulated) -> Mapping[str, Any]:
    """Return the emulated run in the form of a measured one (`runs/program.py`)."""
    estimate = emulation.estimate
    top = {name: getattr(estimate, name) for name in ("peak_allocated", "peak_reserved", "peak_requested")}
    trace = (
        dict(zip(("action", "addr", "size"), entry, strict=False)) for entry in emulation.record["events"]
    )
    measured: dict[str, Any] = {
        "marks": [
            {"event": mark.event, "allocated": mark.allocated, "reserved": mark.reserved}
            for mark in estimate.marks
        ],
        "peaks": [top],
        "nvml_process": {"end": estimate.device_used},
        "nvml_device": {"before": None, "end": None},
        "history": program.encode(trace),
        "versions": {},
        "seconds": 0.0,
    }
    failed = estimate.out_of_memory
    if failed is not None:
        last = estimate.timeline
        measured["out_of_memory"] = {
            "after": estimate.marks[-1].event if estimate.marks else "start",
            "message": str(emulation.record["ended"].get("message", "")),
            "counters": {"allocated": last.allocated[-1], "reserved": last.reserved[-1]},
        }
    return measured
