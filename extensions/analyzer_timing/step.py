"""A step of a captured program simulated: the host launches operators, the streams run them, each as soon as
it can.

1. The last iteration is played twice, one after the other; a step is what the second adds. So the end of one
   runs beside the beginning of the next, as it does in a loop.
2. A kernel begins when it has been handed over and the one before it on its stream is done, and `_GAP` later
   than that.
3. The host waits where the program asks for a value (`.item()`, `nonzero`), where it waits for a stream,
   where it copies from or to pageable memory, and where `_QUEUE` launches are outstanding. A copy from
   pageable memory begins when its first part has been copied to the driver's buffer (`traffic.from_host`).
4. **low** and **high** are the step played with all kernels and the host as fast, and as slow, as they may
   be: kernels of one kind by how far one is off where it was left out of the table, divided by the root of
   how many there are, and `_TOGETHER` for what all have in common; other GPUs by `_ELSEWHERE` more. Copies
   from pageable memory are off together: their time depends on the process (where its memory lies, which
   part the host's caches hold). 38.5 MB took 6.1 and 6.2 ms in one process, 4.0 to 6.7 ms in different ones
   of one machine (`pageable.json.gz`, `compiled.json.gz`).

Source: `_GAP`, of 500 kernels in a queue that was full before (`host.json.gz`, "gap"). When the host waits:
CUDA C++ Programming Guide, "API synchronization behavior"; the queue's length was measured on an H100.
Not modelled: collectives (a program with them has no step time), several streams that share a device. A
compiled program's kernels are known where it is emulated (`analyzer_emulation/step.py`, `compiled.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, sqrt

from analyzer.devices import DeviceProfile
from analyzer.graph.model import Graph, Moment, Operator, Phase, Run, StreamWait, tensors_in
from analyzer.results.step_time import StepTime
from analyzer_timing import compiled, host, table, traffic
from analyzer_timing.dispatch import plain_name, works_of
from analyzer_timing.rates import MEASURED, Rates, rates_of
from analyzer_timing.residency import Residency

_GAP, _QUEUE = 1.0e-6, 1000
_TOGETHER, _ELSEWHERE = 0.08, 0.25
_ASKS = frozenset(
    {
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "is_nonzero",
        "equal",
    }
)
_TOGETHER_OFF = frozenset({traffic.HOST_COPY})
_LISTS = ("_foreach", "_fused_a", "_fused_s")
_COMPUTES = frozenset({"mm", "bmm", "grouped", "conv", "attention", "recurrent"})
# Additional time of the smallest kernels with an empty cache (1.1 and 1.4 us): their code was not there, as
# after other kernels.
_CODE = 0.35e-6
_ROUNDS = 2
# Kernels of a recurrent layer for each of its steps, and the share of their time of the busier of cuDNN's
# two streams.
_EACH_STEP, _BUSIER = 2.7, 0.5


@dataclass(frozen=True, slots=True)
class Launch:
    """An operator in time: what it takes of the host, and of the device, on which stream; kernels: how many;
    gap: between them.
    waits: the host goes on when it is done. kinds: (category, seconds, spread, known) of its works. staged:
    what the host takes before the device can begin."""

    operator: Operator
    host: float
    device: float
    kernels: float
    waits: bool
    kinds: tuple[tuple[str, float, float, bool], ...] = ()
    gap: float = _GAP
    staged: float = 0.0


def step_time(graph: Graph, profile: DeviceProfile) -> StepTime | None:
    """Return the time of a step of a PyTorch program on a GPU; None without operators, with several ranks, or
    if the GPU's speed is unknown."""
    rates = rates_of(profile)
    if rates is None or graph.framework != "pytorch" or graph.communicators or not graph.operators:
        return None
    moments = last_step(graph)
    launches = launches_of(graph, moments, rates, profile.host_factor or 1.0)
    kinds = [kind for launch in launches.values() for kind in launch.kinds]
    if not kinds:
        return None
    slower, faster = _spreads(kinds, rates.measured)
    seconds = _played(moments, launches, 1.0, 1.0)
    least, most = host.RANGE if profile.host_factor else host.UNMEASURED
    low = min(_played(moments, launches, faster, least), seconds)
    high = max(_played(moments, launches, slower, most), seconds)
    handed = sum(launch.host for launch in launches.values())
    busy = _busiest_stream_seconds(launches)
    on = (rates.beside or MEASURED).upper()
    source = f"measured on {on}" if rates.measured else f"scaled from {on} by {profile.name}'s data sheet"
    return StepTime(
        seconds=seconds,
        low=low,
        high=high,
        device_seconds=busy,
        device_range=(busy * faster, busy * slower),
        host_seconds=handed,
        host_range=(handed * least, handed * most),
        launches=round(sum(launch.kernels for launch in launches.values())),
        bound=_bound(launches, handed > busy),
        device=profile.name,
        source=source,
        by_phase=_sums((launch.operator.phase.value, launch.device) for launch in launches.values()),
        by_module=_sums((launch.operator.module, launch.device) for launch in launches.values()),
        by_line=_sums((launch.operator.source, launch.device) for launch in launches.values()),
        by_kind=_sums((category.partition(":")[0], time) for category, time, _, _ in kinds),
        float32_seconds=sum(time for category, time, _, _ in kinds if _in_float32(category)),
        unknown=_sums((category, time / busy) for category, time, _, is_known in kinds if not is_known),
    )


def _in_float32(category: str) -> bool:
    """Return whether kernels compute products in float32, on ordinary cores ("tf32": on tensor cores)."""
    kind, *rest = category.split(":")
    return kind in _COMPUTES and "float32" in rest


def operator_seconds(
    graph: Graph, moments: Sequence[Moment], profile: DeviceProfile
) -> dict[int, tuple[float, float]] | None:
    """Return (host, device) seconds of each operator by index; None as `step_time`."""
    rates = rates_of(profile)
    if rates is None or graph.framework != "pytorch" or graph.communicators:
        return None
    launches = launches_of(graph, moments, rates, profile.host_factor or 1.0)
    return {index: (launch.host, launch.device) for index, launch in launches.items()}


def device_seconds(graph: Graph, profile: DeviceProfile) -> float | None:
    """Return what a graph's operators keep the device busy, one after the other; None if its speed is
    unknown."""
    rates = rates_of(profile)
    if rates is None:
        return None
    launches = launches_of(graph, graph.program, rates, 1.0).values()
    return sum(launch.device + launch.gap * launch.kernels for launch in launches)


def last_step(graph: Graph) -> list[Moment]:
    """Return the moments of the last whole iteration: of the last optimizer step, if there is one."""
    operators = graph.operators
    trained = (operator.step for operator in operators if operator.phase is Phase.OPTIMIZER)
    last = max(trained, default=max(operator.step for operator in operators))
    places = [
        place
        for place, moment in enumerate(graph.program)
        if isinstance(moment, Run) and operators[moment.operator].step == last
    ]
    return list(graph.program[places[0] : places[-1] + 1]) if places else []


def launches_of(graph: Graph, moments: Sequence[Moment], rates: Rates, slow: float) -> dict[int, Launch]:
    """Return the work of every operator of the step, on a host so many times as slow; the cache holds nothing
    of the previous iteration."""
    operators = graph.operators
    chosen = [operators[moment.operator] for moment in moments if isinstance(moment, Run)]
    residency = Residency(graph.storages, rates.cache_bytes)
    works = [works_of(operator, graph.storages, rates) for operator in chosen]
    away = [residency.missing(operator) for operator in chosen]
    entries = iter(table.seconds_of([work for group in works for work in group], rates.beside))
    by_operator: dict[int, Launch] = {}
    before: Operator | None = None
    for operator, group, missing in zip(chosen, works, away, strict=True):
        name = plain_name(operator)
        device = kernels = 0.0
        kinds = []
        for work in group:
            entry = next(entries)
            more = max(entry.cold - entry.warm, 0.0)  # a cache that was only read is clean, as in no step
            time = entry.warm + max(more * missing, min(more, _CODE))
            time, count = (
                (time * _BUSIER, _EACH_STEP * work.repeats) if work.repeats else (time, entry.kernels)
            )
            device, kernels = device + time, kernels + count
            kinds.append((work.kind or work.category, time, max(entry.spread, work.spread), entry.known))
        waits = name in _ASKS or any(work.category == traffic.HOST_COPY for work in group)
        staged = sum(work.staged for work in group) * slow
        tensors = len(list(tensors_in(operator.arguments[0]))) if name.startswith(_LISTS) else 0
        handed = compiled.seconds_of(operator)
        if handed is None:
            handed = host.seconds_of(operator, name, kernels, tensors, before)
        gap = compiled.GRAPH_GAP if compiled.REPLAYED in operator.settings else _GAP
        by_operator[operator.index] = Launch(
            operator, handed * slow, device, kernels, waits, tuple(kinds), gap, staged
        )
        before = operator
    return by_operator


def _played(moments: list[Moment], launches: dict[int, Launch], device: float, slow: float) -> float:
    """Seconds of a step, with the device's times and the host's so many times as long."""
    clock, ends = 0.0, []
    free: dict[int, float] = defaultdict(float)
    queue: deque[float] = deque()
    for _ in range(_ROUNDS):
        for moment in moments:
            if isinstance(moment, StreamWait) and moment.by is None:
                clock = max(
                    clock,
                    free[moment.stream] if moment.stream is not None else max(free.values(), default=0.0),
                )
            if not isinstance(moment, Run):
                continue
            launch = launches[moment.operator]
            clock += launch.host * slow
            stream = launch.operator.stream
            if launch.device:
                begin = max(clock + launch.staged * slow, free[stream])
                free[stream] = begin + launch.device * device + launch.gap * launch.kernels
                if launch.host:  # a graph is one launch, not its nodes
                    queue.append(free[stream])
                if len(queue) > _QUEUE:
                    clock = max(clock, queue.popleft())
            if launch.waits:
                clock = max(clock, free[stream])
        ends.append(max(clock, *free.values()) if free else clock)
    return ends[-1] - ends[-2]


def _busiest_stream_seconds(launches: dict[int, Launch]) -> float:
    streams: dict[int, float] = defaultdict(float)
    for launch in launches.values():
        streams[launch.operator.stream] += launch.device
    return max(streams.values())


def _bound(launches: dict[int, Launch], by_host: bool) -> str:
    """Return "host" if launching takes longer than the device is busy, else what the kernels mostly do."""
    if by_host:
        return "host"
    computing = moving = 0.0
    for launch in launches.values():
        for category, time, _, _ in launch.kinds:
            if category.partition(":")[0] in _COMPUTES:
                computing += time
            else:
                moving += time
    return "compute" if computing > moving else "memory"


def _spreads(kinds: list[tuple[str, float, float, bool]], measured: bool) -> tuple[float, float]:
    """Return the factors by which the device may take longer, and shorter."""
    total = sum(time for _, time, _, _ in kinds)
    squares: dict[str, float] = defaultdict(float)
    counts = Counter[str]()
    for category, time, spread, is_known in kinds:
        squares[category] += time * spread * (1 if is_known else 2)
        counts[category] += 1
    alone = {category: 1 if category in _TOGETHER_OFF else count for category, count in counts.items()}
    apart = sqrt(sum((value / sqrt(alone[category])) ** 2 for category, value in squares.items())) / total
    off = _TOGETHER + 1.3 * apart + (0.0 if measured else _ELSEWHERE)
    return exp(off), exp(-off)


def _sums(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return sums by name, largest first, without zeros."""
    sums: dict[str, float] = defaultdict(float)
    for name, value in pairs:
        sums[name] += value
    return {name: value for name, value in sorted(sums.items(), key=lambda entry: -entry[1]) if value}
