"""Every page at the widths of a desk and of a phone, light and dark: nothing off the screen, cut, over something else, or broken
inside a word. `UPDATE_SCREENS=1 pytest tests/report/test_screens.py` makes the pictures of docs/evidence/SCREENS.md anew.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer import pipeline
from analyzer.options import Options
from analyzer.planning.allocators import side_by_side as under_allocators
from analyzer.planning.compare import compare
from analyzer.report import formats, palette
from analyzer_verify.results import Figure, MarkComparison, Verification
from tests.paths import ROOT
from tests.report.browser import chromium

SCREENS = ROOT / "docs/evidence/screens"
MEASURE = (Path(__file__).parent / "boxes.js").read_text()
WIDTHS, THEMES = (1280, 375), ("light", "dark")
PAGES = ("estimate", "run", "fit", "fit-many", "sweep", "what-if", "compare", "verify", "allocators")
MOST_BYTES = 1_500_000
# Written again at every step, so that steps that repeat are forgotten, and a number follows that is not the next.
PROGRAM = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for _ in range(50):
        optimizer.zero_grad()
        model(torch.randn(256, 512).cuda()).sum().backward()
        optimizer.step()
    with torch.no_grad():
        model(torch.randn(1024, 512).cuda())
"""


def verification() -> Verification:
    """A recorded run on an H200."""
    told = json.loads((ROOT / "tests/data/verify/cnn.json").read_text())
    known = {
        name: told[name] for name in ("target", "runtime", "mode", "batch", "optimizer", "device", "options")
    }
    return Verification(
        **known,
        figures=tuple(Figure(entry["name"], entry["predicted"], entry["measured"]) for entry in told["figures"]),
        marks=tuple(MarkComparison(**entry) for entry in told["marks"]),
        history=None, out_of_memory=None, environment=told["environment"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Each page by its name in the pictures."""
    with contextlib.chdir(ROOT):  # names as somebody types them
        return _pages(tmp_path_factory)


def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cnn, linear = "models/cnn.py", "models/linear.py"
    job: dict[str, Any] = {"mode": "train", "optimizer": "adam", "device": "2GiB"}
    fits = [analyzer.fit(cnn, **{**job, "device": name}) for name in ("2GiB", "t4", "rtx4090")]
    one, other = (analyzer.analyze(cnn, batch=batch, **job) for batch in (64, 48))
    folder = tmp_path_factory.mktemp("program")
    (folder / "train.py").write_text(PROGRAM)
    with contextlib.chdir(folder):
        program = analyzer.run("train.py", device="rtx4090")
    shown: dict[str, tuple[str, Any]] = {
        "estimate": ("estimate", one),
        "run": ("estimate", program),
        "fit": ("fits", fits[:1]),
        "fit-many": ("fits", fits),
        "sweep": ("curve", analyzer.sweep(cnn, range(1, 33), **job)),
        "what-if": ("strategies", analyzer.what_if(linear, batch=4096, **job)),
        "compare": ("difference", compare(other, one)),
        "verify": ("verification", verification()),
        "allocators": (
            "allocators",
            under_allocators(pipeline.analysis(cnn, Options.of({**job, "batch": 64}))),
        ),
    }
    assert tuple(shown) == PAGES
    return {name: str(formats.render(kind, "html", result)) for name, (kind, result) in shown.items()}


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as started:
        yield started


def opened(driver: Any, path: Path, width: int, theme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    driver.get(path.as_uri())
    # Tables are laid out a moment after the page says it is ready.
    driver.execute_async_script(
        "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => done()), 250)"
    )
    assert driver.execute_script("return document.documentElement.dataset.theme") == theme
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.sampled(4)
def test_nothing_overlaps_or_is_cut(driver: Any, pages: dict[str, str], tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(pages[name], encoding="utf-8")
    for width in WIDTHS:
        for theme in THEMES:
            opened(driver, path, width, theme)
            if os.environ.get("UPDATE_SCREENS"):
                kept(driver, f"{name}-{width}-{theme}", width)
            driver.execute_script("for (const part of document.querySelectorAll('details')) part.open = true")
            found = driver.execute_script(MEASURE, width)
            assert found["wrong"] == [], (width, theme)
            assert found["texts"] > 20
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
            # There is nothing to be found by scrolling sideways.
            wide = "return [...document.querySelectorAll('.wide, .tabulator-tableholder')].every((box) => box.scrollWidth <= box.clientWidth + 1)"
            assert driver.execute_script(wide), (width, theme)


def kept(driver: Any, name: str, width: int) -> None:
    """The whole page as a picture, at most four screens of it."""
    height = min(driver.execute_script("return document.documentElement.scrollHeight"), 2400)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 0.6 if width > 600 else 0.8}
    taken = driver.execute_cdp_cmd(
        "Page.captureScreenshot",
        {"format": "webp", "quality": 20, "captureBeyondViewport": True, "clip": clip},
    )
    SCREENS.mkdir(exist_ok=True)
    (SCREENS / f"{name}.webp").write_bytes(base64.b64decode(taken["data"]))


def test_the_measure_sees_what_is_wrong(driver: Any, tmp_path: Path) -> None:
    """Text cut, off the screen, over other text and broken is found, each as such."""
    bad = """<!DOCTYPE html><html data-theme="light"><body style="margin:0">
    <p style="width:60px;overflow:hidden;white-space:nowrap">a figure of 1,234,567,890 bytes</p>
    <p style="position:absolute;left:360px;top:60px;white-space:nowrap">beyond the right edge of it</p>
    <p style="position:absolute;left:0;top:100px">under</p><p style="position:absolute;left:5px;top:104px">above</p>
    <p style="position:absolute;top:200px;width:30px;overflow-wrap:anywhere">unbreakable</p></body></html>"""
    path = tmp_path / "bad.html"
    path.write_text(bad)
    opened(driver, path, 375, "light")
    found = " ".join(driver.execute_script(MEASURE, 375)["wrong"])
    for word in ("cut at the side", "off the screen", "over one another", "broken word: unbreakable"):
        assert word in found


def test_the_steps_of_a_program_are_numbered_as_its_events_are(
    driver: Any, pages: dict[str, str], tmp_path: Path
) -> None:
    """Of a hundred steps a few are kept: the 50th is called so above the chart too."""
    path = tmp_path / "page.html"
    path.write_text(pages["run"], encoding="utf-8")
    opened(driver, path, 1280, "light")
    words = driver.execute_script(
        "return document.querySelector('.view').timeline.plot().words.map((word) => word.said)"
    )
    assert {"iteration 0", "iteration 50", "iteration 51"} <= set(words) and "iteration 3" not in words


def test_titles_and_axes(driver: Any, pages: dict[str, str], tmp_path: Path) -> None:
    titles = [re.findall(r"<title>(.*?)</title>", page)[0] for page in pages.values()]
    assert len(set(titles)) == len(titles)
    by_name = dict(zip(pages, titles, strict=True))
    assert by_name["fit-many"].endswith("largest batch on 2GiB, t4 and rtx4090")
    assert "batch 48, now 64" in by_name["compare"]
    path = tmp_path / "page.html"
    for name, first, last in (("sweep", "1", "32"), ("verify", "1", str(len(verification().marks)))):
        path.write_text(pages[name], encoding="utf-8")
        opened(driver, path, 1280, "light")
        named = driver.execute_script("return document.querySelector('.chart').plot().axes[0]._values")
        assert (
            named[0] == first and named[-1] == last and all(re.fullmatch(r"[\d,]+", word) for word in named)
        )
        assert len(set(named)) == len(named)


def test_a_bar_for_every_gpu(pages: dict[str, str]) -> None:
    widths = [
        float(width)
        for width in re.findall(r'<svg class="bar".*?<rect x="0" y="3" width="([\d.]+)"', pages["fit-many"])
    ]
    assert len(widths) == 3 and widths == sorted(widths) and widths[-1] == 200


def test_categories_can_be_told_apart() -> None:
    """By the distance of their colours (CIE 1976; about 2 is just noticed), each pair, in both themes."""
    for theme in (palette.LIGHT, palette.DARK):
        colors = [lab(theme[f"c{place}"]) for place in range(10)]
        for one, other in combinations(colors, 2):
            assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 20


def lab(color: str) -> tuple[float, float, float]:
    """A colour as L*, a*, b* (IEC 61966-2-1 to CIE 1976, white D65)."""
    linear = [
        v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
        for v in (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    ]
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    scaled = [
        sum(f * v for f, v in zip(row, linear, strict=True)) / w for row, w in zip(rows, white, strict=True)
    ]
    x, y, z = (v ** (1 / 3) if v > 216 / 24389 else (24389 / 27 * v + 16) / 116 for v in scaled)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_the_pictures_are_there_and_small() -> None:
    page = (ROOT / "docs/evidence/SCREENS.md").read_text()
    wanted = {f"{name}-{width}-{theme}.webp" for name in PAGES for width in WIDTHS for theme in THEMES}
    assert {path.name for path in SCREENS.iterdir()} == wanted
    assert all(f"screens/{name}" in page for name in wanted)
    assert sum(path.stat().st_size for path in SCREENS.iterdir()) < MOST_BYTES


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.sampled(4)
def test_axe_finds_nothing_serious(driver: Any, pages: dict[str, str], tmp_path: Path, name: str) -> None:
    """Deque's rules for pages that everybody can use, in the browser itself; light and dark, for contrasts."""
    rules = Path(pytest.importorskip("axe_core_python").__file__ or "").parent / "axe.min.js"
    path = tmp_path / "page.html"
    path.write_text(pages[name], encoding="utf-8")
    for theme in THEMES:
        opened(driver, path, WIDTHS[0], theme)
        driver.execute_cdp_cmd("Runtime.evaluate", {"expression": rules.read_text(encoding="utf-8")})
        found = driver.execute_async_script(
            "const done = arguments[0]; axe.run(document).then((said) => done(said.violations.map("
            "(rule) => [rule.id, rule.impact, rule.nodes[0].html.slice(0, 300)])), (error) => done(String(error)))"
        )
        assert isinstance(found, list), found
        assert [rule for rule in found if rule[1] in ("serious", "critical")] == [], theme
