"""Pages and pictures have their colours from one place."""

import re

from analyzer.report import palette
from tests.paths import ROOT

REPORT = ROOT / "analyzer/report"


def test_no_other_file_has_a_colour_of_its_own() -> None:
    """But black and near black, which stand on the colours of a page's flame graph in both themes."""
    files = [*REPORT.glob("*.py"), *REPORT.glob("assets/*.*")]
    found = {
        (path.name, color)
        for path in files
        for color in re.findall(
            r"[\"': ](#[0-9a-fA-F]{6}|#[0-9a-fA-F]{3})\b", path.read_text(encoding="utf-8")
        )
    }
    assert {entry for entry in found if entry[0] != "palette.py"} == {
        ("page.css", "#111"),
        ("page.css", "#000"),
    }


def test_both_themes_have_the_same_colours_and_a_light_one_names_its_dark_one() -> None:
    assert palette.LIGHT.keys() == palette.DARK.keys()
    assert len(set(palette.LIGHT.values())) == len(palette.LIGHT)  # `picture_style` goes by the light one


def test_a_page_declares_what_its_scripts_and_styles_use() -> None:
    style = palette.page_style()
    declared = set(re.findall(r"--(\w+):", style))
    text = "".join(path.read_text(encoding="utf-8") for path in REPORT.glob("assets/*.*"))
    used = set(re.findall(r"var\(--(\w+)\)|color\(\"--(\w+)\"\)", text))
    assert {one or other for one, other in used} - {"swatch"} <= declared
    assert {f"c{place}" for place in range(10)} | {f"l{place}" for place in range(6)} <= declared


def test_a_picture_is_dark_on_a_dark_screen() -> None:
    style = palette.picture_style()
    for name in ("text", "back", "c0", "limit"):
        rule = f'[fill="{palette.LIGHT[name]}"], [style*="fill: {palette.LIGHT[name]}"]'
        assert f"{rule} {{ fill: {palette.DARK[name]} !important }}" in style
