"""Whole programs (`tests/emulation/programs`), followed beside what PyTorch's own host code asked for under the emulated runtime (torch 2.11).

Recorded: `analyze run --engine emulate --device h100 --format json PROGRAM`, its timeline's changes in bytes.
"""

from __future__ import annotations

import json
import os

import pytest

import analyzer
from tests.paths import DATA, ROOT

RECORDED = json.loads((DATA / "emulation/programs.json").read_text("utf-8"))
FOLDER = ROOT / "tests/emulation/programs"
PYTHON = os.environ.get("ANALYZER_CUDA_PYTHON")
needs_cuda = pytest.mark.skipif(
    PYTHON is None, reason="ANALYZER_CUDA_PYTHON names no Python with a CUDA build of PyTorch"
)


def changes(estimate: analyzer.Estimate) -> list[int]:
    """Bytes taken and given back, in order."""
    assert estimate.incomplete is None
    return [change for change in json.loads(estimate.to_json())["timeline"]["delta"] if change]


@pytest.mark.parametrize("name", RECORDED)
def test_the_same_requests_in_the_same_order(name: str) -> None:
    traced = analyzer.run(FOLDER / f"{name}.py", device="h100", engine="trace", release={"torch": "2.11"})
    assert changes(traced) == RECORDED[name]


@needs_cuda
@pytest.mark.parametrize("name", RECORDED)
def test_it_is_what_is_asked_for_today(name: str) -> None:
    assert changes(analyzer.emulate(FOLDER / f"{name}.py", python=PYTHON, device="h100")) == RECORDED[name]


@needs_cuda
@pytest.mark.parametrize("name", ["layouts", "reused"])
def test_it_runs_through(name: str) -> None:
    """What has no plain memory is not looked into; what is known of memory that is used again."""
    assert analyzer.emulate(FOLDER / f"{name}.py", python=PYTHON, device="h100").incomplete is None
