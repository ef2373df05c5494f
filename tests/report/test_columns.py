"""Plans and comparisons within the columns there are, from 40 to 120: nothing sticks out, and no figure is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import analyzer
from analyzer.planning.compare import compare
from analyzer.report import formats
from analyzer.report.columns import Column, table, within
from analyzer.report.formats import View
from analyzer.report.words import mib
from tests.paths import MODELS
from tests.report.estimates import MIB, TRAINING

COLUMNS = [
    Column("name", 10, least=6),
    Column("bytes", 8),
    Column("share", 8, rank=1),
    Column("why", 8, rank=2),
]


@pytest.mark.parametrize(
    ("width", "head", "row"),
    [
        (34, "name         bytes   share     why", "abcdefghi        1       2       3"),
        (30, "name     bytes   share     why", "…fghi        1       2       3"),
        (29, "name         bytes   share", "abcdefghi        1       2"),
        (21, "name         bytes", "abcdefghi        1"),
        (14, "name     bytes", "…fghi        1"),
    ],
)
def test_a_table_by_hand(width: int, head: str, row: str) -> None:
    assert table(COLUMNS, [["abcdefghi", "1", "2", "3"]], width) == [head, row]


def test_sentences_by_hand() -> None:
    assert within(["  one two three", "short"], 10) == ["  one two", "    three", "short"]
    assert within(["x" * 90], 80) == ["x" * 80, f"  {'x' * 10}"]


@pytest.fixture(scope="module")
def plans() -> dict[str, Any]:
    keywords: dict[str, Any] = {"mode": "train", "device": "rtx4090"}
    target = MODELS / "linear.py"
    before = replace(
        TRAINING, by_line={"small.py:12": MIB}, options={"amp": None, "steps": 3, "checkpoint": "a" * 70}
    )
    return {
        "curve": analyzer.sweep(target, range(1, 20), **keywords),
        "fits": [analyzer.fit(target, limit=limit, **keywords) for limit in ("100MiB", "120MiB")],
        "strategies": analyzer.what_if(target, batch=8, **keywords),
        "difference": compare(before, TRAINING),
    }


@pytest.mark.parametrize("width", [40, 52, 64, 79, 80, 120])
@pytest.mark.parametrize("kind", ["curve", "fits", "strategies", "difference"])
def test_nothing_sticks_out(kind: str, width: int, plans: dict[str, Any]) -> None:
    text = formats.render(kind, "text", plans[kind], View(width=width))
    assert isinstance(text, str)
    if width < 80:
        assert [line for line in text.splitlines() if len(line) > width] == []
    if kind == "curve":
        last = plans["curve"].rows[-1]
        (row,) = [line for line in text.splitlines() if line.split()[:1] == ["19"] and len(line.split()) > 3]
        assert row.split()[1:4] == [
            mib(getattr(last, name)) for name in ("peak_allocated", "peak_reserved", "device_used")
        ]
    if kind == "strategies":
        assert mib(plans[kind][0].estimate.device_used) in text
