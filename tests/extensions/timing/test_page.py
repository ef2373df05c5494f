"""The page of advice: its answer, and what to type."""

from __future__ import annotations

import html

import analyzer
from analyzer.report import formats
from analyzer_timing.report import verdict
from tests.paths import MODELS


def test_it_begins_with_a_verdict_and_says_what_to_type() -> None:
    found = analyzer.advise(
        MODELS / "linear.py", device="900MiB", batch=65_536, mode="train", optimizer="adam"
    )
    assert found.best is not None and found.best.verdict == "fits" and found.best.typed
    page = html.unescape(str(formats.render("advice", "html", found)))
    assert verdict(found)[0] in page and f"add {found.best.typed}" in page
