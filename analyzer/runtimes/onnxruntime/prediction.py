"""The prediction: arena in use and held, device memory, where held memory beyond the tensors comes from.

1. In use, peak in use and held are the arena's own figures, as `enable_profiling` reports them in
   `mem_bytes_in_use`, `mem_in_use_peak` and `mem_arena_held`; peaks count from the start of the session.
2. First run and steady state differ (`session`, rule 3): the second run's figures are the steady ones.
3. Device memory: the driver's pages under the arena's regions, and what lies outside (`outside`).
4. Cheaper settings are played for what they would hold.
5. The order in which initializers are loaded is a hash table's, another in every process. Several random orders are
   played; the one reported has a peak near the median peak and holds what most of them hold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzer.allocators import OutOfMemoryError
from analyzer.devices import DeviceProfile
from analyzer.graph import Category
from analyzer.runtimes.base import Capped, Description, Prediction, Saving
from analyzer.runtimes.events import AllocationEvent, Event, Malloc
from analyzer.runtimes.onnxruntime import outside
from analyzer.runtimes.onnxruntime.arena import Requests, SessionArena
from analyzer.runtimes.onnxruntime.graph import RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch import Settings
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.options import Options, parse
from analyzer.runtimes.onnxruntime.rewrite import optimise
from analyzer.runtimes.onnxruntime.session import Frame, Recorder, frame

MIB = 2**20
_EXTENDED = 2
_ORDERS = 21
_RARE = 0.1  # how much nearer to the median peak an order must be to outweigh the common held bytes
_EVENTS = 150_000  # played in all, so that large graphs stay quick


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Bytes after a run: in use, highest in use during it, held."""

    in_use: int
    peak_in_use: int
    held: int


@dataclass(frozen=True, slots=True)
class Region:
    """A region the arena took: why (the request, and during what), and how much beyond the request."""

    nbytes: int
    requested_bytes: int
    held_bytes: int
    label: str
    phase: str


@dataclass(frozen=True, slots=True)
class Failure:
    """The first request the arena could not serve."""

    requested_bytes: int
    in_use: int
    held: int
    limit: int
    label: str
    phase: str


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
    settings: Options
    graph: RuntimeGraph


def prepare(path_or_model: Any, batch: int | None, options: Options, inputs: Any = None) -> Frame:
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
    parsed = parse(options)
    provider = parsed.provider
    prepared = prepare(path_or_model, batch, parsed, inputs)
    recorder = _record(prepared, parsed, device)
    requests = recorder.requests
    limit = device.capacity_bytes if provider == "cuda" else None
    events, played, spread = _typical(recorder.events, parsed, requests, limit)
    lost = played.failure
    explained = parsed
    if lost is not None:
        # The device or the arena's limit is too small: say so, but also what it would take.
        parsed = replace(parsed, gpu_mem_limit=None)
        events, played, spread = _typical(recorder.events, parsed, requests, None)
    beyond = outside.bytes_outside(prepared.graph, parsed, device) if provider == "cuda" else 0
    held = played.arena.reserved
    pages = max(held, played.arena.page_bytes)
    savings = () if lost or provider == "cpu" else _savings(prepared, parsed, device)
    notes = (
        *_explain(played, explained, lost),
        *(_advice(saving, held) for saving in savings if saving.peak_reserved < 0.99 * held),
        *prepared.graph.notes,
        *_notes(parsed, spread),
    )
    return SessionPrediction(
        events=events,
        allocator=lambda: SessionArena(parsed, requests),
        device_used=lambda _: pages + beyond,
        unknown=recorder.unknown,
        notes=tuple(dict.fromkeys(notes)),
        describe=_describer(prepared.graph),
        savings=savings,
        capped=None
        if lost is None
        else Capped(lost.limit + pages + beyond - held, "gpu_mem_limit caps the arena"),
        peak_in_use=played.arena.peak_allocated,
        held=held,
        held_range=spread,
        device_bytes=pages + beyond,
        session=played.stages["session"],
        first_run=played.stages.get("run 1", played.stages["session"]),
        steady=played.stages.get("run 2", played.stages.get("run 1", played.stages["session"])),
        regions=played.regions,
        failure=lost,
        settings=parsed,
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


def _record(prepared: Frame, options: Options, device: DeviceProfile) -> Recorder:
    settings = Settings(options.provider, options.cudnn_conv_algo_search, device, options.threads)
    recorder = Recorder(settings, options)
    _forget(prepared)
    recorder.session(prepared)
    for number in (1, 2):
        recorder.run(prepared, number)
    return recorder


def _forget(prepared: Frame) -> None:
    prepared.pattern = None
    for inner in prepared.bodies.values():
        _forget(inner)


def _typical(
    events: list[AllocationEvent], options: Options, requests: Requests, limit: int | None
) -> tuple[tuple[AllocationEvent, ...], _Played, tuple[int, int]]:
    """Rule 5: events with the initializers in a typical order, what happens with them, and the range held."""
    count = next(
        place
        for place, event in enumerate(events)
        if not isinstance(event, Malloc) or event.category is not Category.PARAMETER
    )
    orders = min(_ORDERS, max(1, _EVENTS // len(events)))
    if count < 2 or options.arena_extend_strategy != "kNextPowerOfTwo" or 0 in requests.reserved:
        orders = 1
    outcomes = []
    for seed in range(orders):
        shuffled = events[:count]
        random.Random(seed).shuffle(shuffled)
        whole = (*shuffled, *events[count:])
        outcomes.append((whole, _play(whole, options, requests, limit)))
    held = sorted(item[1].arena.reserved for item in outcomes)
    peaks = sorted(item[1].arena.peak_allocated for item in outcomes)
    middle, peak = held[len(held) // 2], peaks[len(peaks) // 2]
    common = min(set(held), key=lambda value: (-held.count(value), abs(value - middle)))
    whole, played = min(
        outcomes,
        key=lambda item: (
            abs(item[1].arena.peak_allocated / max(peak, 1) - 1) + _RARE * (item[1].arena.reserved != common)
        ),
    )
    spread = (held[0], held[-1])
    return whole, played, spread


@dataclass(slots=True)
class _Played:
    arena: SessionArena
    stages: dict[str, RunFigures]
    regions: tuple[Region, ...]
    failure: Failure | None


def _play(
    events: tuple[AllocationEvent, ...], options: Options, requests: Requests, device_bytes: int | None = None
) -> _Played:
    arena = SessionArena(options, requests, device_bytes)
    handles: dict[int, int] = {}
    stages: dict[str, RunFigures] = {}
    regions: list[Region] = []
    phases = [event.name for event in events if isinstance(event, Event)]
    phase, peak = 0, 0
    failure = None
    for event in events:
        if isinstance(event, Malloc):
            before = len(arena.extensions)
            try:
                handles[event.key] = arena.malloc(event.nbytes)
            except OutOfMemoryError as error:
                failure = Failure(
                    event.nbytes, error.allocated, error.reserved, error.limit, event.label, phases[phase]
                )
                break
            peak = max(peak, arena.allocated)
            for extension in arena.extensions[before:]:
                regions.append(
                    Region(
                        extension.region_bytes, event.nbytes, extension.held_bytes, event.label, phases[phase]
                    )
                )
        elif isinstance(event, Event):
            arena.end_run()
            stages[event.name] = RunFigures(arena.allocated, peak, arena.reserved)
            if options.enable_memory_arena_shrinkage and event.name != "session":
                arena.shrink()
            phase, peak = phase + 1, arena.allocated
        else:
            arena.free(handles.pop(event.key))
    stages.setdefault("session", RunFigures(arena.allocated, peak, arena.reserved))
    return _Played(arena, stages, tuple(regions), failure)


def _explain(played: _Played, options: Options, lost: Failure | None) -> tuple[str, ...]:
    """One line for each region that holds clearly more than was asked for."""
    lines = [
        f"{region.nbytes / MIB:,.0f} MiB held for a request of {region.requested_bytes / MIB:,.1f} MiB "
        f"({region.label}, {region.phase})"
        for region in played.regions
        if region.nbytes - region.requested_bytes >= max(MIB, region.nbytes // 4)
    ]
    waste = played.arena.peak_allocated - played.arena.peak_requested
    if waste > MIB:
        lines.append(f"{waste / MIB:,.0f} MiB of the peak in use are rests of chunks not worth splitting")
    if lost is not None:
        lines.insert(
            0,
            f"out of memory: {lost.requested_bytes:,} bytes for {lost.label} ({lost.phase}) with {lost.held:,} of "
            f"{lost.limit:,} held" + ("" if options.gpu_mem_limit is None else " (gpu_mem_limit)"),
        )
    return tuple(lines)


def _savings(prepared: Frame, options: Options, device: DeviceProfile) -> tuple[Saving, ...]:
    """What cheaper settings would take (rule 4)."""
    changes = {
        "arena_extend_strategy=kSameAsRequested": replace(options, arena_extend_strategy="kSameAsRequested"),
        "enable_mem_pattern=0": replace(options, enable_mem_pattern=False),
        "cudnn_conv_algo_search=DEFAULT": replace(options, cudnn_conv_algo_search="DEFAULT"),
    }
    found = []
    for name, changed in changes.items():
        if changed != options:
            recorder = _record(prepared, changed, device)
            played = _play(tuple(recorder.events), changed, recorder.requests)
            found.append(Saving(name, played.arena.peak_allocated, played.arena.reserved))
    return tuple(found)


def _advice(saving: Saving, held: int) -> str:
    """One line on a setting that would hold less."""
    return (
        f"{saving.setting} would hold {saving.peak_reserved / MIB:,.0f} MiB instead of {held / MIB:,.0f} MiB "
        f"(peak in use {saving.peak_allocated / MIB:,.0f} MiB)"
    )


def _notes(options: Options, spread: tuple[int, int]) -> list[str]:
    notes = []
    if options.provider == "cuda" and spread[0] != spread[1]:
        notes.append(
            "ONNX Runtime loads initializers in the order of a hash table, which changes from process to process: "
            f"held between {spread[0] / MIB:,.0f} and {spread[1] / MIB:,.0f} MiB; figures are for a typical order"
        )
    if options.provider == "cpu" and options.graph_optimization_level > _EXTENDED:
        notes.append(
            "the CPU provider's blocked layouts (graph optimization level all) are not modelled; figures are for extended"
        )
    return notes
