"""Whole programs, as the tests of this room run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer import Estimate


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Estimate]:
    """Runs a program given as text."""

    def run(text: str, *args: str, **options: Any) -> Estimate:
        script = tmp_path / "train.py"
        script.write_text(text)
        return analyzer.run(script, args, **{"device": "h200", **options})

    return run
