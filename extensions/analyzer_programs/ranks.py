"""Every rank of a job, each in a process of its own; the one that needs most stands for the job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import pairwise

from analyzer.options import Options
from analyzer.ranks import Rank, calls_of
from analyzer.results.estimate import Estimate, RankCourse
from analyzer_programs import order
from analyzer_programs.peers import Peers, Work
from analyzer_sandbox import apart

_SHOWN = 16
# Points of a rank's course: as many as a page is wide.
_PARTS = 500


def every_rank(
    script: str,
    args: Sequence[str],
    options: Options,
    until: str | int,
    job: Rank,
    progress: Callable[[str], None] | None = None,
) -> Estimate:
    """Return the estimate of the rank that needs most (or runs out first), with notes on all.

    job: any rank of the job. Raises AnalyzerError, of the first rank that cannot be followed, or where ranks
    would wait for each other for ever.
    """
    with apart() as box, Peers(Work(script, tuple(args), options, {}, until, job), quiet=False) as ranks:
        estimates = ranks.follow_all(progress)
        notes = box.notes()
        messages = {rank: ranks.received(calls_of(rank)) for rank in range(job.world_size)}
    ended = until == "end" and not any(rank.out_of_memory or rank.incomplete for rank in estimates)
    order.check({rank: order.read(calls) for rank, calls in messages.items() if calls is not None}, ended)
    worst = _worst(estimates)
    return dataclasses.replace(worst, notes=(*worst.notes, *notes))


def _worst(estimates: Sequence[Estimate]) -> Estimate:
    """Return the estimate of the rank that needs most, with all ranks' figures."""
    worst = max(range(len(estimates)), key=lambda rank: _need(estimates[rank]))
    lines = [
        f"rank {rank}: peak allocated {estimate.peak_allocated:,} bytes, reserved {estimate.peak_reserved:,}"
        f"{', out of memory' if estimate.out_of_memory else ''}"
        for rank, estimate in enumerate(estimates[:_SHOWN])
    ]
    more = (
        (f"and {len(estimates) - _SHOWN} more ranks, none of which needs more",)
        if len(estimates) > _SHOWN
        else ()
    )
    ranks = tuple(_course(rank, estimate) for rank, estimate in enumerate(estimates))
    return dataclasses.replace(estimates[worst], notes=(*estimates[worst].notes, *lines, *more), ranks=ranks)


def _course(rank: int, estimate: Estimate) -> RankCourse:
    """Return the figures kept of a rank that is not shown, with a course for the first ranks."""
    allocated = estimate.timeline.allocated if rank < _SHOWN else ()
    edges = [part * len(allocated) // _PARTS for part in range(_PARTS + 1)]
    return RankCourse(
        rank,
        estimate.peak_allocated,
        estimate.peak_reserved,
        estimate.device_used,
        estimate.out_of_memory is not None,
        tuple(max(allocated[low : max(high, low + 1)], default=0) for low, high in pairwise(edges))
        if allocated
        else (),
    )


def _need(estimate: Estimate) -> tuple[bool, bool, int, int]:
    return (
        estimate.incomplete is not None,
        bool(estimate.out_of_memory),
        estimate.device_used or 0,
        estimate.peak_allocated or 0,
    )
