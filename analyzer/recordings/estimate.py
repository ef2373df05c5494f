"""A snapshot explained: an `Estimate` of the recorded memory, for every form of report, and further
findings.

1. The figures are the record's, by a replay that is compared with it (`replay.py`); where the two differ, a
   note says so, and reserved memory is the record's own.
2. The process's memory beside its allocator is in no snapshot: `device_used` is the allocator's memory, and
   a note says so.
3. The device with most memory held is the one explained, or the one where a request failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from analyzer.allocators.pytorch.caching import SMALL_BYTES
from analyzer.devices import load
from analyzer.errors import InputError
from analyzer.graph import Graph
from analyzer.liveness.naive import Naive
from analyzer.options import Options
from analyzer.pipeline.assemble import Captured, assemble
from analyzer.recordings import stacks, ways
from analyzer.recordings.growth import growth
from analyzer.recordings.history import History, history_of
from analyzer.recordings.outcome import segment_bytes
from analyzer.recordings.replay import Failed, Replay, replay
from analyzer.recordings.snapshot import DeviceRecord, Snapshot, read
from analyzer.recordings.trace import OOM
from analyzer.results.estimate import Estimate
from analyzer.results.recording import FailedRequest, Holding, Hole, Recording
from analyzer.runtimes.base import Description, Prediction, Source
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.happened import Happened, no_allocator

ENGINE = "recording"
_UNKNOWN = "not known"  # of what kind blocks are
_HOLDERS = 10
_FAILURES = 5


def explain(path: Path, tell: Callable[[str], None] = lambda _: None, ways_too: bool = True) -> Recording:
    """Return a snapshot explained. ways_too: with other settings simulated. Raises InputError."""
    tell("reading the snapshot")
    snapshot = read(path)
    record = _explained_device(snapshot, path)
    history = history_of(record, snapshot)
    tell("replaying it")
    describe = _Describer(history, snapshot)
    replayed = replay(
        history, snapshot.settings, tuple(part.state for part in record.segments), describe.malloc
    )
    simulation = replayed.simulation
    failed = replayed.failed
    settings = replace(snapshot.settings, ties=replayed.ties)
    limit = ways.limit_of(failed[-1], simulation.peak_reserved, settings) if failed else None
    estimate = _estimate(path.name, snapshot, record, history, replayed, describe, limit)
    grows, steps = growth(replayed.events, simulation.delta, history, describe.place)
    if ways_too:
        tell("simulating other settings")
    return Recording(
        estimate,
        len(record.trace or ()),
        None if limit is None else limit.nbytes,
        tuple(_failed_request(one, settings, describe) for one in failed[-_FAILURES:]),
        _holders(replayed, describe),
        grows,
        steps,
        ways.ways(history, settings, snapshot.conf, limit) if ways_too and history.entries else (),
        _parted(replayed),
    )


def _explained_device(snapshot: Snapshot, path: Path) -> DeviceRecord:
    """Return the device to be explained."""
    if not any(record.segments or record.trace for record in snapshot.devices):
        raise InputError(
            f"{path}: the snapshot is empty: nothing was allocated, and no history was recorded",
            "call torch.cuda.memory._record_memory_history() before the program begins; with"
            " backend:cudaMallocAsync PyTorch keeps no history",
        )
    return max(
        snapshot.devices,
        key=lambda record: (
            record.trace is not None and OOM in record.trace.action,
            record.reserved,
            len(record.trace or ()),
        ),
    )


class _Describer:
    """Requests in the user's terms."""

    def __init__(self, history: History, snapshot: Snapshot) -> None:
        self._history, self._stacks = history, snapshot.stacks.stacks
        self.has_stacks = len(self._stacks) > 1
        self.has_categories = any(history.categories)
        self._kept: dict[tuple[int, str], tuple[Any, ...]] = {}

    def _of(self, key: int) -> tuple[Any, ...]:
        stack, recorded = self._history.stacks[key], self._history.categories[key]
        if (stack, recorded) not in self._kept:
            frames = self._stacks[stack]
            operator = stacks.operator(frames)
            place = stacks.place(frames)
            kind = stacks.category(frames, recorded, self.has_stacks)
            description = Description(operator or "a block", operator=operator, source=place)
            where = stacks.written(frames) if self.has_stacks else stacks.NONE_RECORDED
            self._kept[stack, recorded] = kind, description, where
        return self._kept[stack, recorded]

    def malloc(self, key: int) -> Malloc:
        """Return the request of a key."""
        kind, description, _ = self._of(key)
        return Malloc(key, self._history.sizes[key], kind, label=description.name)

    def description(self, malloc: Malloc) -> Description:
        """Return a request's operator and line."""
        description: Description = self._of(malloc.key)[1]
        return description

    def place(self, key: int) -> str:
        """Return the place of a request in words."""
        return str(self._of(key)[2])


class _Recorded(Happened):
    name = "pytorch"
    frameworks = ("pytorch",)


def _estimate(
    name: str,
    snapshot: Snapshot,
    record: DeviceRecord,
    history: History,
    replayed: Replay,
    describe: _Describer,
    limit: ways.Limit | None,
) -> Estimate:
    """Return the estimate whose figures are the record's."""
    simulation = replayed.simulation
    if replayed.parted:
        simulation = replace(simulation, peak_reserved=max(simulation.peak_reserved, history.peak_held))
    trained = bool(snapshot.step_ends)
    prediction = Prediction(
        events=replayed.events,
        allocator=no_allocator,
        device_used=lambda simulation: simulation.peak_reserved,
        simulation=simulation,
        describe=describe.description,
    )
    capacity = simulation.peak_reserved if limit is None else max(limit.nbytes, simulation.peak_reserved)
    captured = Captured(
        target=name,
        framework="pytorch",
        batch=None,
        source=Source(Graph("pytorch", (), (), ()), prediction=prediction),
        profile=replace(load("h200"), name="the recorded GPU").of_memory(capacity),
        device_note="",
        naive=Naive(0, 0, 0, 0, 0, 1.0, 1, 0, "train" if trained else "infer"),
        notes=tuple(_notes(snapshot, record, history, replayed, describe)),
        caveats=(_parted(replayed),) if replayed.parted else (),
    )
    options = Options(mode="train") if trained else Options()
    estimate = assemble(captured, options, _Recorded()).estimate
    failed = estimate.out_of_memory
    if failed is not None and limit is not None:
        failed = replace(failed, limit_bytes=limit.nbytes)
    estimate = replace(
        estimate,
        out_of_memory=failed,
        engine=ENGINE,
        installed={},
        modelled={},
        options={},
        notes=captured.notes,
        step_seconds=None,
        device_assumed=limit is None,  # what the allocator had room for is not known
    )
    return estimate if describe.has_stacks or describe.has_categories else _of_unknown_kinds(estimate)


def _of_unknown_kinds(estimate: Estimate) -> Estimate:
    """Return the estimate without categories, where nothing says what blocks are for."""
    blocks, course = estimate.allocations, estimate.timeline
    return replace(
        estimate,
        breakdown={_UNKNOWN: estimate.peak_allocated} if estimate.peak_allocated else {},
        tensors=tuple(replace(row, category=_UNKNOWN) for row in estimate.tensors),
        marks=tuple(
            replace(mark, by_category={_UNKNOWN: sum(mark.by_category.values())} if mark.by_category else {})
            for mark in estimate.marks
        ),
        allocations=replace(
            blocks, origins=tuple(replace(origin, category=_UNKNOWN) for origin in blocks.origins)
        ),
        timeline=replace(course, category=tuple(_UNKNOWN if name else "" for name in course.category)),
    )


def _parted(replayed: Replay) -> str:
    if not replayed.parted:
        return ""
    return (
        f"the replay parts from the record at {replayed.parted:,} places ({replayed.first}): reserved memory"
        " is"
        " the record's, allocated memory may be off, and so may other settings' figures"
    )


def _notes(
    snapshot: Snapshot, record: DeviceRecord, history: History, replayed: Replay, describe: _Describer
) -> list[str]:
    """Return what a reader should know of the figures."""
    count = len(record.trace or ())
    notes = [*snapshot.notes]
    if snapshot.conf:
        notes.append(f"recorded with PYTORCH_ALLOC_CONF={snapshot.conf}")
    if not count:
        notes.append(
            "no history was recorded, only what was held at the end: call"
            " torch.cuda.memory._record_memory_history() first for a course, a peak and growth"
        )
    elif not replayed.parted:
        notes.append(
            f"replayed to the byte: all {count:,} entries of the history, and every block at its end"
        )
    if count and history.seeds:
        held = sum(state.size for state in history.seeds)
        note = (
            f"the history begins later than the program (a ring buffer keeps its last entries): {held:,}"
            " bytes held"
            f" then, in {len(history.seeds):,} segments, are found by going back from the end; a peak before"
            " that is"
            " not seen"
        )
        if history.unsure_bytes:
            note += f"; how {history.unsure_bytes:,} bytes of them lay between blocks is not known"
        notes.append(note)
    if history.gaps:
        notes.append(f"the recording paused: {history.gaps:,} blocks went back while it did")
    if len(snapshot.devices) > 1:
        notes.append(f"{len(snapshot.devices)} devices are recorded; this is device {record.number}")
    if not describe.has_stacks:
        notes.append(
            "no stacks were recorded: who holds what is not known, and a call of empty_cache just before a"
            " new segment may count as a request that found no room, so that other settings seem to hold more"
        )
    elif not describe.has_categories:
        notes.append(
            "categories are inferred from stacks (optimizer, Module._apply, libraries, autograd's thread)"
        )
    notes.append("what the process held beside its allocator (context, libraries) is in no snapshot")
    return notes


def _holders(replayed: Replay, describe: _Describer) -> tuple[Holding, ...]:
    """Return the places whose blocks were in use at the peak, largest first."""
    nbytes, counts = Counter[str](), Counter[str]()
    for alive in replayed.simulation.alive:
        place = describe.place(alive.malloc.key)
        nbytes[place] += alive.block_bytes
        counts[place] += 1
    return tuple(Holding(place, held, counts[place]) for place, held in nbytes.most_common(_HOLDERS))


def _failed_request(failed: Failed, settings: Any, describe: _Describer) -> FailedRequest:
    """Return a request that found no room, and what was free then, by pool."""
    wanted_small = failed.entry.nbytes <= SMALL_BYTES
    pools: dict[tuple[int, bool], list[int]] = {}
    for nbytes, lane, small in failed.holes:
        pools.setdefault((lane, small), []).append(nbytes)
    holes = [
        Hole(
            f"{'small' if small else 'large'}{f', pool {lane}' if lane else ''}",
            len(sizes),
            sum(sizes),
            max(sizes),
            lane == failed.entry.lane and small == wanted_small,
        )
        for (lane, small), sizes in pools.items()
    ]
    wanted = segment_bytes(failed.entry.nbytes, settings)
    return FailedRequest(
        failed.entry.nbytes,
        wanted,
        failed.allocated,
        failed.reserved,
        failed.free_bytes,
        failed.free_bytes >= wanted,
        describe.place(failed.entry.key),
        tuple(sorted(holes, key=lambda hole: (not hole.serves, -hole.nbytes))),
    )
