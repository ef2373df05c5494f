"""Damaged ONNX files end in an estimate or in one clear error: a few hundred here, `benchmarks/damaged` tries a million.

`tests/data/onnx_damaged.json` is what the last campaign found, by seeds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import pytest

from analyzer.errors import AnalyzerError, TargetError
from benchmarks.damaged import campaign
from benchmarks.subjects.damaged.damage import OUTSIDE, damaged
from benchmarks.subjects.damaged.models import bases
from tests.paths import PYTHONPATH, ROOT

_COUNT = 600


def test_sound_models_are_sound() -> None:
    """Nearly everything that is damaged could be analysed before."""
    refused = []
    for base in bases():
        model = base.model()
        try:
            onnx.checker.check_model(model)
        except onnx.checker.ValidationError:
            refused.append(base.name)
    assert len(bases()) > 150
    assert len(refused) < 0.05 * len(bases()), refused


def test_a_seed_is_a_file() -> None:
    assert damaged(17) == damaged(17)
    different = {damaged(seed).data for seed in range(200)}
    assert len(different) > 195


def test_a_part_of_the_campaign(tmp_path: Path) -> None:
    """In two processes, with the same limits as the whole one; from a fresh process, since what this one has imported would
    not go into them."""
    out = tmp_path / "found.json"
    command = [
        sys.executable,
        "-P",
        "-m",
        "benchmarks",
        "damaged",
        "score",
        "--count",
        str(_COUNT),
        "-o",
        out,
    ]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=300, cwd=ROOT, env=environment)
    found = json.loads(out.read_text())
    assert found.get("findings", []) == []
    assert found["ranges"] == [[0, _COUNT]]
    assert sum(found["outcomes"].values()) == _COUNT
    assert found["outcomes"]["estimate"] > 0.2 * _COUNT
    assert found["peak_bytes"] < campaign.LIMIT_BYTES


def test_ranges() -> None:
    have = [(0, 10), (3000, 3001)]
    assert list(campaign.missing(have, 0, 5000)) == [(10, 2010), (2010, 3000), (3001, 5000)]
    results = campaign.Results(ranges=[(0, 10)])
    results.add(campaign.Results(ranges=[(10, 20), (30, 30)]))
    assert results.ranges == [(0, 20)]


@pytest.fixture(scope="module")
def child() -> Iterator[Executor]:
    """Examines in a process of its own: an audit hook stays in its process, and each is called for whatever frame is looked at, in
    all tests that follow."""
    quiet = (sys, "dont_write_bytecode", True)  # as the campaign is
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), setattr, quiet) as made:
        yield made


def examined(folder: Path, seed: int, analyze: Callable[..., None] | None = None) -> tuple[str, str]:
    """What came of the seed's file. analyze: what stands in the analysis's place."""
    with mock.patch.object(campaign.analyzer, "analyze", analyze or campaign.analyzer.analyze):
        return campaign.Examiner(folder).examine(damaged(seed))


class Raise:
    """An analysis that ends with this error."""

    def __init__(self, kind: type[Exception], *words: str) -> None:
        self.kind, self.words = kind, words

    def __call__(self, *_: object, **__: object) -> None:
        raise self.kind(*self.words)


class Open:
    """An analysis that opens this file beside the model."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, target: str, **_: object) -> None:
        os.close(os.open(Path(target).parent / self.path, os.O_RDONLY | os.O_NONBLOCK))


@pytest.mark.parametrize(
    ("error", "what"),
    [
        ((ZeroDivisionError, "x"), "ZeroDivisionError: x"),
        ((MemoryError,), "MemoryError"),
        ((TargetError, "no hint"), "an error without message or hint"),
        ((TargetError, "two\nlines", "h"), "an error whose text is no line"),
    ],
)
def test_what_must_not_be_is_found(
    child: Executor, tmp_path: Path, error: tuple[Any, ...], what: str
) -> None:
    outcome, said = child.submit(examined, tmp_path, 0, Raise(*error)).result()
    assert outcome == "finding"
    assert said.startswith(what)


@pytest.mark.parametrize("path", [OUTSIDE, "/etc/hostname", "model/../../x"])
def test_what_is_opened_outside_is_found(child: Executor, tmp_path: Path, path: str) -> None:
    outcome, said = child.submit(examined, tmp_path, 0, Open(path)).result()
    assert (outcome, said.split(":")[0]) == ("finding", "outside the folder")


@pytest.mark.parametrize(
    "seed",
    [99, 7317, 9590, 10405, 12930, 21563, 33491, 59572, 27844, 309558, 653665, 951646, 4000023, 4000030],
)
def test_what_earlier_campaigns_found(child: Executor, tmp_path: Path, seed: int) -> None:
    """Seeds that ended otherwise once: a batch no integer type holds, shapes of a million dimensions, a region the
    device has no room for, a reduction of a sequence, subgraphs that do not fit their node, a kernel without results."""
    assert child.submit(examined, tmp_path, seed).result()[0] != "finding"


def test_a_huge_batch_is_one_error() -> None:
    import analyzer

    for batch in (2**63, 10**30, 10**5000):
        with pytest.raises(AnalyzerError, match="larger than a dimension"):
            analyzer.analyze(ROOT / "models/cnn.onnx", batch=batch)


def test_the_recorded_campaign_is_whole_and_found_nothing() -> None:
    recorded = json.loads((Path(__file__).parents[1] / "data" / "onnx_damaged.json").read_text())
    assert recorded["ranges"] == [[0, 1_000_000]]
    assert sum(recorded["outcomes"].values()) == recorded["count"] == 1_000_000
    assert recorded["findings"] == []
    assert recorded["peak_bytes"] < campaign.LIMIT_BYTES
    assert recorded["slowest"]["seconds"] < campaign.SECONDS
