"""The curve over the batch as one SVG, which needs no library.

Ticks are round numbers (1, 2 or 5 times a power of ten, of the unit sizes are written in). The device's limit
is a line where the curve comes near it, and a word in the corner where it lies far above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING

from analyzer.report import palette
from analyzer.report.formats import PLAIN, View
from analyzer.report.palette import LIGHT, picture_style
from analyzer.report.plan import LINES, WORDS, about
from analyzer.report.words import clean, size

if TYPE_CHECKING:
    from analyzer.results.curve import Curve

_TEXT, _BACK, _LINE, _LIMIT = (LIGHT[name] for name in ("text", "back", "line", "limit"))
_COLORS = {name: LIGHT[color] for name, color in zip(LINES, palette.LINES, strict=False)}
_TICKS = 5
# How far above the curve the limit may lie and still be drawn, as a multiple of it.
_NEAR = 3
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 420, 80, 880, 44, 370


def render(curve: Curve, _: View = PLAIN) -> str:
    """Return an SVG of allocated, reserved, device and naive bytes over the batch, and the device's limit."""
    batches = [row.batch for row in curve.rows]
    most = max(max(getattr(row, name) for row in curve.rows) for name in LINES) or 1
    limit = curve.estimate.usable_bytes
    drawn = limit if limit <= _NEAR * most else None
    span, highest = max(batches[-1] - batches[0], 1), max(most, drawn or 0)

    def x(batch: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (batch - batches[0]) / span

    def y(nbytes: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * nbytes / highest

    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img'"
        f" font-family='sans-serif' font-size='12' fill='{_TEXT}'>",
        f"<title>{escape(about(curve.estimate))}</title>",
        f"<style>{picture_style()}</style>",
        f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='{_BACK}'/>",
    ]
    for level in levels(highest):
        parts.append(
            f"<line x1='{_LEFT}' x2='{_RIGHT}' y1='{y(level):.1f}' y2='{y(level):.1f}' stroke='{_LINE}'/>"
            f"<text x='{_LEFT - 6}' y='{y(level) + 4:.1f}' text-anchor='end'>{_written(level)}</text>"
        )
    for batch in ticks(batches[0], batches[-1]):
        parts.append(f"<text x='{x(batch):.1f}' y='{_BOTTOM + 18}' text-anchor='middle'>{batch:,}</text>")
    parts.append(f"<text x='{(_LEFT + _RIGHT) // 2}' y='{_HEIGHT - 10}' text-anchor='middle'>batch</text>")
    for place, name in enumerate(LINES):
        points = " ".join(f"{x(row.batch):.1f},{y(getattr(row, name)):.1f}" for row in curve.rows)
        dashes = " stroke-dasharray='5 4'" if name == "naive" else ""
        parts.append(
            f"<polyline points='{points}' fill='none' stroke='{_COLORS[name]}' stroke-width='2'{dashes}/>"
        )
        parts.append(f"<text x='{_LEFT + 110 * place}' y='20' fill='{_COLORS[name]}'>{WORDS[name]}</text>")
    parts += _limit(limit, drawn, clean(curve.estimate.device), y)
    return "\n".join([*parts, "</svg>\n"])


def _limit(limit: int, drawn: int | None, device: str, y: Callable[[float], float]) -> Iterator[str]:
    """Yield the device's limit: a line, or where it lies far above, what it is."""
    label = escape(f"{device}: {size(limit)}" + ("" if drawn else ", above"))
    yield f"<text x='{_RIGHT}' y='20' text-anchor='end' fill='{_LIMIT}'>{label}</text>"
    if drawn:
        yield (
            f"<line class='limit' x1='{_LEFT}' x2='{_RIGHT}' y1='{y(drawn):.1f}' y2='{y(drawn):.1f}'"
            f" stroke='{_LIMIT}' stroke-width='2' stroke-dasharray='8 4'/>"
        )


def step_of(span: float) -> int:
    """Return the step (1, 2 or 5 times a power of ten) that makes about `_TICKS` of a span; at least 1."""
    least = max(span / _TICKS, 1)
    power = 10 ** math.floor(math.log10(least))
    return next(int(factor * power) for factor in (1, 2, 5, 10) if factor * power >= least)


def ticks(first: int, last: int) -> list[int]:
    """Return round numbers in a range, and its ends where none is in it."""
    step = step_of(last - first)
    return list(range(-(-first // step) * step, last + 1, step)) or sorted({first, last})


def levels(highest: int) -> list[int]:
    """Return round sizes from nothing to at most `highest` bytes, in the unit that it is written in."""
    unit = 1 << 30 if highest >= 1 << 30 else 1 << 20 if highest >= 1 << 20 else 1 << 10
    if highest < 3 * unit and unit > 1 << 10:
        unit >>= 10
    step = step_of(highest / unit) * unit
    return list(range(0, highest + 1, step))


def _written(nbytes: int) -> str:
    """Return a round size, without ".0"."""
    return size(nbytes).replace(".0 ", " ") if nbytes else "0"
