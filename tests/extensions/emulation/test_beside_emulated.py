"""Whole programs (`tests/extensions/emulation/programs`), followed beside what PyTorch's own host code asked for under the emulated runtime (torch 2.11, or the release after an @).

Recorded: `analyze run --engine emulate --device h100 --format json PROGRAM`, its timeline's changes in bytes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

import analyzer
from tests.paths import DATA, ROOT

RECORDED = json.loads((DATA / "emulation/programs.json").read_text("utf-8"))
FOLDER = ROOT / "tests/extensions/emulation/programs"
PYTHON = os.environ.get("ANALYZER_CUDA_PYTHON")
needs_cuda = pytest.mark.skipif(
    PYTHON is None, reason="ANALYZER_CUDA_PYTHON names no Python with a CUDA build of PyTorch"
)


def changes(estimate: analyzer.Estimate) -> list[int]:
    """Bytes taken and given back, in order."""
    assert estimate.incomplete is None
    return [change for change in json.loads(estimate.to_json())["timeline"]["delta"] if change]


def traced(name: str) -> list[int]:
    """Of a program as a release of torch has it, "NAME@2.15"; 2.11 where none is said."""
    program, _, release = name.partition("@")
    return changes(
        analyzer.run(
            FOLDER / f"{program}.py", device="h100", engine="trace", release={"torch": release or "2.11"}
        )
    )


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """One of its own, as a user's is: what other tests leave in theirs moves the moment at which an argument is given back."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        yield process


@pytest.mark.parametrize("name", RECORDED)
def test_the_same_requests_in_the_same_order(name: str, process: ProcessPoolExecutor) -> None:
    assert process.submit(traced, name).result() == RECORDED[name]


@needs_cuda
@pytest.mark.parametrize("name", [name for name in RECORDED if "@" not in name])
def test_it_is_what_is_asked_for_today(name: str) -> None:
    assert changes(analyzer.emulate(FOLDER / f"{name}.py", python=PYTHON, device="h100")) == RECORDED[name]


def between_requests(changes: list[int]) -> list[int]:
    """What is given back between two requests, in order of size: its own order changes nothing that the allocator does."""
    given_back: list[int] = []
    ordered: list[int] = []
    for change in [*changes, 0]:
        if change < 0:
            given_back.append(change)
        else:
            ordered += [*sorted(given_back), change]
            given_back = []
    return ordered[:-1]


# Before, what cuSPARSE, gemv and the loss of single rows read of gradients that are expanded or transposed was not copied: up to
# 13.5 % under; and matrices of blocks were refused.
ANY_ORDER = {
    name: json.loads((DATA / f"emulation/{name}.json").read_text("utf-8")) for name in ("expanded", "blocked")
}


@pytest.mark.parametrize("name", ANY_ORDER)
def test_the_same_requests_whatever_order_is_given_back_in(name: str, process: ProcessPoolExecutor) -> None:
    assert between_requests(process.submit(traced, name).result()) == ANY_ORDER[name]


@needs_cuda
@pytest.mark.parametrize("name", ANY_ORDER)
def test_these_requests_are_made_today(name: str) -> None:
    emulated = analyzer.emulate(FOLDER / f"{name}.py", python=PYTHON, device="h100")
    assert between_requests(changes(emulated)) == ANY_ORDER[name]


@needs_cuda
@pytest.mark.parametrize("name", ["layouts", "reused"])
def test_it_runs_through(name: str) -> None:
    """What has no plain memory is not looked into; what is known of memory that is used again."""
    assert analyzer.emulate(FOLDER / f"{name}.py", python=PYTHON, device="h100").incomplete is None
