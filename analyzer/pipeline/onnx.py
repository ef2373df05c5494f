"""The ONNX pipeline: file → captured graph (naive sum, liveness) and ONNX Runtime's own plan and arena → `Estimate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from analyzer.capture.onnx_graph import capture_onnx
from analyzer.capture.onnx_model import read
from analyzer.devices import DeviceProfile, resolve
from analyzer.errors import OptionError, UnknownOperatorError
from analyzer.estimate import Estimate
from analyzer.liveness.lifetimes import lifetimes, peak
from analyzer.liveness.naive import from_onnx
from analyzer.pipeline.assemble import Description, Parts, assemble
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.onnxruntime import Prediction, predict
from analyzer.runtimes.timeline import play
from analyzer.targets import Target


def analyze_onnx(target: Target, options: Any) -> Estimate:
    """`options` is a checked `analyze.Options`; inference under ONNX Runtime's CUDA provider, training under PyTorch."""
    if options.mode == "train":
        from analyzer.pipeline.onnx_train import analyze_onnx_training

        return analyze_onnx_training(target, options)
    for option in ("dtype", "amp", "channels_last"):
        if getattr(options, option):
            raise OptionError(
                f"--{option.replace('_', '-')} means nothing here: an ONNX file has its own types and layout",
                "export the model that way, or give the PyTorch model",
            )
    inputs = options.inputs
    if inputs is not None and not isinstance(inputs, Mapping):
        raise OptionError("inputs of an ONNX target need names", "give --input NAME=3x224x224:float32")
    described = {name: (spec.shape, spec.dtype) for name, spec in inputs.items()} if inputs else None
    device, device_note = resolve(options.device)
    model = read(target.path, options.batch, described)
    graph = capture_onnx(model)
    if options.on_graph is not None:
        options.on_graph(graph)
    prediction = predict(model, options=options.runtime_options, device=device)
    if options.strict and prediction.unknown_operators:
        names = ", ".join(sorted(prediction.unknown_operators))
        raise UnknownOperatorError(
            f"{target.name} has operators whose memory use is not known: {names}",
            "leave --strict out to have them bounded instead",
        )
    device, device_note = _within_limit(device, device_note, prediction)
    return assemble(
        Parts(
            target=target.name,
            framework="onnx",
            runtime="onnxruntime",
            options=options,
            device=device,
            device_note=device_note,
            batch=graph.batch,
            events=prediction.events,
            played=play(prediction.events, prediction.arena()),
            describe=_describer(prediction),
            naive=from_onnx(graph),
            graph_peak=peak(graph, ranges=lifetimes(graph)).nbytes,
            saved_for_backward=0,
            unknown=prediction.unknown_operators,
            notes=(*prediction.explanation, *_savings(prediction), *prediction.notes, *graph.notes),
            device_used=prediction.device_used,
        )
    )


def _within_limit(device: DeviceProfile, note: str, prediction: Prediction) -> tuple[DeviceProfile, str]:
    """The device with as much memory as `gpu_mem_limit` leaves of it, when the arena does not get by with that."""
    lost = prediction.failure
    if lost is None or lost.limit >= device.capacity_bytes:
        return device, note
    beyond = prediction.device_used - prediction.held
    capacity = min(device.capacity_bytes, lost.limit + beyond)
    return dataclasses.replace(device, capacity_bytes=capacity), f"{note}; gpu_mem_limit caps the arena"


def _describer(prediction: Prediction) -> Any:
    nodes, values = prediction.graph.nodes, prediction.graph.values

    def describe(malloc: Malloc) -> Description:
        node = nodes.get(malloc.operator)
        value = values.get(malloc.label)
        return Description(
            name=malloc.label,
            dtype=value.dtype if value else "",
            shape=tuple(value.shape or ()) if value else (),
            operator=node.op if node else "",
            module=node.name if node else "",
            source="",
            phase="forward" if node else "setup",
        )

    return describe


def _savings(prediction: Prediction) -> tuple[str, ...]:
    """One line a cheaper setting that would hold at least 1 % less."""
    mib = 2**20
    return tuple(
        f"{setting} would hold {held / mib:,.0f} MiB instead of {prediction.held / mib:,.0f} MiB "
        f"(peak in use {in_use / mib:,.0f} MiB)"
        for setting, (in_use, held) in prediction.savings.items()
        if held < 0.99 * prediction.held
    )
