"""A step's time: the result of `step.py`, a part of the estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class StepTime(float):
    """Seconds of one step in the steady state, of the last iteration that was followed: a number, with what
    is known of it.

    seconds: the number itself, from one step's end to the next one's; low, high: between what it may lie.
    device_seconds: what the kernels keep the busiest stream busy; host_seconds: what handing the step
    over takes; each with a range of its own. launches: kernels, copies and sets. bound: what it waits for
    most: "compute" (products, convolutions, attention), "memory" (everything that moves bytes) or "host".
    by_phase, by_module, by_line: device seconds, largest first. by_kind: likewise, by the table's kinds
    of kernels ("mm", "conv"). unknown: kernels that were not measured -> their share of device_seconds,
    estimated from the nearest that was. device: whose figures they are; source: what they rest on.
    float32_seconds: of device_seconds, what computes in float32 without TF32.
    """

    seconds: float
    low: float
    high: float
    device_seconds: float
    device_range: tuple[float, float]
    host_seconds: float
    host_range: tuple[float, float]
    launches: int
    bound: str
    device: str
    source: str
    by_phase: Mapping[str, float] = field(default_factory=dict)
    by_module: Mapping[str, float] = field(default_factory=dict)
    by_line: Mapping[str, float] = field(default_factory=dict)
    by_kind: Mapping[str, float] = field(default_factory=dict)
    unknown: Mapping[str, float] = field(default_factory=dict)
    float32_seconds: float = 0.0

    def __new__(cls, seconds: float, *_: Any, **__: Any) -> Self:
        return float.__new__(cls, seconds)
