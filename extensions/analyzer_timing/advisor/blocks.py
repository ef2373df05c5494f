"""Gain and cost of recomputing each of a model's blocks: the bytes freed, when, and the time. Read off one
analysed program; the input of the knapsack.

1. The forward and backward pass of the micro-batch with the most live bytes is read.
2. Of what its forward pass keeps, a block frees what is made in it and read by its backward pass alone, less
   what must be kept to compute it again (`liveness/recomputation.py`: a minimum cut of the graph's view).
   This is not there from the block's last forward operator to its first backward operator.
3. When the block's backward pass begins, all it frees is there again, and its forward pass's temporary bytes
   (the most that was alive while it ran, less what was when it ended).
4. Its forward operators run again, up to the last whose result the backward pass reads
   (`torch.utils.checkpoint` stops there). Its cost is their time: the device's, or the host's where the host
   bounds the step, then with what checkpointing takes of it; operations where no time is known.
5. Between two of these moments nothing changes: one row of the knapsack is the most that is alive in between.
   Moments outside of passes (the optimizer's) are one row, which no choice changes.

Source: `torch/utils/checkpoint.py` (non-reentrant: hooks that drop what is saved and compute it again when it
is first asked for).

Not modelled: the allocator. A choice that fits by these rows is analysed before it is proposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from analyzer.analysis import Analysis
from analyzer.graph import Graph, Phase, Run
from analyzer.liveness.lifetimes import forward_ends, lifetimes, live_bytes, saved_at
from analyzer.planning.checkpoints import is_inside, recomputed
from analyzer.planning.flops import flops_of
from analyzer_timing.advisor.knapsack import Row
from analyzer_timing.host import checkpointing
from analyzer_timing.step import operator_seconds

_PASSES = frozenset({Phase.FORWARD, Phase.LOSS, Phase.BACKWARD})


@dataclass(frozen=True, slots=True)
class Block:
    """A module that may be computed again. freed_bytes: no longer kept. first, last: the moments between
    which they are not there. again_bytes: held besides while it runs again. seconds: what that takes, of one
    micro-batch; None where no time is known. operations: floating-point operations that run again."""

    path: str
    freed_bytes: int
    first: int
    last: int
    again_bytes: int
    seconds: float | None
    operations: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks that free something, and the rows of the knapsack: items are places in `blocks`."""

    blocks: tuple[Block, ...]
    rows: tuple[Row, ...]

    @property
    def costs(self) -> tuple[float, ...]:
        """Seconds of each, or operations where no time is known."""
        timed = all(block.seconds is not None for block in self.blocks)
        return tuple((block.seconds or 0.0) if timed else float(block.operations) for block in self.blocks)

    @property
    def peak_bytes(self) -> int:
        """Peak of live bytes without any choice."""
        return max((row.live_bytes for row in self.rows), default=0)


def blocks_of(analysis: Analysis, paths: Sequence[str]) -> Blocks:
    """Return what recomputing each of these modules would free and cost, for an analysed training program."""
    graph = analysis.graph
    curve = live_bytes(graph, lifetimes(graph, "eager"))
    ends = forward_ends(graph)
    if not ends:
        return Blocks((), ())
    end = max(ends, key=lambda position: curve[position])
    first, last = _pass_around(graph, end)
    moments = graph.program[first : last + 1]
    saved = frozenset(saved_at(graph, end))
    times = operator_seconds(graph, moments, analysis.profile)
    step = analysis.estimate.step_seconds
    host = step is not None and step.bound == "host"
    blocks = [
        block
        for path in paths
        if (block := _block(graph, curve, path, (first, end, last), saved, times, host)) is not None
    ]
    return Blocks(tuple(blocks), tuple(_rows(graph, curve, blocks, (first, last))))


def _pass_around(graph: Graph, end: int) -> tuple[int, int]:
    """Return the first and last moment of the pass whose forward ends at a moment."""

    def phase(position: int) -> Phase | None:
        moment = graph.program[position]
        return graph.operators[moment.operator].phase if isinstance(moment, Run) else None

    first = end
    while first > 0 and phase(first - 1) in (None, Phase.FORWARD, Phase.LOSS):
        first -= 1
    last = end
    while last + 1 < len(graph.program) and phase(last + 1) in (None, Phase.BACKWARD):
        last += 1
    return first, last


def _block(
    graph: Graph,
    curve: Sequence[int],
    path: str,
    around: tuple[int, int, int],
    saved: frozenset[int],
    times: dict[int, tuple[float, float]] | None,
    host: bool,
) -> Block | None:
    """Return one block's gain and cost; None if it frees nothing or does not run."""
    first, end, last = around
    ran = [
        (position, moment.operator)
        for position in range(first, last + 1)
        if isinstance(moment := graph.program[position], Run)
        and is_inside(graph.operators[moment.operator], path)
    ]
    forward = [entry for entry in ran if entry[0] <= end]
    backward = [entry for entry in ran if entry[0] > end]
    if not forward or not backward:
        return None
    recomputation = recomputed(graph, path, saved)
    freed = recomputation.saved_bytes - recomputation.kept_bytes
    if freed <= 0:
        return None
    until = max(recomputation.operators, default=-1)
    again = [index for _, index in forward if index <= until]
    held = max(curve[position] for position in range(forward[0][0], forward[-1][0] + 1))
    return Block(
        path,
        freed,
        forward[-1][0] + 1,
        backward[0][0] - 1,
        max(held - curve[forward[-1][0]], 0),
        None if times is None else _seconds(graph, times, again, [index for _, index in backward], host),
        sum(flops_of(graph.operators[index]) for index in again),
    )


def _seconds(
    graph: Graph, times: dict[int, tuple[float, float]], again: list[int], backward: list[int], host: bool
) -> float:
    """Return the time of a block's second run, of the device or of the host. On the host, checkpointing calls
    its hooks three times for each tensor that backward uses and did not make."""
    if not host:
        return sum(times[index][1] for index in again)
    made = {tensor.storage for index in backward for tensor in filter(None, graph.operators[index].outputs)}
    used = sum(tensor.storage not in made for index in backward for tensor in graph.operators[index].inputs)
    return sum(times[index][0] for index in again) + checkpointing(2, 3 * used)


def _rows(graph: Graph, curve: Sequence[int], blocks: Sequence[Block], around: tuple[int, int]) -> list[Row]:
    """Return the knapsack's rows: live bytes at each moment, and what each block changes there."""
    first, last = around
    edges = {first, last + 1}
    for block in blocks:
        edges.update((block.first, block.last + 1))
    borders = sorted(edges)
    rows = [Row(max(curve[begin:after]), _changes_at(blocks, begin)) for begin, after in pairwise(borders)]
    for place, block in enumerate(blocks):
        begins = block.last + 1
        rows.append(Row(curve[begins], {**_changes_at(blocks, begins), place: block.again_bytes}))
    besides, phase = 0, None
    for position, moment in enumerate(graph.program):
        if isinstance(moment, Run):
            phase = graph.operators[moment.operator].phase
        if phase not in _PASSES:
            besides = max(besides, curve[position])
    return [*rows, Row(besides, {})]


def _changes_at(blocks: Sequence[Block], position: int) -> dict[int, int]:
    """Return the bytes by which each block's choice changes a moment."""
    return {
        place: -block.freed_bytes
        for place, block in enumerate(blocks)
        if block.first <= position <= block.last
    }
