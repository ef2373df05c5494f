"""Damaged ONNX files end in an estimate or in one clear error: a few hundred here, `benchmarks/damaged` tries a million.

`tests/data/onnx_damaged.json` is what the last campaign found, by seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from analyzer.errors import AnalyzerError, TargetError
from benchmarks.damaged import campaign
from benchmarks.damaged.damage import OUTSIDE, damaged
from benchmarks.damaged.models import bases
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


@pytest.mark.parametrize(
    ("raised", "what"),
    [
        (ZeroDivisionError("x"), "ZeroDivisionError: x"),
        (MemoryError(), "MemoryError"),
        (TargetError("no hint"), "an error without message or hint"),
        (TargetError("two\nlines", "h"), "an error whose text is no line"),
    ],
)
def test_what_must_not_be_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, what: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr(campaign.analyzer, "analyze", fail)
    outcome, said = campaign.Examiner(tmp_path).examine(damaged(0))
    assert outcome == "finding"
    assert said.startswith(what)


@pytest.mark.parametrize("path", [OUTSIDE, "/etc/hostname", "model/../../x"])
def test_what_is_opened_outside_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    examiner = campaign.Examiner(tmp_path)

    def look(*_: Any, **__: Any) -> None:
        import os

        os.close(os.open(examiner.folder / path, os.O_RDONLY | os.O_NONBLOCK))

    monkeypatch.setattr(campaign.analyzer, "analyze", look)
    outcome, said = examiner.examine(damaged(0))
    assert (outcome, said.split(":")[0]) == ("finding", "outside the folder")


@pytest.mark.parametrize(
    "seed",
    [99, 7317, 9590, 10405, 12930, 21563, 33491, 59572, 27844, 309558, 653665, 951646, 4000023, 4000030],
)
def test_what_earlier_campaigns_found(tmp_path: Path, seed: int) -> None:
    """Seeds that ended otherwise once: a batch no integer type holds, shapes of a million dimensions, a region the
    device has no room for, a reduction of a sequence, subgraphs that do not fit their node, a kernel without results."""
    assert campaign.Examiner(tmp_path).examine(damaged(seed))[0] != "finding"


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
