"""The largest batch of a session (ONNX Runtime and other runtimes that plan a whole graph), by analyses alone.

1. A batch runs when its analysis says that it fits: the arena's own limit (`gpu_mem_limit`) and the device are part of that
   analysis, which follows the arena as it asks for less where the device has not what it wants.
2. Doubling and bisection, each batch analysed afresh; the answer and the one beyond it are therefore what `analyze` says.

Not modelled: batches below the answer that would fail although it runs; a session asks for its memory in a few large
pieces, so that is not to be expected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analyzer.analysis import Analysis
from analyzer.estimate import Estimate
from analyzer.planning.fit_result import MOST, Fit, assumptions
from analyzer.planning.subject import Progress, Subject


def of_session(subject: Subject, limit: int | None, progress: Progress | None) -> Fit:
    """The answer; `limit`: bytes the arena may hold. Raises AnalyzerError, also for a runtime without such a limit."""
    if limit is not None:
        more: dict[str, Any] = {"gpu_mem_limit": limit}
        options = replace(subject.options, runtime_options={**subject.options.runtime_options, **more})
        subject = subject.under(options)

    def analysed(batch: int) -> Analysis:
        if progress is not None:
            progress(f"batch {batch}")
        return subject.analysis(batch)

    first = analysed(1)
    known: dict[int, Estimate] = {1: first.estimate}

    def runs(batch: int) -> bool:
        if batch not in known:
            known[batch] = analysed(batch).estimate
        return known[batch].fits()

    low, high = 0, 1
    while runs(high) and high < MOST:
        low, high = high, min(2 * high, MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    batch = max((size for size, estimate in known.items() if estimate.fits()), default=0)
    at, beyond = known.get(batch), known.get(batch + 1)
    some = at or known[1]
    besides = some.device_used - some.peak_reserved
    return Fit(
        batch,
        at,
        beyond,
        max(some.allowed_bytes - besides, 0) if limit is None else limit,
        limit is None,
        captures=tuple(sorted(known)),
        notes=(*(at.notes if at is not None else ()), *assumptions(first)),
    )
