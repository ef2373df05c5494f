"""The ONNX front end: a file is read once and captured, ready for a runtime; for training it becomes a
PyTorch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from analyzer.capture.onnx import capture_onnx
from analyzer.devices import resolve
from analyzer.errors import InputError, OptionError, TargetError
from analyzer.liveness.naive import from_onnx
from analyzer.onnx.model import OpenedModel
from analyzer.onnx.model import opened as open_model
from analyzer.onnx.shapes.bind import Described, check_batch
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured
from analyzer.runtimes.base import Runtime, Source
from analyzer.targets import Target, require_torch


def captured_onnx(
    target: Target,
    options: Options,
    runtime: Runtime,
    opened: OpenedModel | None = None,
    like: Captured | None = None,
) -> Captured:
    """`target`, an ONNX file, captured for inference. opened: the file, where it is open already; like:
    another capture of it under these options, but for the batch. Raises AnalyzerError."""
    for option in ("dtype", "amp", "channels_last"):
        if getattr(options, option):
            raise OptionError(
                f"--{option.replace('_', '-')} means nothing here: an ONNX file has its own types and layout",
                "export the model that way, or give the PyTorch model",
            )
    described = described_inputs(options)
    profile, device_note = resolve(options.device)
    profile = runtime.profile(profile, options)
    sizes = options.batches or (options.batch,)
    for size in sizes:
        check_batch(size)
    opened = opened or open_model(target.path)
    before = None if like is None else like.source.model
    read_at = {
        size: opened.at(size, described, options.values, options.assume, before)
        for size in dict.fromkeys(sizes)
    }
    model = read_at[max(options.batches) if options.batches else options.batch]
    runs = tuple(read_at[size] for size in options.batches or ())
    graph = capture_onnx(model)
    return Captured(
        target=target.name,
        framework="onnx",
        batch=graph.batch,
        source=Source(graph, model, runs),
        profile=profile,
        device_note=device_note,
        naive=from_onnx(graph),
        refused=model.refused,
    )


def captured_onnx_training(
    target: Target, options: Options, runtime: Runtime, progress: Callable[[str], None] | None = None
) -> Captured:
    """Capture a training step of an ONNX file as PyTorch code. Raises AnalyzerError."""
    require_torch("training an ONNX file is a PyTorch program")
    from analyzer.capture.lowering.module import lower
    from analyzer.pipeline.pytorch import captured_pytorch

    if options.values or options.assume:
        raise OptionError("--value and --assume mean nothing in training", "leave them out")
    lowered = lower(target.path or target.name, batch=options.batch, inputs=described_inputs(options))
    if lowered.why_not:
        raise TargetError(
            f"{target.name} cannot be trained: {lowered.why_not}",
            "give a model with its weights in floating point as initializers, or leave --mode train out",
        )
    captured = captured_pytorch(lowered.module, replace(options, inputs=lowered.inputs), runtime, progress)
    return replace(
        captured,
        target=target.name,
        framework="onnx",
        batch=None,
        notes=("trained as PyTorch trains the same operators", *lowered.notes, *captured.notes),
    )


def described_inputs(options: Options) -> Described | None:
    """Return the inputs as the ONNX reader takes them: name -> (shape, element type). Raises InputError."""
    inputs = options.inputs
    if inputs is None:
        return None
    if not isinstance(inputs, Mapping):
        raise InputError(
            "the inputs of an ONNX graph go by name",
            "give --input NAME=3x224x224:float32, or inputs={'image': TensorSpec((64, 3, 224, 224))}",
        )
    for name, spec in inputs.items():
        if not hasattr(spec, "shape"):
            raise InputError(
                f"the input {name!r} is {spec!r}", f"give inputs={{{name!r}: TensorSpec(SHAPE)}}"
            )
    return {
        name: (tuple(spec.shape), str(spec.dtype).removeprefix("torch.")) for name, spec in inputs.items()
    }
