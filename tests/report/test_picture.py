"""The bars of document 001 for any estimate: what is drawn, in which form, and what a wrong name is told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import main
from analyzer.report import json, picture
from analyzer.report.palette import LIGHT, category
from analyzer.results.estimate import MarkRow
from tests.report.estimates import MIB, TRAINING, hostile

MARKED = replace(
    TRAINING,
    marks=(
        MarkRow("model", 8 * MIB, 8 * MIB, 20 * MIB, {"parameters": 8 * MIB}),
        MarkRow(
            "0.forward", 32 * MIB, 36 * MIB, 42 * MIB, {"parameters": 8 * MIB, "saved for backward": 24 * MIB}
        ),
    ),
)


def heights(svg: str) -> dict[str, list[float]]:
    """Height in points of every bar, by colour."""
    found: dict[str, list[float]] = {}
    for path, color in re.findall(
        r'<path d="(M [^"]+?)\s*z\s*" [^>]*style="fill: (#[0-9a-f]{6})"/>', svg, re.DOTALL
    ):
        ys = [float(y) for _, y in re.findall(r"[ML] (\S+) (\S+)", path)]
        found.setdefault(color, []).append(max(ys) - min(ys))
    return found


def test_bars_are_as_high_as_their_bytes() -> None:
    drawn = picture.bars_svg(MARKED).decode()
    found = heights(drawn)
    parameters, saved = (found[LIGHT[category(name)]] for name in ("parameters", "saved for backward"))
    first, second = sorted(parameters)[-2:]
    assert first == pytest.approx(second)
    assert max(saved) == pytest.approx(3 * second, rel=1e-3)
    for words in ("model", "0.forward", "parameters", "saved for backward", "reserved", "models/small.py"):
        assert words in drawn


def test_the_peak_has_a_bar_of_its_own() -> None:
    """As high, by category, as the breakdown says: 8 MiB are the bar of the first event."""
    drawn = picture.bars_svg(
        replace(MARKED, breakdown={"parameters": 8 * MIB, "gradients": 12 * MIB})
    ).decode()
    found = heights(drawn)
    assert ">at the peak<" in drawn
    parameters = [height for height in found[LIGHT[category("parameters")]] if height > 10]
    assert parameters == pytest.approx([parameters[0]] * 3)
    assert max(found[LIGHT[category("gradients")]]) == pytest.approx(1.5 * parameters[0], rel=1e-3)


def test_the_same_estimate_gives_the_same_bytes() -> None:
    assert picture.bars_svg(MARKED) == picture.bars_svg(MARKED)
    assert picture.bars_png(MARKED)[:8] == b"\x89PNG\r\n\x1a\n"


def test_names_are_text() -> None:
    drawn = picture.bars_svg(hostile("<script>$x^2$")).decode()
    assert "<script" not in drawn and "&lt;script&gt;$x^2$" in drawn


def test_of_many_events_those_around_the_peak() -> None:
    marks = tuple(MarkRow(f"{n}.step", MIB, MIB, MIB, {"parameters": MIB}) for n in range(500))
    drawn = picture.bars_svg(replace(TRAINING, marks=marks, peak_at="300.step")).decode()
    assert "300.step" in drawn and "0.step" not in re.findall(r">(\S+)<", drawn)


def test_the_command_draws_beside_what_it_prints(tmp_path: Path, capsys: Any) -> None:
    saved = tmp_path / "estimate.json"
    saved.write_text(json.render(MARKED))
    assert main(["report", str(saved), "-q", "--plot", str(tmp_path / "bars.svg")]) == 0
    assert capsys.readouterr().out.startswith("fits: ")
    assert (tmp_path / "bars.svg").read_bytes() == picture.bars_svg(MARKED)
    assert main(["report", str(saved), "--plot", str(tmp_path / "bars.jpg")]) == 2
    assert "ends in .svg or .png" in capsys.readouterr().err
