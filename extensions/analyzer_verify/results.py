"""Predicted beside measured figures: frozen values that the command line shows and JSON keeps.

An error is (predicted - measured) / measured, in percent; unknown where either is. `analyzer_verify/` makes
these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where prediction and history part.

    request: the number of the request at which they part (both sequences have this many equal ones before
    it).
    what: the difference in words. event: the named event under way. operator, module, source: what was
    predicted there.
    predicted_bytes, recorded_bytes: of that request; None where there is none, or where returns differ.
    """

    request: int
    what: str
    event: str
    operator: str
    module: str
    source: str
    predicted_bytes: int | None
    recorded_bytes: int | None


@dataclass(frozen=True, slots=True)
class HistoryComparison:
    """predicted_count, recorded_count: requests. first: None if the sequences are the same.

    missing, extra: size in bytes -> how often it was recorded but not predicted, predicted but not recorded;
    the sizes with the most bytes first.
    """

    predicted_count: int
    recorded_count: int
    first: Divergence | None
    missing: Mapping[int, int]
    extra: Mapping[int, int]

    @property
    def same(self) -> bool:
        """Whether every request and every return was predicted, in order."""
        return self.first is None


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity in bytes, predicted and measured, None where unknown."""

    name: str
    predicted: int | None
    measured: int | None

    @property
    def error_percent(self) -> float | None:
        """(predicted - measured) / measured, in percent; None where either is unknown."""
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
class RunOutOfMemory:
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
    """One target, predicted and really run.

    environment: what it ran with. modelled: the releases the predicted figures are of, as in `Estimate`.
    """

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
    out_of_memory: RunOutOfMemory | None
    environment: Mapping[str, str]
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    modelled: Mapping[str, str] = field(default_factory=dict)

    def figure(self, name: str) -> Figure:
        """Return the figure of that name. Raises KeyError."""
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
