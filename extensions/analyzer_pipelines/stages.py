"""The stages of a followed pipeline, from the marks of its NVTX ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.graph import BETWEEN, STAGE
from analyzer_pipelines.results import Stage

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate


def stages(estimate: Estimate) -> tuple[Stage, ...]:
    """Return the stages in the order they began.

    `Timeline.phase` has the mark that a moment's period ends in. Other marks end periods too (offloading
    empties the cache between components), so the next mark of a range counts.
    """
    line = estimate.timeline
    names, later = list[str](), ""
    for phase in reversed(line.phase):
        later = phase if phase == BETWEEN or phase.startswith(STAGE) else later
        names.append(later)
    names.reverse()
    peaks: dict[str, tuple[int, int]] = {}
    for name, allocated, reserved in zip(names, line.allocated, line.reserved, strict=True):
        if name.startswith(STAGE):
            before = peaks.get(name, (0, 0))
            peaks[name] = (max(before[0], allocated), max(before[1], reserved))
    calls = [mark.event for mark in estimate.marks]
    return tuple(
        Stage(name.removeprefix(STAGE), calls.count(name), *figures) for name, figures in peaks.items()
    )
