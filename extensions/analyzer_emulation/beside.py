"""A target or a program predicted, beside PyTorch's own CUDA build that runs it on an emulated GPU (`analyze
emulate`): no GPU is needed.

1. Both are of the same GPU, and of the release of PyTorch that is emulated, where no other was asked for.
2. Marks are the ends of optimizer steps, as the allocator's history tells them.
3. An ONNX file's session is run by ONNX Runtime's own CUDA provider (`analyzer_emulation/provider.py`): both
   are of a typical order of initializers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError, MissingDependencyError, OptionError, RunError
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.ranks import Rank
from analyzer.runtimes.onnxruntime import SessionPrediction
from analyzer.targets import parse as parse_target
from analyzer_emulation import emulated as runs_emulated
from analyzer_emulation import launch
from analyzer_emulation.emulate import Emulated
from analyzer_emulation.provider import analysis_of
from analyzer_emulation.reach import provider_within_reach
from analyzer_emulation.reach import python as python_of
from analyzer_programs.program import follow, place_of
from analyzer_verify import onnx
from analyzer_verify.program import compared
from analyzer_verify.results import Figure, Verification
from analyzer_verify.runs import feeds, jobs, machine, program

Progress = Callable[[str], None]


def verify(
    target: str, options: Options, python: str | None, tell: Progress, arrays: Path | None = None
) -> Verification:
    """Predict a target and run it emulated (entry point "verify_emulated"). arrays: an ONNX file's inputs.
    Raises AnalyzerError."""
    if target.lower().endswith(".onnx"):
        return verify_session(target, options, python, tell, arrays)
    return verify_target(target, options, python, tell)


def verify_target(
    target: str, options: Options, python: str | None, progress: Progress | None = None
) -> Verification:
    """Predict and emulate a PyTorch target. python: as in `analyzer.emulate`."""
    tell = progress or (lambda _: None)
    python = python_of(python)
    options = _of_its_release(options, python)
    predicted = analysis(target, options, progress)
    tell("emulating")
    emulation = runs_emulated.of_target(target, options, python, {})
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
    python = python_of(python)
    options = _of_its_release(options, python)
    predicted, error = follow(script, arguments, options, {}, progress=progress, whole=True)
    if isinstance(error, AnalyzerError):
        raise error
    tell("emulating")
    chosen = replace(options, runtime_options={}, release={})
    emulation = runs_emulated.of_script(
        script, arguments, chosen, python, jobs.environment_of(options), Rank()
    )
    return beside(predicted, emulation, name)


def verify_session(
    target: str,
    options: Options,
    python: str | None,
    tell: Callable[[str], None],
    arrays: Path | None = None,
) -> Verification:
    """Predict a file's session, and run it by ONNX Runtime itself on the emulated device, the same release
    of both.

    arrays: an .npz file, of which the shapes count. Raises AnalyzerError.
    """
    provider = provider_within_reach(python)
    if provider is None:
        raise MissingDependencyError(
            f"{target} is run by ONNX Runtime, and no onnxruntime-gpu is available",
            "analyze engine install onnxruntime-gpu makes an environment with it; --python names another",
        )
    if options.mode == "train":
        raise OptionError("an ONNX file is run for inference", "leave --mode train out")
    if arrays is not None:
        options = onnx.described(options, feeds.saved(arrays))
    options = replace(options, release={"onnxruntime": provider.version, **options.release})
    tell("predicting")
    predicted = analysis(target, options)
    tell("emulating")
    emulated = analysis_of(parse_target(target), options, provider)
    prediction, recorded = predicted.prediction, emulated.prediction
    assert isinstance(prediction, SessionPrediction) and isinstance(recorded, SessionPrediction)
    estimate, highest, runs = predicted.estimate, recorded.session.peak_in_use, []
    for _, figures in recorded.runs:
        highest = max(highest, figures.peak_in_use)
        runs.append({"peak_in_use": highest, "held": figures.held_most})
    last = Figure("device", prediction.device_bytes, recorded.device_bytes)
    environment = {
        name: value
        for name, value in machine.fingerprint(None).items()
        if name not in ("torch", "onnxruntime")
    }
    return Verification(
        target=target,
        runtime="onnxruntime CUDA",
        mode="infer",
        batch=options.batch,
        optimizer="",
        device=estimate.device,
        options={name: str(value) for name, value in options.runtime_options.items()},
        figures=(*onnx.figures(estimate, prediction, {"runs": runs}, "emulated"), last),
        marks=onnx.marks(prediction, runs),
        history=None,
        out_of_memory=None,
        environment={
            **environment,
            "emulated": emulated.estimate.device_note.removeprefix("emulated: "),
        },
        notes=(*prediction.notes, *emulated.estimate.caveats),
        modelled=estimate.modelled,
    )


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
    """Return the emulated run in the form of a measured one (`analyzer_verify/runs/program.py`)."""
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
