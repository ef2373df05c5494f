"""What was predicted beside what was measured: frozen values that the command line shows and JSON keeps.

1. An error is (predicted - measured) / measured, in percent; unknown where either is.
2. The naive sum is a claim about allocated memory and is compared with that; the graph estimate is compared with the
   graph executed (`execute`), not with the eager program.
3. Events are compared in order; where the run stopped early, only as far as it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from analyzer.estimate import Estimate
from analyzer.verify.history import HistoryComparison

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity in bytes, None where unknown."""

    name: str
    predicted: int | None
    measured: int | None

    @property
    def error_percent(self) -> float | None:
        """Rule 1."""
        if self.predicted is None or not self.measured:
            return None
        return 100 * (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class MarkComparison:
    """The allocator after a named event (for ONNX Runtime: the arena after a run), in bytes."""

    event: str
    predicted_allocated: int
    measured_allocated: int
    predicted_reserved: int
    measured_reserved: int

    @property
    def same(self) -> bool:
        """Whether both figures are exact."""
        return (self.predicted_allocated, self.predicted_reserved) == (
            self.measured_allocated,
            self.measured_reserved,
        )


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The run ended without memory. States in bytes, None where unknown.

    after: the last named event that was over. message: the runtime's own words.
    predicted: allocated and reserved predicted at the next event (where it stopped).
    """

    after: str
    message: str
    allocated: int
    reserved: int
    predicted_allocated: int | None
    predicted_reserved: int | None


@dataclass(frozen=True, slots=True)
class Verification:
    """One target, predicted and really run."""

    target: str
    runtime: str
    mode: str
    batch: int | None
    optimizer: str
    device: str
    options: Mapping[str, Any]
    figures: tuple[Figure, ...]
    marks: tuple[MarkComparison, ...]
    history: HistoryComparison | None
    out_of_memory: OutOfMemory | None
    environment: Mapping[str, str]
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def figure(self, name: str) -> Figure:
        """The figure of that name. Raises KeyError."""
        for entry in self.figures:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, errors in percent included."""
        document = {"schema": SCHEMA, **asdict(self)}
        for entry, figure in zip(document["figures"], self.figures, strict=True):
            error = figure.error_percent
            entry["error_percent"] = None if error is None else round(error, 4)
        return document


def figures(estimate: Estimate, measured: Mapping[str, Any], live_peak: int | None) -> tuple[Figure, ...]:
    """The figures of a PyTorch run; `measured` is what `program.run` returned."""
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
    """NVML's figure for the process; where it hides processes, what the device gained."""
    process = measured["nvml_process"]["end"]
    if process:
        return int(process)
    device = measured["nvml_device"]
    return None if device["before"] is None else int(device["end"] - device["before"])


def marks(estimate: Estimate, measured: Sequence[Mapping[str, Any]]) -> tuple[MarkComparison, ...]:
    """Events side by side (rule 3). Raises ValueError when they are not the same events."""
    rows = []
    for ours, theirs in zip(estimate.marks, measured, strict=False):
        if ours.event != theirs["event"]:
            raise ValueError(f"predicted event {ours.event!r}, measured {theirs['event']!r}")
        rows.append(
            MarkComparison(ours.event, ours.allocated, theirs["allocated"], ours.reserved, theirs["reserved"])
        )
    return tuple(rows)


def out_of_memory(estimate: Estimate, measured: Mapping[str, Any]) -> OutOfMemory | None:
    """What is known of a run that ended without memory, None if it did not."""
    failed = measured.get("out_of_memory")
    if failed is None:
        return None
    place = len(measured["marks"])
    ahead = estimate.marks[place] if place < len(estimate.marks) else None
    return OutOfMemory(
        after=failed["after"],
        message=failed["message"],
        allocated=failed["counters"]["allocated"],
        reserved=failed["counters"]["reserved"],
        predicted_allocated=ahead.peak if ahead else None,
        predicted_reserved=ahead.reserved if ahead else None,
    )
