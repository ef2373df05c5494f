"""How fast a job runs, beside its bytes: a step's time and samples a second, each with its range, as cells, a
line, or JSON.

A step is that of all its micro-batches, so its samples are those of the effective batch. An unknown figure
(an ONNX file, several GPUs, a device given as a size) is a dash, None in JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analyzer.report.words import clean, duration, span

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate

UNKNOWN = "-"
# The keys of `fields`, for tables that have a column each.
FIELDS = ("step_seconds", "step_range", "samples_per_second", "samples_per_second_range", "bound")


def step(estimate: Estimate) -> str:
    """Return the time of a step: "427 ms"."""
    return UNKNOWN if estimate.step_seconds is None else duration(estimate.step_seconds.seconds)


def step_range(estimate: Estimate) -> str:
    """Return the range of a step's time: "300 ms to 609 ms"."""
    time = estimate.step_seconds
    return UNKNOWN if time is None else span(duration(time.low), duration(time.high))


def rate(estimate: Estimate) -> str:
    """Return samples per second: "37.4"."""
    speed = estimate.samples_per_second
    return UNKNOWN if speed is None else number(speed[0])


def number(value: float) -> str:
    """Three digits, or all before the point."""
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}"


def line(estimate: Estimate) -> str:
    """Return one sentence on step time and samples per second with ranges; "" if no time is known."""
    time, speed = estimate.step_seconds, estimate.samples_per_second
    if time is None:
        return ""
    sentence = (
        f"a step takes about {duration(time.seconds)} ({step_range(estimate)}), bound by {clean(time.bound)}"
    )
    if speed is None:
        return sentence
    about, least, most = map(number, speed)
    return f"{sentence}: about {about} samples a second ({span(least, most)})"


def fields(estimate: Estimate | None) -> dict[str, Any]:
    """Return the numbers by `FIELDS`: seconds, samples a second, ranges as pairs, the bound."""
    time = None if estimate is None else estimate.step_seconds
    if estimate is None or time is None:
        return dict.fromkeys(FIELDS)
    speed = estimate.samples_per_second
    return {
        "step_seconds": time.seconds,
        "step_range": [time.low, time.high],
        "samples_per_second": None if speed is None else speed[0],
        "samples_per_second_range": None if speed is None else list(speed[1:]),
        "bound": time.bound,
    }
