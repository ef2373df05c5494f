"""From a captured program to the frozen `Analysis`: the runtime is asked, its requests are simulated, the
peak is attributed.

Everything a reader sees is decided here once; nothing is recomputed later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyzer import releases
from analyzer.analysis import Analysis
from analyzer.devices import DeviceProfile, stands_in
from analyzer.errors import OptionError, UnknownOperatorError
from analyzer.liveness.lifetimes import lifetimes, peak, saved_for_backward
from analyzer.liveness.naive import Naive
from analyzer.options import Options
from analyzer.pipeline.rows import described, peak_rows
from analyzer.results.estimate import (
    Allocations,
    Certainty,
    Estimate,
    MarkRow,
    Origin,
    OutOfMemory,
    Room,
    SegmentRow,
    Timeline,
)
from analyzer.runtimes.base import UNLIMITED, Description, Limit, Prediction, Runtime, Source
from analyzer.runtimes.bounded import bounded, unasked
from analyzer.runtimes.convolutions import notes_on_convolutions
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.ranges import (
    Range,
    beside_range,
    kept_and_spare,
    may_be_off,
    orders_range,
    placed_ranges,
    reserved_range,
    under_pressure,
)
from analyzer.runtimes.timeline import Failure, Simulation
from analyzer.runtimes.variants import Variants
from analyzer.timing.step_time import StepTime


@dataclass(frozen=True, slots=True)
class Captured:
    """A target captured by a front end, ready for a runtime.

    framework: "pytorch" or "onnx", what the target is. batch: of the capture, None where it does not say.
    profile: with the runtime's settings in it; device_note says why this device. optimizer: its name, "" in
    inference.
    notes: what the capture assumed; those of the graph itself are added. refused: why the runtime would not
    run it so.
    incomplete, caveats, unreached: as in `Estimate`.
    """

    target: str
    framework: str
    batch: int | None
    source: Source
    profile: DeviceProfile
    device_note: str
    naive: Naive
    notes: tuple[str, ...] = ()
    optimizer: str = ""
    refused: tuple[str, ...] = ()
    incomplete: str | None = None
    caveats: tuple[str, ...] = ()
    unreached: str = ""


def check_runtime(runtime: Runtime, framework: str, target: str) -> None:
    """Raise OptionError if the runtime does not run programs of that front end."""
    if framework in runtime.frameworks:
        return
    if framework == "onnx":
        raise OptionError(
            f"an ONNX file does not run under {runtime.name} for inference",
            "leave --runtime out, or give the PyTorch model",
        )
    raise OptionError(f"{target} is a PyTorch target", "export it to ONNX first, or use --runtime pytorch")


def check_trains(runtime: Runtime) -> None:
    """Raise OptionError if the runtime cannot train an ONNX file as a PyTorch program."""
    if "pytorch" not in runtime.frameworks:
        raise OptionError(
            f"{runtime.name} does not train an ONNX file: that is a PyTorch program", "leave --runtime out"
        )


def assemble(
    captured: Captured,
    options: Options,
    runtime: Runtime,
    limit: Limit | None = None,
    known: Prediction | None = None,
) -> Analysis:
    """Predict and simulate the capture's requests, and assemble the estimate. Raises AnalyzerError.

    limit: bytes the allocator may hold, and whether it is the device that has no more (`Prediction.limited`);
    the figures are then those under it, until where the program gets. UNLIMITED: with room, whatever the
    device has. None: what the device, or the budget, leaves it (`_on_device`).
    known: what is predicted, if that is known already; in plain numbers (`Prediction.plain`) the estimate is
    without what lies where, and without ranges.
    """
    prediction = known or _predicted(captured, options, runtime)
    profile, device_note = _capped(captured, prediction)
    assumed = stands_in(options.device)
    there_is = None if assumed else profile.usable_bytes
    variants = Variants(prediction)
    outcome = _outcome(variants, limit, (options.budget_bytes, there_is))
    simulation = outcome.simulation
    device_used = prediction.device_used(simulation)
    bounding = there_is if limit is None else None
    assumptions = _assumed(captured.profile, variants, outcome, device_used, bounding)
    modelled = runtime.modelled(prediction, profile)
    elsewhere = releases.others_installed(modelled)
    estimate = Estimate(
        target=captured.target,
        framework=captured.framework,
        runtime=runtime.name,
        mode=options.mode,
        batch=captured.batch if options.batch is None else options.batch,
        optimizer=captured.optimizer,
        device=profile.name,
        device_note=device_note,
        capacity_bytes=profile.capacity_bytes,
        driver_bytes=profile.driver_bytes,
        options=options.shown(),
        peak_allocated=simulation.peak_allocated,
        peak_reserved=simulation.peak_reserved,
        device_used=device_used,
        peak_requested=simulation.peak_requested,
        naive=captured.naive,
        certainty=_certainty(
            simulation,
            prediction.unknown,
            assumptions,
            kept_and_spare(captured.profile, profile.usable_bytes),
        ),
        notes=_notes(captured, prediction, profile, simulation, assumptions, modelled, elsewhere),
        refused=captured.refused,
        incomplete=captured.incomplete,
        caveats=captured.caveats,
        unreached=captured.unreached,
        with_room=outcome.with_room,
        doubt=outcome.doubt,
        budget_bytes=options.budget_bytes,
        device_assumed=assumed,
        modelled=modelled,
        installed=elsewhere,
        step_seconds=_step_time(captured, runtime),
        **(_NOWHERE if prediction.plain else _attributed(captured, prediction, outcome)),
    )
    return Analysis(options, profile, captured.source.graph, prediction, simulation, estimate)


# `_attributed` of a program in plain numbers.
_NOWHERE: dict[str, Any] = {
    **dict.fromkeys(("graph_peak", "saved_for_backward"), 0),
    **dict.fromkeys(("breakdown", "by_module", "by_line"), {}),
    **dict.fromkeys(("marks", "tensors"), ()),
    "timeline": Timeline(*((),) * 6),
}


def _attributed(captured: Captured, prediction: Prediction, outcome: _Outcome) -> dict[str, Any]:
    """Return the fields of the estimate that say what lies where, when and why."""
    graph, simulation = captured.source.graph, outcome.simulation
    describe = described(prediction, graph)
    rows = peak_rows(graph, prediction, simulation, describe)
    ranges = lifetimes(graph)
    return {
        "graph_peak": peak(graph, ranges=ranges).nbytes,
        "saved_for_backward": saved_for_backward(graph, ranges).nbytes,
        "breakdown": _sums((row.category, row.nbytes) for row in rows),
        "by_module": _sums((row.module, row.nbytes) for row in rows),
        "by_line": _sums((row.source, row.nbytes) for row in rows),
        "marks": _marks(prediction.events, simulation),
        "tensors": rows,
        "timeline": _timeline(simulation),
        "peak_at": simulation.peak_phase,
        "out_of_memory": (
            None if outcome.failure is None else out_of_memory(outcome.failure, prediction.events, describe)
        ),
        "allocations": _allocations(prediction.events, simulation, describe),
        "segments": tuple(
            SegmentRow(piece.address, piece.nbytes, piece.born, piece.died) for piece in simulation.pieces
        ),
        "peak_event": simulation.peak_position,
        "iterations": simulation.iterations,
    }


def _step_time(captured: Captured, runtime: Runtime) -> StepTime | None:
    """Return the time of a step, for PyTorch's runtime and a complete program; else None."""
    if runtime.name != "pytorch" or captured.incomplete is not None:
        return None
    from analyzer.timing.step import step_time  # what an ONNX file's analysis needs nothing of

    return step_time(captured.source.graph, captured.profile)


_ORDERS = "{}; in others {} to {} MiB are reserved"
_PLACED = (
    "of two free blocks of one size the one at the lower address serves; where the driver puts memory"
    " otherwise, {}"
)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The simulation behind the figures, and the verdict. failure: the request without memory. with_room,
    doubt: as in `Estimate`."""

    simulation: Simulation
    failure: Failure | None
    with_room: Room | None = None
    doubt: str = ""


def _predicted(captured: Captured, options: Options, runtime: Runtime) -> Prediction:
    """Return the runtime's prediction. Raises UnknownOperatorError with `--strict`."""
    prediction = runtime.predict(captured.source, options, captured.profile)
    if options.strict and prediction.unknown:
        raise UnknownOperatorError(
            f"{captured.target} has operators whose own memory use is not known:"
            f" {', '.join(sorted(prediction.unknown))}",
            "leave --strict out for figures that are at least what it takes, or describe them with"
            " analyzer.rule",
        )
    return prediction


def _capped(captured: Captured, prediction: Prediction) -> tuple[DeviceProfile, str]:
    """Return the device with the memory a setting leaves, and why."""
    profile, capped = captured.profile, prediction.capped
    if capped is None or capped.capacity_bytes >= profile.usable_bytes:
        return profile, captured.device_note
    note = "; ".join(filter(None, (captured.device_note, capped.note)))
    return profile.of_memory(capped.capacity_bytes), note


def _outcome(variants: Variants, limit: Limit | None, bounds: Sequence[int | None]) -> _Outcome:
    """Simulate under a limit, as in `assemble`. bounds: bytes, the least of which counts without one."""
    if limit == UNLIMITED:
        return _on_device(variants, None)
    if limit is not None and variants.prediction.limited is not None:
        simulation, doubt = bounded(variants, limit)
        return _Outcome(simulation, simulation.failure, None, doubt)
    return _on_device(variants, min((bound for bound in bounds if bound is not None), default=None))


def _notes(
    captured: Captured,
    prediction: Prediction,
    profile: DeviceProfile,
    simulation: Simulation,
    assumed: _Assumed,
    modelled: Mapping[str, str],
    elsewhere: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the notes of all stages, without duplicates."""
    notes = (
        *prediction.notes,
        *notes_on_convolutions(profile, prediction.events),
        *captured.notes,
        *captured.source.graph.notes,
        *assumed.notes,
        *_refusals(simulation),
        *releases.notes(modelled, elsewhere),
    )
    return tuple(dict.fromkeys(notes))


def _on_device(variants: Variants, capacity_bytes: int | None) -> _Outcome:
    """Return the outcome with room; beyond the capacity, as it runs there if it does.

    What the process takes beside its allocator (context, libraries) is the same either way.
    """
    free, prediction = variants.simulated(), variants.prediction
    used = prediction.device_used(free)
    if capacity_bytes is None or used <= capacity_bytes or free.failure or prediction.limited is None:
        return _Outcome(free, free.failure)
    simulation, doubt = bounded(variants, Limit(max(capacity_bytes - (used - free.peak_reserved), 0), True))
    if simulation.failure is not None or doubt:
        return _Outcome(free, simulation.failure, None, doubt)
    return _Outcome(simulation, None, Room(free.peak_allocated, free.peak_reserved, used))


def _sums(pairs: Any) -> dict[str, int]:
    sums = Counter[str]()
    for name, size in pairs:
        sums[name] += size
    return dict(sums.most_common())


@dataclass(frozen=True, slots=True)
class _Assumed:
    """Figures nobody measured here: name -> bytes, and the ranges they allow (as in `Certainty`)."""

    by_name: Mapping[str, int] = field(default_factory=dict)
    reserved: Range | None = None
    beside: Range | None = None
    notes: tuple[str, ...] = ()


def _in_mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f}"


def _assumed(
    profile: DeviceProfile,
    variants: Variants,
    outcome: _Outcome,
    device_used: int,
    capacity_bytes: int | None,
) -> _Assumed:
    """Return the assumed figures. capacity_bytes: memory of the simulation; None: unlimited."""
    simulation, prediction = outcome.simulation, variants.prediction
    notes, ends = _rearranged(variants, simulation) if outcome.with_room is None else ((), ())
    if profile.measured:
        if unasked(prediction.events) and not prediction.plain:
            ends += reserved_range(variants, simulation, measured=True)
        return _Assumed(reserved=(min(ends), max(ends)) if ends else None, notes=notes)
    beside = max(device_used - simulation.peak_reserved, 0)
    found = {
        "context and library code": beside,
        "libraries' choices": sum(
            alive.block_bytes for alive in simulation.alive if may_be_off(alive.malloc)
        ),
    }
    named = {name: nbytes for name, nbytes in found.items() if nbytes}
    if prediction.plain:
        return _Assumed(named, None, beside_range(profile, beside), notes)
    ends += reserved_range(variants, simulation)
    reserved = min(ends), max(ends)
    room = outcome.with_room
    if room is not None:  # the allocator holds what there is
        reserved = (min(reserved[0], simulation.peak_reserved), simulation.peak_reserved)
    if capacity_bytes is not None and outcome.failure is None:
        with_room = simulation.peak_reserved if room is None else room.peak_reserved
        pressed = under_pressure(variants, profile, with_room, beside, capacity_bytes)
        reserved = (
            min(reserved[0], *pressed, simulation.peak_reserved),
            max(reserved[1], *pressed, simulation.peak_reserved),
        )
    return _Assumed(named, reserved, beside_range(profile, beside), notes)


def _rearranged(variants: Variants, simulation: Simulation) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return notes on what other orders of requests and places of segments would make of the peaks, and
    reserved bytes there."""
    orders = orders_range(variants.prediction, simulation)
    notes = [_ORDERS.format(variants.prediction.order, *map(_in_mib, orders))] if orders else []
    placed = placed_ranges(variants, simulation)
    named = [] if placed is None else zip(placed, ("allocated", "reserved"), strict=True)
    parts = [
        f"{_in_mib(least)} to {_in_mib(most)} MiB are {name}" for (least, most), name in named if least < most
    ]
    if parts:
        notes.append(_PLACED.format(" and ".join(parts)))
    reserved = placed[1] if placed is not None and placed[1][0] < placed[1][1] else ()
    return tuple(notes), (*(orders or ()), *reserved)


def _certainty(
    simulation: Simulation, unknown: Mapping[str, int], assumed: _Assumed, kept_and_spare: Range
) -> Certainty:
    """Return the bytes at the peak by how they are known, and by rule."""
    by_rule = {
        basis: _sums(
            (alive.malloc.rule, alive.block_bytes)
            for alive in simulation.alive
            if alive.block_bytes and alive.malloc.basis == basis
        )
        for basis in ("exact", "measured", "bounded")
    }
    exact, measured, bounded = (sum(sums.values()) for sums in by_rule.values())
    return Certainty(
        exact, measured, bounded, dict(unknown), by_rule, assumed.by_name, assumed.reserved, assumed.beside,
        *kept_and_spare,
    )  # fmt: skip


def _allocations(
    events: tuple[AllocationEvent, ...], simulation: Simulation, describe: Callable[[Malloc], Description]
) -> Allocations:
    """Return every block with its live range and origin; requests without a block are left out."""
    born: list[int] = []
    died: list[int] = []
    nbytes: list[int] = []
    requested: list[int] = []
    origin: list[int] = []
    origins: dict[Origin, int] = {}
    known: dict[tuple[object, ...], int] = {}
    blocks: dict[int, int] = {}
    for position, (event, delta) in enumerate(zip(events, simulation.delta, strict=False)):
        if isinstance(event, Malloc) and delta:
            alike = (event.operator, event.storage, event.label, event.category, event.rule, event.stream)
            place = known.get(alike)
            if place is None:
                place = known[alike] = origins.setdefault(_origin(event, describe(event)), len(origins))
            blocks[event.key] = len(born)
            born.append(position)
            died.append(-1)
            nbytes.append(delta)
            requested.append(event.nbytes)
            origin.append(place)
        elif isinstance(event, Free) and event.key in blocks:
            died[blocks.pop(event.key)] = position
    return Allocations(
        tuple(born),
        tuple(died),
        tuple(nbytes),
        tuple(requested),
        tuple(simulation.address[position] for position in born),
        tuple(origin),
        tuple(origins),
    )


def _origin(malloc: Malloc, description: Description) -> Origin:
    return Origin(
        category=malloc.category.value, rule=malloc.rule, stream=malloc.stream or 0, **description.by_name
    )


def _refusals(simulation: Simulation) -> tuple[str, ...]:
    count = len(simulation.refused)
    if not count:
        return ()
    return (
        (
            f"{count} convolution{'s have' if count > 1 else ' has'} no room for the workspace of cuDNN's"
            " first plan: PyTorch takes the next one that fits, which is slower; counted with the workspace"
            " of that one"
        ),
    )


def out_of_memory(
    failure: Failure, events: Sequence[AllocationEvent], describe: Callable[[Malloc], Description]
) -> OutOfMemory:
    """Return the failed request in the user's terms; its phase is the current named event."""
    description = describe(failure.malloc)
    following = events[failure.position :]
    return OutOfMemory(
        requested_bytes=failure.malloc.nbytes,
        allocated_bytes=failure.allocated,
        reserved_bytes=failure.reserved,
        limit_bytes=failure.limit,
        free_bytes=sum(failure.free),
        largest_free_bytes=max(failure.free, default=0),
        free_count=len(failure.free),
        label=description.name,
        operator=description.operator,
        module=description.module,
        source=description.source,
        phase=next((event.name for event in following if isinstance(event, Event)), ""),
    )


def _timeline(simulation: Simulation) -> Timeline:
    return Timeline(
        simulation.allocated,
        simulation.reserved,
        simulation.delta,
        simulation.label,
        simulation.category,
        simulation.phase,
        simulation.rule,
    )


def _marks(events: tuple[AllocationEvent, ...], simulation: Simulation) -> tuple[MarkRow, ...]:
    """Return the named events, with the live bytes by category then."""
    alive: dict[int, tuple[str, int]] = {}
    sums = Counter[str]()
    rows: list[MarkRow] = []
    states = iter(simulation.marks)
    for event, delta in zip(events[: len(simulation.delta)], simulation.delta, strict=True):
        if isinstance(event, Malloc):
            alive[event.key] = (event.category.value, delta)
            sums[event.category.value] += delta
        elif isinstance(event, Free):
            category, size = alive.pop(event.key)
            sums[category] -= size
        elif isinstance(event, Event):
            mark = next(states)
            rows.append(
                MarkRow(
                    mark.event, mark.allocated, mark.peak, mark.reserved, {k: v for k, v in sums.items() if v}
                )
            )
    return tuple(rows)
