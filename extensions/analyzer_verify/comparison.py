"""Puts the figures and events of an analysis beside those of a run.

1. The naive sum is a claim about allocated memory and is compared with that; the graph estimate is compared
   with the graph executed (`execute`), not with the eager program.
2. Events are compared in order; where the run stopped early, only as far as it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyzer.results.estimate import Estimate
from analyzer_verify.results import Figure, MarkComparison, RunOutOfMemory


def figures(estimate: Estimate, measured: Mapping[str, Any], live_peak: int | None) -> tuple[Figure, ...]:
    """Return the figures of a PyTorch run; `measured`: result of `program.run`."""
    peaks = measured["peaks"]
    top = {
        name: max(peak[name] for peak in peaks)
        for name in ("peak_allocated", "peak_reserved", "peak_requested")
    }
    return (
        Figure("naive sum", estimate.naive.total, top["peak_allocated"]),
        Figure("graph", estimate.graph_peak, live_peak),
        Figure("requested", estimate.peak_requested, top["peak_requested"]),
        Figure("allocated", estimate.peak_allocated, top["peak_allocated"]),
        Figure("reserved", estimate.peak_reserved, top["peak_reserved"]),
        Figure("device", estimate.device_used, process_bytes(measured)),
    )


def process_bytes(measured: Mapping[str, Any]) -> int | None:
    """Return NVML's bytes of the process; where it hides processes, the device's growth."""
    process = measured["nvml_process"]["end"]
    if process:
        return int(process)
    device = measured["nvml_device"]
    return None if device["before"] is None else int(device["end"] - device["before"])


def marks(estimate: Estimate, measured: Sequence[Mapping[str, Any]]) -> tuple[MarkComparison, ...]:
    """Return events side by side, as far as the run came. Raises ValueError if they differ."""
    rows = []
    for ours, theirs in zip(estimate.marks, measured, strict=False):
        if ours.event != theirs["event"]:
            raise ValueError(f"predicted event {ours.event!r}, measured {theirs['event']!r}")
        rows.append(
            MarkComparison(ours.event, ours.allocated, theirs["allocated"], ours.reserved, theirs["reserved"])
        )
    return tuple(rows)


def out_of_memory(estimate: Estimate, measured: Mapping[str, Any]) -> RunOutOfMemory | None:
    """Return how a run ended out of memory, None if it did not."""
    failed = measured.get("out_of_memory")
    if failed is None:
        return None
    place = len(measured["marks"])
    ahead = estimate.marks[place] if place < len(estimate.marks) else None
    return RunOutOfMemory(
        after=failed["after"],
        message=failed["message"],
        allocated=failed["counters"]["allocated"],
        reserved=failed["counters"]["reserved"],
        predicted_allocated=ahead.peak if ahead else None,
        predicted_reserved=ahead.reserved if ahead else None,
    )
