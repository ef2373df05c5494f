"""The prediction: what ONNX Runtime's session takes of the arena, what it takes besides, and why.

    prepare (load, rewrite, plan) → record (allocation events) → typical order, played → figures and advice

Device memory is the driver's pages under the arena's regions, and what lies outside the arena (`outside`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.runtimes.base import Capped, Description, Prediction
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.onnxruntime import advice, outside
from analyzer.runtimes.onnxruntime.arena import SessionArena
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.options import SessionOptions, parse
from analyzer.runtimes.onnxruntime.playing import Failure, Region, RunFigures, steady, typical
from analyzer.runtimes.onnxruntime.rewrite import optimise, unmodelled
from analyzer.runtimes.onnxruntime.session import Frame, frame, record


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPrediction(Prediction):
    """What a session needs. All sizes in bytes.

    failure: the first request that device or limit cannot serve; the figures are then what it would take without one.
    peak_in_use, held, device_bytes: after the steady run; `session`, `first_run`, `steady` the stages by themselves.
    held_range: the least and the most the arena may hold, by the order in which initializers are loaded.
    regions: every extension of the arena with its reason. settings: of the session. graph: as it really runs.
    """

    peak_in_use: int
    held: int
    held_range: tuple[int, int]
    device_bytes: int
    session: RunFigures
    first_run: RunFigures
    steady: RunFigures
    regions: tuple[Region, ...]
    failure: Failure | None
    settings: SessionOptions
    graph: RuntimeGraph


def prepare(path_or_model: Any, batch: int | None, options: SessionOptions, inputs: Any = None) -> Frame:
    """Load, optimise and plan. Raises TargetError and InputError for a bad file or shapes."""
    graph = load(path_or_model, batch, inputs)
    optimise(graph, options.provider, options.graph_optimization_level, nhwc=options.prefer_nhwc)
    return frame(graph, options)


def predict(
    path_or_model: Any,
    *,
    batch: int | None = None,
    options: Mapping[str, Any],
    device: DeviceProfile,
    inputs: Any = None,
) -> SessionPrediction:
    """Predict a session of whatever `onnx.model.read` takes, at `batch`; one read before keeps its batch and inputs.

    Raises TargetError, InputError and OptionError for what the user got wrong.
    """
    settings = parse(options)
    on_gpu = settings.provider == "cuda"
    prepared = prepare(path_or_model, batch, settings, inputs)
    recording = record(prepared, settings, device)
    room = device.capacity_bytes if on_gpu else None
    played, held_range = typical(recording.events, settings, room)
    lost, notes = played.failure, []
    if lost is not None:
        # The device or the arena's limit is too small: say so, but also what it would take.
        notes.append(advice.out_of_memory(lost, settings))
        settings, room = replace(settings, gpu_mem_limit=None), None
        played, held_range = typical(recording.events, settings, room)
    beyond = outside.bytes_outside(prepared.graph, settings, device) if on_gpu else 0
    held, pages = played.held, max(played.held, played.page_bytes)
    savings = advice.savings(prepared, settings, device) if on_gpu and lost is None else ()
    lines = (advice.worth_saying(saving, held) for saving in savings)
    notes += [
        *advice.explanation(played),
        *(line for line in lines if line is not None),
        *prepared.graph.notes,
        *unmodelled.notes(prepared.graph, settings.provider, settings.graph_optimization_level),
        *advice.limits(settings, held_range),
    ]
    session, first_run, steady_run = steady(played)
    return SessionPrediction(
        events=played.events,
        allocator=lambda: SessionArena(settings, room),
        device_used=lambda _: pages + beyond,
        unknown=recording.unknown,
        notes=tuple(dict.fromkeys(notes)),
        describe=_describer(prepared.graph),
        savings=savings,
        capped=None
        if lost is None
        else Capped(lost.limit + pages + beyond - held, "gpu_mem_limit caps the arena"),
        peak_in_use=played.peak_in_use,
        held=held,
        held_range=held_range,
        device_bytes=pages + beyond,
        session=session,
        first_run=first_run,
        steady=steady_run,
        regions=played.regions,
        failure=lost,
        settings=settings,
        graph=prepared.graph,
    )


def _describer(graph: RuntimeGraph) -> Callable[[Malloc], Description]:
    """Allocations by the names of the values and nodes that really run."""

    def describe(malloc: Malloc) -> Description:
        node, value = graph.nodes.get(malloc.operator), graph.values.get(malloc.label)
        return Description(
            name=malloc.label,
            dtype=value.dtype if value else "",
            shape=tuple(value.shape or ()) if value else (),
            operator=node.op if node else "",
            module=node.name if node else "",
            phase="forward" if node else "setup",
        )

    return describe
