"""Times of kernels on the H100, by category and place: `h100.npz`, and the interpolation between its rows.

1. A row is a measured call: its place (`work.Work`), by what factor it took longer than `base`, and by what
   factor more with nothing in the cache. Logarithms, in steps of an eighth (places), 1/40 and 1/50.
2. A call takes `base` times its nearest rows' factors, nearer ones counting more: their mean, moved along
   the plane through them, but never beyond them. Of the same category alone: where there is none, of the
   nearest category that `_INSTEAD` names.
3. The uncertainty is the spread of these rows, and at least the error of the category with one row left out.
4. The interpolated time is the middle of a call's range. Steps are sums of many calls, so each counts with
   the mean of a lognormal distribution that far off; but for copies of pageable memory, which are off
   together.

Source: `python -m benchmarks timing measure` of commit cf817472 on an H100 80GB HBM3 (torch 2.11.0, CUDA
13.0, cuDNN 9.19, 26 November 2026), made into the file by `python -m benchmarks timing pack`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzer_timing.beside import planes
from analyzer_timing.work import Work

FILE = Path(__file__).parent / "h100.npz"
PLACE, FACTOR, COLD = 8.0, 40.0, 50.0
NEAREST = 10
_SOFT, _POWER, _FLAT = 0.05, 2.0, 0.3
# A normal distribution's standard deviation over its mean absolute one; the most that the mean is above the
# middle, as a logarithm.
_DEVIATION, _MOST_RAISED = sqrt(pi / 2), 0.1
# The spread of calls without a measurement, by the beginning of the category.
UNKNOWN_SPREAD = 0.6


@dataclass(frozen=True, slots=True)
class Seconds:
    """warm: with everything in the cache that fits; cold: with nothing there; spread: how far either may be
    off, as a logarithm; known: whether the category was measured; kernels: how many it launches, on
    average."""

    warm: float
    cold: float
    spread: float
    known: bool
    kernels: float = 1.0


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a category. spread: mean absolute logarithm of the factor when one was left out; kernels:
    launched, on average."""

    places: NDArray[np.float32]
    factors: NDArray[np.float32]
    colds: NDArray[np.float32]
    spread: float
    kernels: float = 1.0


@dataclass(frozen=True, slots=True)
class _File:
    """Category -> its number; for each its first row, first cell of places, rows, and columns of a place."""

    numbers: dict[str, int]
    extents: list[tuple[int, int, int, int]]
    arrays: dict[str, NDArray[np.float32]]


@cache
def _file() -> _File:
    extents: list[tuple[int, int, int, int]] = []
    row = cell = 0
    with np.load(FILE) as archive:
        names = bytes(archive["names"]).decode().split("\n")
        for count, width in zip(archive["counts"].tolist(), archive["widths"].tolist(), strict=True):
            extents.append((row, cell, count, width))
            row, cell = row + count, cell + count * width
        scales = {"places": PLACE, "factors": FACTOR, "colds": COLD, "spreads": 100.0, "kernels": 10.0}
        arrays = {
            name: archive[name].astype(np.float32) / np.float32(scale) for name, scale in scales.items()
        }
    return _File({name: number for number, name in enumerate(names)}, extents, arrays)


@cache
def rows_of(category: str) -> Rows | None:
    """Return the rows of a category, None if it was not measured."""
    file = _file()
    number = file.numbers.get(category)
    if number is None:
        return None
    row, cell, count, width = file.extents[number]
    places = file.arrays["places"][cell : cell + count * width].reshape(count, width)
    factors, colds = (file.arrays[name][row : row + count] for name in ("factors", "colds"))
    spread, kernels = (float(file.arrays[name][number]) for name in ("spreads", "kernels"))
    return Rows(places, factors, colds, spread, kernels)


def names() -> list[str]:
    """Return the measured categories."""
    return list(_file().numbers)


@cache
def stand_in(category: str) -> str | None:
    """Return the nearest measured category: the same kernel at another alignment, size or layout."""
    parts = category.split(":")
    best, most = None, 0.0
    for name in _file().numbers:
        other = name.split(":")
        if other[0] != parts[0] or len(other) != len(parts):
            continue
        alike = sum(
            (2.0 if i == 1 else 1.0) for i, (a, b) in enumerate(zip(parts, other, strict=True)) if a == b
        )
        if alike > most:
            best, most = name, alike
    return best


def seconds_of(works: Sequence[Work], beside: str = "") -> list[Seconds]:
    """Return the seconds of each piece of work, in order; equal ones are looked up once. beside: the GPU, if
    the table is not its own (`beside.py`)."""
    grouped: dict[str, dict[tuple[float, ...], float]] = defaultdict(dict)
    for work in works:
        grouped[work.category].setdefault(work.place, work.base)
    factors: dict[str, dict[tuple[float, ...], tuple[float, float, float, bool, float]]] = {}
    for category, places in grouped.items():
        factors[category] = _factors(category, list(places))
    relations = planes(beside) if beside else {}
    rows = []
    for work in works:
        factor, cold, spread, is_known, kernels = factors[work.category][work.place]
        plane = relations.get(work.category) or relations.get(stand_in(work.category) or "")
        if plane is not None:
            spread += plane.spread
            factor *= exp(plane.at(log(factor), work.base))
        if not work.staged:
            factor *= exp(min((_DEVIATION * spread) ** 2 / 2, _MOST_RAISED))
        warm = work.base * factor
        rows.append(Seconds(warm, warm * cold, spread, is_known, kernels))
    return rows


def _factors(
    category: str, places: list[tuple[float, ...]]
) -> dict[tuple[float, ...], tuple[float, float, float, bool, float]]:
    """Return (factor, cold factor, spread, whether measured, kernels) for each place of a category."""
    rows, is_known = rows_of(category), True
    if rows is None:
        other = stand_in(category)
        rows, is_known = None if other is None else rows_of(other), False
    if rows is None or rows.places.shape[1] != len(places[0]):
        return dict.fromkeys(places, (1.0, 1.0, UNKNOWN_SPREAD, False, 1.0))
    least = 0.0 if is_known else UNKNOWN_SPREAD / 2
    nearest = near(rows, np.array(places, np.float32))
    return {
        place: (exp(factor), exp(cold), max(spread, least), is_known, rows.kernels)
        for place, (factor, cold, spread) in zip(places, nearest, strict=True)
    }


def near(rows: Rows, places: NDArray[np.float32], left_out: bool = False) -> list[tuple[float, float, float]]:
    """Return (factor, cold factor, spread), all logarithms, for each place. left_out: without the nearest
    row, which is the place itself."""
    distances = ((places[:, None, :] - rows.places[None, :, :]) ** 2).sum(-1)
    if left_out:
        np.fill_diagonal(distances, np.inf)
    count = min(NEAREST, rows.places.shape[0] - left_out)
    chosen = np.argpartition(distances, count - 1, axis=1)[:, :count]
    weights = 1.0 / (np.take_along_axis(distances, chosen, axis=1) + _SOFT) ** _POWER
    weights /= weights.sum(1, keepdims=True)
    factors = (weights * rows.factors[chosen]).sum(1)
    colds = (weights * rows.colds[chosen]).sum(1)
    slope = _slope(rows.places[chosen] - places[:, None, :], rows.factors[chosen] - factors[:, None], weights)
    apart = np.sqrt((weights * (rows.factors[chosen] - factors[:, None]) ** 2).sum(1))
    spread = np.maximum(rows.spread, 0.5 * apart)
    least, most = rows.factors[chosen].min(1), rows.factors[chosen].max(1)
    factors = np.clip(factors - slope, least, most)
    return list(zip(factors.tolist(), colds.tolist(), spread.tolist(), strict=True))


def _slope(away: NDArray[Any], factors: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Return the correction for rows on one side: a plane through them, flattened by `_FLAT`."""
    middle = (weights[:, :, None] * away).sum(1)
    around = away - middle[:, None, :]
    squares = np.einsum("qk,qki,qkj->qij", weights, around, around) + _FLAT * np.eye(
        away.shape[-1], dtype=np.float32
    )
    leaning = np.einsum("qk,qki,qk->qi", weights, around, factors)
    slopes: NDArray[Any] = (np.linalg.solve(squares, leaning[..., None])[..., 0] * middle).sum(1)
    return slopes
