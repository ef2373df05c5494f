"""From a captured program to the frozen `Analysis`: the runtime is asked, its requests are simulated, the
peak is attributed.

Everything a reader sees is decided here once; nothing is recomputed later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analyzer import extensions, releases
from analyzer.analysis import Analysis
from analyzer.devices import DeviceProfile, stands_in
from analyzer.errors import UnknownOperatorError
from analyzer.graph.model import Graph, Run
from analyzer.liveness.naive import Naive
from analyzer.notes import CUDNN_UNASKED
from analyzer.options import Options
from analyzer.pipeline.attribution import attributed, sums, unattributed
from analyzer.results.estimate import AfterRun, Certainty, Estimate, Room
from analyzer.results.step_time import StepTime
from analyzer.runtimes.base import UNLIMITED, Limit, Prediction, Runtime, Source
from analyzer.runtimes.bounded import bounded, doubt_of, most_in_doubt
from analyzer.runtimes.convolutions import UNASKED, is_unasked, notes_on_convolutions
from analyzer.runtimes.events import Malloc
from analyzer.runtimes.ranges import (
    Range,
    beside_range,
    bounded_ranges,
    kept_and_spare,
    may_be_off,
    orders_range,
    placed_ranges,
    surely_runs,
    under_pressure,
)
from analyzer.runtimes.timeline import Failure, Simulation, simulate
from analyzer.runtimes.variants import Variants


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


def assemble(
    captured: Captured,
    options: Options,
    runtime: Runtime,
    limit: Limit | None = None,
    prediction: Prediction | None = None,
) -> Analysis:
    """Predict and simulate the capture's requests, and assemble the estimate. Raises AnalyzerError.

    limit: bytes the allocator may hold, and whether it is the device that has no more (`Prediction.limited`);
    the figures are then those under it, until where the program gets. UNLIMITED: with room, whatever the
    device has. None: what the device, or the budget, leaves it (`_on_device`).
    prediction: the runtime's, if that is known already; in plain numbers (`Prediction.plain`) the estimate is
    without what lies where, without ranges and a step's time, and a request without memory is not described.
    """
    graph = captured.source.graph
    prediction = prediction or _predicted(captured, options, runtime)
    profile, device_note = _device_left(captured, prediction)
    assumed = stands_in(options.device)
    device_bytes = None if assumed else profile.usable_bytes
    variants = Variants(prediction)
    outcome = _outcome(variants, limit, (options.budget_bytes, device_bytes))
    simulation = outcome.simulation
    device_used = prediction.device_used(simulation)
    capacity_bytes = device_bytes if limit is None else None
    assumptions = _assumed_figures(captured.profile, variants, outcome, device_used, capacity_bytes)
    kept = kept_and_spare(captured.profile, profile.usable_bytes)
    failure, modelled = outcome.failure, runtime.modelled(prediction, profile)
    where = unattributed(failure) if prediction.plain else attributed(graph, prediction, simulation, failure)
    installed = releases.others_installed(modelled)
    notes = _notes(captured, prediction, profile, simulation, assumptions, modelled, installed)
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
            kept,
            any(map(CUDNN_UNASKED.has, notes)),
            _runs_at_worst(variants, outcome, assumptions, device_used, profile.usable_bytes - kept[0]),
        ),
        notes=notes,
        refused=(*captured.refused, *prediction.refused),
        incomplete=captured.incomplete,
        caveats=(*captured.caveats, *prediction.caveats),
        unreached=captured.unreached,
        with_room=outcome.with_room or (Room(*prediction.with_room) if prediction.with_room else None),
        doubt=outcome.doubt or prediction.doubt,
        budget_bytes=options.budget_bytes,
        device_assumed=assumed,
        modelled=modelled,
        installed=installed,
        **where,
        step_seconds=None if prediction.plain else step_seconds(captured, runtime),
        after_runs=tuple(AfterRun(*row) for row in prediction.after_runs),
    )
    return Analysis(options, profile, graph, prediction, simulation, estimate)


def step_seconds(captured: Captured, runtime: Runtime) -> StepTime | None:
    """Return the time of a step, for PyTorch's runtime and a complete program, where the extension that knows
    it is installed; else None."""
    if runtime.name != "pytorch" or captured.incomplete is not None:
        return None
    timing = extensions.optional("extensions", "timing")  # what an ONNX file's analysis needs nothing of
    time: StepTime | None = timing and timing.step_time(captured.source.graph, captured.profile)
    return time


def operators_timed(graph: Graph) -> frozenset[int]:
    """Return the operators of a graph whose sizes decide the time of a step."""
    timing = extensions.optional("extensions", "timing")
    moments = timing.last_step(graph) if timing and graph.operators else []
    return frozenset(moment.operator for moment in moments if isinstance(moment, Run))


# Why the allocator may hold more or less than the figure.
_UNASKED = "workspaces that cuDNN was not asked about"
_CHOICES = "workspaces that were measured on another GPU"
_ORDERS = "the order in which threads ask"
_PLACES = "where the driver puts memory"
_PRESSURE = "how much the GPU has left, and so how much freed memory is given back"
_ORDERS_NOTE = "{}; in others {} MiB are reserved"
_PLACES_NOTE = (
    "of two free blocks of one size the one at the lower address serves; where the driver puts memory"
    " otherwise, {}"
)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The simulation behind the figures, and the verdict. failure: the request without memory. with_room,
    doubt: as in `Estimate`. capacity_bytes: what the process may take in all; None: that is not said."""

    simulation: Simulation
    failure: Failure | None
    with_room: Room | None = None
    doubt: str = ""
    capacity_bytes: int | None = None


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


def _device_left(captured: Captured, prediction: Prediction) -> tuple[DeviceProfile, str]:
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
    assumed: _AssumedFigures,
    modelled: Mapping[str, str],
    installed: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the notes of all stages, without duplicates."""
    notes = (
        *prediction.notes,
        *notes_on_convolutions(profile, prediction.events),
        *captured.notes,
        *captured.source.graph.notes,
        *assumed.notes,
        *_refusals(simulation),
        *releases.notes(modelled, installed),
    )
    return tuple(dict.fromkeys(notes))


def _on_device(variants: Variants, capacity_bytes: int | None) -> _Outcome:
    """Return the outcome with room; beyond the capacity, as it runs there if it does.

    Memory beside the allocator (context, libraries) is the same either way.
    """
    prediction = variants.prediction
    if prediction.plain is not None:
        free = variants.simulated()
    else:
        free = prediction.simulation or simulate(prediction.events, prediction.allocator(), places=True)
    used = prediction.device_used(free)
    if capacity_bytes is None or used <= capacity_bytes or free.failure or prediction.limited is None:
        # A program that ran on the device already may have gone on to cuDNN's next plans there.
        doubt = "" if free.failure else doubt_of(prediction.events, free)
        return _Outcome(free, free.failure, None, doubt, capacity_bytes)
    simulation, doubt = bounded(variants, Limit(max(capacity_bytes - (used - free.peak_reserved), 0), True))
    if simulation.failure is not None or doubt:
        return _Outcome(free, simulation.failure, None, doubt)
    room = Room(free.peak_allocated, free.peak_reserved, used)
    return _Outcome(simulation, None, room, capacity_bytes=capacity_bytes)


@dataclass(frozen=True, slots=True)
class _AssumedFigures:
    """Figures nobody measured here: name -> bytes, and the ranges they allow (as in `Certainty`)."""

    by_name: Mapping[str, int] = field(default_factory=dict)
    allocated: Range | None = None
    reserved: Range | None = None
    beside: Range | None = None
    notes: tuple[str, ...] = ()
    causes: Mapping[str, Range] = field(default_factory=dict)


def _in_mib(least: int, most: int) -> str:
    """Return a range in MiB, or the one figure where both ends are the same MiB."""
    ends = dict.fromkeys(f"{nbytes / 2**20:,.0f}" for nbytes in (least, most))
    return " to ".join(ends)


def _assumed_figures(
    profile: DeviceProfile,
    variants: Variants,
    outcome: _Outcome,
    device_used: int,
    capacity_bytes: int | None,
) -> _AssumedFigures:
    """Return the assumed figures. capacity_bytes: memory of the simulation; None: unlimited."""
    simulation, prediction = outcome.simulation, variants.prediction
    pages = prediction.page_bytes
    beside = max(device_used - simulation.peak_reserved - pages, 0)
    other = _other_arrangements(variants, simulation) if outcome.with_room is None else _Arrangements()
    notes, in_use, ends = other.notes, other.allocated, other.reserved
    causes = {**other.causes}
    workspaces = _UNASKED if is_unasked(prediction.events) else _CHOICES
    if profile.measured:
        if not prediction.plain and any(map(_is_off, variants.requests)):
            allocated, held = bounded_ranges(variants, simulation, measured=True)
            in_use, ends = in_use + allocated, ends + held
            if outcome.capacity_bytes is not None and outcome.failure is None:
                ends = _on_this_device(variants, ends, outcome.capacity_bytes - beside)
            causes[workspaces] = held
        known = prediction.beside_range
        around = None if known is None else (known[0] + pages, known[1] + pages)
        return _AssumedFigures({}, _span(in_use), _span(ends), around, notes, _widest(causes, _span(ends)))
    parts = {
        "context and library code": beside,
        "libraries' choices": sum(
            alive.block_bytes for alive in simulation.alive if may_be_off(alive.malloc)
        ),
    }
    named = {name: nbytes for name, nbytes in parts.items() if nbytes}
    low, high = beside_range(profile, beside)
    around = low + pages, high + pages
    if prediction.plain:
        return _AssumedFigures(named, None, None, around, notes)
    allocated, held = bounded_ranges(variants, simulation)
    in_use, ends = in_use + allocated, ends + held
    if outcome.failure is None and (most := most_in_doubt(variants)):
        in_use, ends, held = (*in_use, most[0]), (*ends, most[1]), (held[0], max(held[1], most[1]))
    causes[workspaces] = held
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
        causes[_PRESSURE] = min(pressed, default=0), max(pressed, default=0)
    return _AssumedFigures(named, _span(in_use), reserved, around, notes, _widest(causes, reserved))


def _runs_at_worst(
    variants: Variants, outcome: _Outcome, assumed: _AssumedFigures, device_used: int, least_bytes: int
) -> bool:
    """Return whether a program surely runs with the least that driver and context may leave, although it may
    take more with room. least_bytes: of the device; a budget may be less."""
    unlimited = outcome.capacity_bytes is None or variants.prediction.plain is not None
    if unlimited or outcome.failure is not None or outcome.doubt:
        return False
    allowed = min(outcome.capacity_bytes or 0, least_bytes)
    reserved = outcome.simulation.peak_reserved
    beside = max((assumed.beside or (0, 0))[1], device_used - reserved)
    if max((assumed.reserved or (0, 0))[1], reserved) + beside <= allowed:
        return False
    return surely_runs(variants, Limit(allowed - beside, True))


def _widest(causes: Mapping[str, Range], reserved: Range | None) -> dict[str, Range]:
    """Return the causes that make a difference, within the whole range, the widest first."""
    if reserved is None:
        return {}
    least, most = reserved
    within = {cause: (max(low, least), min(high, most)) for cause, (low, high) in causes.items()}
    wide = [(cause, ends) for cause, ends in within.items() if ends[0] < ends[1]]
    return dict(sorted(wide, key=lambda entry: entry[1][0] - entry[1][1]))


def _span(ends: Sequence[int]) -> Range | None:
    """Return the least and the most of the figures, None of none."""
    return (min(ends), max(ends)) if ends else None


def _is_off(request: Malloc) -> bool:
    """Return whether a request is between bounds on any GPU."""
    return request.basis == "bounded" and bool(request.assumed or request.assumed_less)


def _on_this_device(variants: Variants, ends: tuple[int, ...], room_bytes: int) -> tuple[int, ...]:
    """Return reserved bytes, at most what the device has room for where the program surely runs in it: the
    allocator holds what there is."""
    if max(ends) <= room_bytes or variants.prediction.limited is None:
        return ends
    simulation, doubt = bounded(variants, Limit(max(room_bytes, 0), True))
    return ends if simulation.failure or doubt else tuple(min(end, room_bytes) for end in ends)


@dataclass(frozen=True, slots=True)
class _Arrangements:
    """Peaks where requests come in other orders or segments lie elsewhere: notes, and bytes allocated and
    reserved there."""

    notes: tuple[str, ...] = ()
    allocated: tuple[int, ...] = ()
    reserved: tuple[int, ...] = ()
    causes: Mapping[str, Range] = field(default_factory=dict)


def _other_arrangements(variants: Variants, simulation: Simulation) -> _Arrangements:
    if variants.prediction.ranges is not None:
        return _Arrangements((), *variants.prediction.ranges)
    orders = orders_range(variants.prediction, simulation)
    notes = [_ORDERS_NOTE.format(variants.prediction.order, _in_mib(*orders))] if orders else []
    placed = placed_ranges(variants, simulation)
    named = [] if placed is None else zip(placed, ("allocated", "reserved"), strict=True)
    parts = [f"{_in_mib(least, most)} MiB are {name}" for (least, most), name in named if least < most]
    if parts:
        notes.append(_PLACES_NOTE.format(" and ".join(parts)))
    allocated, reserved = (side if side[0] < side[1] else () for side in placed or ((0, 0), (0, 0)))
    causes = {_ORDERS: orders or (0, 0), _PLACES: placed[1] if placed else (0, 0)}
    return _Arrangements(tuple(notes), allocated, (*(orders or ()), *reserved), causes)


def _certainty(
    simulation: Simulation,
    unknown: Mapping[str, int],
    assumed: _AssumedFigures,
    kept_and_spare: Range,
    can_be_asked: bool,
    at_worst: bool,
) -> Certainty:
    """Return the bytes at the peak by how they are known, and by rule. can_be_asked: of cuDNN, once it is
    installed."""
    by_rule = {
        basis: sums(
            (alive.malloc.rule, alive.block_bytes)
            for alive in simulation.alive
            if alive.block_bytes and alive.malloc.basis == basis
        )
        for basis in ("exact", "measured", "bounded")
    }
    exact, measured, bounded = (sum(sums.values()) for sums in by_rule.values())
    span = assumed.causes.get(_UNASKED)
    unasked: dict[str, tuple[int, int]] = {UNASKED: span} if can_be_asked and span is not None else {}
    figures = (assumed.by_name, assumed.reserved, assumed.beside, *kept_and_spare, assumed.allocated)
    return Certainty(
        exact, measured, bounded, dict(unknown), by_rule, *figures, assumed.causes, unasked, at_worst
    )


def _refusals(simulation: Simulation) -> tuple[str, ...]:
    count = len(simulation.refused)
    if not count:
        return ()
    return (
        f"{count} convolution{'s have' if count > 1 else ' has'} no room for the workspace of cuDNN's"
        " first plan: PyTorch takes the next one that fits, which is slower; counted with the workspace"
        " of that one",
    )
