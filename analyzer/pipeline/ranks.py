"""Every rank of a job, one after another, each in a process of its own; the one that needs most stands for the job."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise

from analyzer.estimate import Estimate, RankCourse
from analyzer.options import Options
from analyzer.pipeline.program import follow
from analyzer.ranks import Rank

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
    """The estimate of the rank that needs the most memory (one that runs out of it before all others), noting every rank's.

    job: any rank of the job. Raises AnalyzerError, of the first rank that cannot be followed.
    """
    one = partial(_estimate, script, tuple(args), options, until)
    ranks = [dataclasses.replace(job, rank=rank) for rank in range(job.world_size)]
    found: list[Estimate] = []
    # A program leaves modules and settings behind: the next rank starts in a fresh interpreter, as it would really.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for rank, estimate in zip(ranks, pool.map(one, ranks), strict=True):
            found.append(estimate)
            if progress is not None:
                progress(f"rank {rank.rank} of {job.world_size}")
    return _worst(found)


def _estimate(script: str, args: Sequence[str], options: Options, until: str | int, rank: Rank) -> Estimate:
    return follow(script, args, options, {}, until, rank.world_size, rank.rank, job=rank)[0].estimate


def _worst(found: Sequence[Estimate]) -> Estimate:
    worst = max(range(len(found)), key=lambda rank: _need(found[rank]))
    lines = [
        f"rank {rank}: peak allocated {estimate.peak_allocated:,} bytes, reserved {estimate.peak_reserved:,}"
        f"{', out of memory' if estimate.out_of_memory else ''}"
        for rank, estimate in enumerate(found[:_SHOWN])
    ]
    more = (f"and {len(found) - _SHOWN} more ranks, none of which needs more",) if len(found) > _SHOWN else ()
    ranks = tuple(_course(rank, estimate) for rank, estimate in enumerate(found))
    return dataclasses.replace(found[worst], notes=(*found[worst].notes, *lines, *more), ranks=ranks)


def _course(rank: int, estimate: Estimate) -> RankCourse:
    """What is kept of a rank beside the one that is shown; a course of the first ones."""
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


def _need(estimate: Estimate) -> tuple[bool, int, int]:
    return bool(estimate.out_of_memory), estimate.device_used or 0, estimate.peak_allocated or 0
