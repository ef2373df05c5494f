"""Attribution: place, time and cause of each allocation, the fields of an estimate that are read off its
simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from analyzer.graph import Graph
from analyzer.liveness.lifetimes import lifetimes, peak, saved_for_backward
from analyzer.pipeline.rows import described, peak_rows
from analyzer.results.estimate import Allocations, MarkRow, Origin, OutOfMemory, SegmentRow, Timeline
from analyzer.runtimes.base import Description, Prediction
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.timeline import Failure, Simulation


def attributed(
    graph: Graph, prediction: Prediction, simulation: Simulation, failure: Failure | None
) -> dict[str, Any]:
    """Return the fields of the estimate that say what lies where, when and why."""
    describe = described(prediction, graph)
    rows = peak_rows(graph, prediction, simulation, describe)
    ranges = lifetimes(graph)
    return {
        "graph_peak": peak(graph, ranges=ranges).nbytes,
        "saved_for_backward": saved_for_backward(graph, ranges).nbytes,
        "breakdown": sums((row.category, row.nbytes) for row in rows),
        "by_module": sums((row.module, row.nbytes) for row in rows),
        "by_line": sums((row.source, row.nbytes) for row in rows),
        "marks": _marks(prediction.events, simulation),
        "tensors": rows,
        "timeline": _timeline(simulation),
        "peak_at": simulation.peak_phase,
        "out_of_memory": (None if failure is None else out_of_memory(failure, prediction.events, describe)),
        "allocations": _allocations(prediction.events, simulation, describe),
        "segments": tuple(
            SegmentRow(piece.address, piece.nbytes, piece.born, piece.died) for piece in simulation.pieces
        ),
        "peak_event": simulation.peak_position,
        "iterations": simulation.iterations,
    }


def unattributed(failure: Failure | None) -> dict[str, Any]:
    """Return the same fields where only figures were asked for (`Prediction.plain`): empty, but for whether a
    request finds no memory."""
    return {
        **dict.fromkeys(("graph_peak", "saved_for_backward"), 0),
        **{name: {} for name in ("breakdown", "by_module", "by_line")},
        **dict.fromkeys(("marks", "tensors"), ()),
        "timeline": Timeline(*((),) * 6),
        "out_of_memory": None if failure is None else OutOfMemory(0, 0, 0, 0),
    }


def sums(pairs: Any) -> dict[str, int]:
    """Return the sums of bytes by name, largest first."""
    totals = Counter[str]()
    for name, size in pairs:
        totals[name] += size
    return dict(totals.most_common())


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
    origin_numbers: dict[tuple[object, ...], int] = {}
    blocks: dict[int, int] = {}
    for position, (event, delta) in enumerate(zip(events, simulation.delta, strict=False)):
        if isinstance(event, Malloc) and delta:
            alike = (event.operator, event.storage, event.label, event.category, event.rule, event.stream)
            place = origin_numbers.get(alike)
            if place is None:
                place = origin_numbers[alike] = origins.setdefault(
                    _origin(event, describe(event)), len(origins)
                )
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


def out_of_memory(
    failure: Failure, events: Sequence[AllocationEvent], describe: Callable[[Malloc], Description]
) -> OutOfMemory:
    """Return the failed request in the user's terms. Its phase: the event under way, else its operator's."""
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
        phase=next((event.name for event in following if isinstance(event, Event)), description.phase),
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
