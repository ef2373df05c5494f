"""An ONNX file: the plan's prediction beside a real ONNX Runtime session.

1. With a GPU and onnxruntime's CUDA provider the session runs there, otherwise on the CPU provider, which
   runs the same planner and the same arena code; `--runtime-option provider=cpu` asks for it. There
   prediction and run stop at the highest level that is followed (extended).
2. Compared are the arena's own figures (in use, highest in use, held) after the first and the last run, and
   NVML's.
3. The naive sum is compared with what was in use at the peak, where weights are in the arena (CUDA); the
   graph estimate has nothing to be measured by: ONNX Runtime runs another graph.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from analyzer.errors import MissingDependencyError, OptionError, RunError
from analyzer.onnx import file as onnx_file
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.report.words import clean
from analyzer.results.estimate import Estimate
from analyzer.runtimes.onnxruntime import SessionPrediction, parse
from analyzer.runtimes.onnxruntime.options import FOLLOWED_ON_CPU
from analyzer.spec import TensorSpec
from analyzer_verify.comparison import process_bytes
from analyzer_verify.results import Figure, MarkComparison, Verification
from analyzer_verify.runs import feeds, jobs, machine
from analyzer_verify.runs.session import NO_KERNEL

_EXTERNAL = 1  # TensorProto.DataLocation.EXTERNAL


def verify_onnx(
    target: str, options: Options, force: bool, tell: Callable[[str], None], arrays: Path | None = None
) -> Verification:
    """Predict, run, compare. arrays: an .npz file with inputs.

    Raises MissingDependencyError without onnxruntime, DoesNotFit without the memory, and what `verify` says.
    """
    if options.mode == "train":
        raise OptionError("an ONNX file is run for inference", "leave --mode train out")
    provider = _provider(options.runtime_options.get("provider"), target)
    if arrays is not None:
        options = described(options, feeds.saved(arrays))
    settings = {**options.runtime_options, "provider": provider}
    if provider == "cpu":
        # The prediction and the run are of the same session, one whose layouts are modelled. The level is
        # set last, so that it holds under either of its names.
        level = min(parse(settings).graph_optimization_level, FOLLOWED_ON_CPU)
        settings.pop("graph_optimization_level", None)
        settings["graph_optimization_level"] = level
    tell("predicting")
    predicted = analysis(target, replace(options, runtime_options=settings))
    estimate, prediction = predicted.estimate, predicted.prediction
    if not isinstance(prediction, SessionPrediction):
        raise OptionError(f"{estimate.runtime} cannot be run here", "leave --runtime out")
    if not prediction.graph.nodes:
        raise RunError(
            f"{target}: {NO_KERNEL}",
            "its outputs are constants, or its inputs themselves: there is nothing to measure",
        )
    if prediction.settings.shared_with or prediction.settings.io_binding != "none":
        raise OptionError(
            "verify runs one session with inputs of its own",
            "leave shared_with, io_binding and enable_cuda_graph out",
        )
    gpu, notes = None, list(prediction.notes)
    if provider == "cuda":
        gpu = machine.gpu(target)
        notes += machine.check_room(prediction.device_bytes, gpu, force)
    else:
        notes.append(
            "run on the CPU provider at graph optimization level extended or below: the same planner and"
            " arena, no convolution workspaces, none of its blocked layouts"
        )
    weights, absent = _weights(target)
    notes += machine.check_host(weights + (prediction.held if provider == "cpu" else 0), absent, force)
    tell("running ONNX Runtime")
    job = {
        "kind": "onnxruntime",
        "path": target,
        "settings": asdict(prediction.settings),
        "inputs": [feeds.plain(feeds.feeds(graph, options.values)) for graph in prediction.run_graphs],
        "arrays": str(arrays.resolve()) if arrays is not None else None,
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
        figures=figures(estimate, prediction, measured, provider),
        marks=marks(prediction, measured["runs"]),
        history=None,
        out_of_memory=None,
        environment={**machine.fingerprint(gpu), **measured["versions"]},
        notes=tuple(notes),
        seconds={"session": measured["seconds"]},
        modelled=estimate.modelled,
    )


def _provider(name: Any, target: str) -> str:
    """Return "cuda" or "cpu": what was asked for, else what this machine has."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingDependencyError(
            f"{target} can only be verified by running it, and onnxruntime is not installed",
            "pip install onnxruntime-gpu (with an NVIDIA GPU), or onnxruntime",
        )
    if name not in (None, "cpu", "cuda"):
        raise OptionError(f"unknown provider {name!r}", "providers: cuda, cpu")
    if name is not None:
        return str(name)
    import onnxruntime

    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return "cuda" if has_cuda and machine.has_gpu() else "cpu"


def described(options: Options, arrays: Mapping[str, Any]) -> Options:
    """Return the options with these arrays' shapes. Raises OptionError if both are given."""
    inputs = options.inputs or {}
    twice = sorted(set(inputs) & set(arrays)) if isinstance(inputs, Mapping) else []
    if twice:
        raise OptionError(f"input {clean(twice[0])} is described by --input and in the file", "say it once")
    if options.batches:
        raise OptionError("a file of inputs has one batch", "leave --batches or --inputs out")
    specs = {name: TensorSpec(tuple(array.shape), "") for name, array in arrays.items()}
    return replace(options, inputs={**inputs, **specs} if isinstance(inputs, Mapping) else inputs)


def _weights(target: str) -> tuple[int, int]:
    """Return the bytes of a file's weights, and of those that would have to be made up."""
    model = onnx_file.load(target)
    total = absent = 0
    for tensor in model.graph.initializer:
        nbytes = onnx_file.stored_bytes(tensor)
        total += nbytes
        if tensor.data_location == _EXTERNAL:
            location = onnx_file.external_entries(tensor).get("location", "")
            absent += 0 if (Path(target).parent / location).exists() else nbytes
    return total, absent


def figures(
    estimate: Estimate, prediction: SessionPrediction, measured: Mapping[str, Any], provider: str
) -> tuple[Figure, ...]:
    """Return the predicted figures beside the last run's."""
    last = measured["runs"][-1]
    rows = [
        Figure("naive sum", estimate.naive.total, None if provider == "cpu" else last["peak_in_use"]),
        Figure("graph", estimate.graph_peak, None),
        Figure("peak in use", prediction.peak_in_use, last["peak_in_use"]),
        Figure("held", prediction.runs[-1][1].held_most, last["held"]),
    ]
    if provider == "cuda":
        rows.append(Figure("device", prediction.device_bytes, process_bytes(measured)))
    return tuple(rows)


def marks(prediction: SessionPrediction, runs: list[dict[str, int]]) -> tuple[MarkComparison, ...]:
    """Return highest in use and held of each run; a steady run is compared with the last one."""
    marks, highest = [], prediction.session.peak_in_use
    for place, (name, figures) in enumerate(prediction.runs):
        steady = place == len(prediction.runs) - 1
        real = runs[-1 if steady else place]
        highest = max(highest, figures.peak_in_use)
        shown = f"run {len(runs)}" if steady and name == "run 2" else name
        marks.append(MarkComparison(shown, highest, real["peak_in_use"], figures.held_most, real["held"]))
    return tuple(marks)
