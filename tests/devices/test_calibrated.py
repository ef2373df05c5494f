"""The H100's profile says what `analyze calibrate` read on one (24 November 2026, driver 580.159.04, torch 2.11.0+cu130, cuDNN 9.19)."""

from __future__ import annotations

import json

import pytest

from analyzer.devices.loader import PROFILES
from tests.paths import ROOT

MEASURED = json.loads((ROOT / "tests/data/h100/calibrated.json").read_text())
SHIPPED = json.loads((PROFILES / "h100.json").read_text())


@pytest.mark.parametrize("figure", sorted(set(MEASURED) - {"name", "measured", "releases", "sources"}))
def test_a_figure_is_as_measured(figure: str) -> None:
    assert SHIPPED[figure] == MEASURED[figure]
