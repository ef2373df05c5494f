"""An ONNX file: the plan's prediction beside a real ONNX Runtime session.

1. With a GPU and onnxruntime's CUDA provider the session runs there, otherwise on the CPU provider, which runs the
   same planner and the same arena code; `--runtime-option provider=cpu` asks for it.
2. Compared are the arena's own figures (in use, highest in use, held) after the first and the last run, and NVML's.
3. The naive sum is compared with what was in use at the peak, where weights are in the arena (CUDA); the graph
   estimate has nothing to be measured by: ONNX Runtime runs another graph.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from analyzer.errors import MissingDependencyError, OptionError
from analyzer.estimate import Estimate
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.runs import jobs, machine
from analyzer.runtimes.onnxruntime import SessionPrediction
from analyzer.verification import Figure, MarkComparison, Verification
from analyzer.verify.comparison import process_bytes


def verify_onnx(target: str, options: Options, force: bool, tell: Callable[[str], None]) -> Verification:
    """Predict, run, compare. Raises MissingDependencyError without onnxruntime, and what `verify` says."""
    if options.mode == "train":
        raise OptionError("an ONNX file is run for inference", "leave --mode train out")
    provider = _provider(options.runtime_options.get("provider"), target)
    tell("predicting")
    predicted = analysis(
        target, replace(options, runtime_options={**options.runtime_options, "provider": provider})
    )
    estimate, prediction = predicted.estimate, predicted.prediction
    if not isinstance(prediction, SessionPrediction):
        raise OptionError(f"{estimate.runtime} cannot be run here", "leave --runtime out")
    gpu, notes = None, list(prediction.notes)
    if provider == "cuda":
        gpu = machine.gpu(target)
        notes += machine.check_room(prediction.device_bytes, gpu, force)
    else:
        notes.append("run on the CPU provider: the same planner and arena, no convolution workspaces")
    tell("running ONNX Runtime")
    job = {
        "kind": "onnxruntime",
        "path": target,
        "settings": asdict(prediction.settings),
        "inputs": _inputs(prediction, target),
        "options": {},
    }
    measured = jobs.result_of(jobs.run(job), target)
    if measured["weights_generated_bytes"]:
        notes.append(
            f"weights are not in the file: {measured['weights_generated_bytes']:,} bytes were made at random"
        )
    return Verification(
        target=target,
        runtime=f"onnxruntime {provider.upper()}",
        mode="infer",
        batch=options.batch,
        optimizer="",
        device=estimate.device,
        options={name: str(value) for name, value in options.runtime_options.items() if name != "provider"},
        figures=_figures(estimate, prediction, measured, provider),
        marks=_marks(prediction, measured["runs"]),
        history=None,
        out_of_memory=None,
        environment={**machine.fingerprint(gpu), **measured["versions"]},
        notes=tuple(notes),
        seconds={"session": measured["seconds"]},
    )


def _provider(asked: Any, target: str) -> str:
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingDependencyError(
            f"{target} can only be verified by running it, and onnxruntime is not installed",
            "pip install onnxruntime-gpu (with an NVIDIA GPU), or onnxruntime",
        )
    if asked not in (None, "cpu", "cuda"):
        raise OptionError(f"unknown provider {asked!r}", "providers: cuda, cpu")
    if asked is not None:
        return str(asked)
    import onnxruntime

    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return "cuda" if has_cuda and machine.has_gpu() else "cpu"


def _inputs(prediction: SessionPrediction, target: str) -> dict[str, tuple[list[int], str]]:
    found = {}
    for name in prediction.graph.inputs:
        value = prediction.graph.values[name]
        if value.shape is None:
            raise OptionError(
                f"{target}: the shape of input {name} is not known", f"give --input {name}=...; with --batch"
            )
        found[name] = (list(value.shape), value.dtype)
    return found


def _figures(
    estimate: Estimate, prediction: SessionPrediction, measured: Mapping[str, Any], provider: str
) -> tuple[Figure, ...]:
    last = measured["runs"][-1]
    rows = [
        Figure("naive sum", estimate.naive.total, last["peak_in_use"] if provider == "cuda" else None),
        Figure("graph", estimate.graph_peak, None),
        Figure("peak in use", prediction.peak_in_use, last["peak_in_use"]),
        Figure("held", prediction.held, last["held"]),
    ]
    if provider == "cuda":
        rows.append(Figure("device", prediction.device_bytes, process_bytes(measured)))
    return tuple(rows)


def _marks(prediction: SessionPrediction, runs: list[dict[str, int]]) -> tuple[MarkComparison, ...]:
    """Highest in use so far and held after the first and the last run."""
    first = max(prediction.session.peak_in_use, prediction.first_run.peak_in_use)
    return (
        MarkComparison("run 1", first, runs[0]["peak_in_use"], prediction.first_run.held, runs[0]["held"]),
        MarkComparison(
            f"run {len(runs)}",
            prediction.peak_in_use,
            runs[-1]["peak_in_use"],
            prediction.held,
            runs[-1]["held"],
        ),
    )
