"""The curve as SVG: round ticks worked out by hand, the device's limit, every line."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

import analyzer
from analyzer.report import curve_svg, formats
from tests.paths import MODELS

GIB, MIB = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (1, 32, [10, 20, 30]),
        (1, 5, [1, 2, 3, 4, 5]),
        (1, 512, [200, 400]),
        (64, 64, [64]),
        (100, 200, [100, 120, 140, 160, 180, 200]),
        (7, 8, [7, 8]),
    ],
)
def test_batches_are_round(first: int, last: int, expected: list[int]) -> None:
    assert curve_svg.ticks(first, last) == expected


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (13 * GIB, [0, 5 * GIB, 10 * GIB]),
        (10 * GIB, [0, 2 * GIB, 4 * GIB, 6 * GIB, 8 * GIB, 10 * GIB]),
        (2 * GIB, [0, 500 * MIB, 1000 * MIB, 1500 * MIB, 2000 * MIB]),
        (900 * MIB, [0, 200 * MIB, 400 * MIB, 600 * MIB, 800 * MIB]),
        (50, [0]),
    ],
)
def test_sizes_are_round(highest: int, expected: list[int]) -> None:
    assert curve_svg.levels(highest) == expected


@pytest.mark.parametrize(("device", "near"), [("900MiB", True), ("rtx4090", False)])
def test_the_limit_is_a_line_where_it_is_near(device: str, near: bool) -> None:
    curve = analyzer.sweep(MODELS / "cnn.py", range(1, 9), mode="train", device=device)
    made = str(formats.render("curve", "svg", curve))
    drawn = ET.fromstring(made)
    lines = drawn.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 4 and all(len(line.attrib["points"].split()) == 8 for line in lines)
    assert ("class='limit'" in made) == near
    said = re.search(rf">{device}: ([^<]+)<", made)
    assert said is not None and said[1].endswith(", above") != near
    for word in ("allocated", "reserved", "device", "naive sum"):
        assert f">{word}<" in made
