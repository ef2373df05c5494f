"""Ranks beside what two H200 took (`tests/data/h200/ranks.json`)."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("torch")

from tests.paths import ROOT

spec = importlib.util.spec_from_file_location("ranks_score", ROOT / "benchmarks/ranks/score.py")
assert spec is not None and spec.loader is not None
score = importlib.util.module_from_spec(spec)
spec.loader.exec_module(score)


@pytest.mark.parametrize("name", ["ddp_unused", "accumulate"])
def test_a_rank_takes_what_it_took_on_two_gpus(name: str) -> None:
    for _, _, ((allocated, measured), (reserved, held), (device, shown)) in score.rows([name]):
        assert allocated == measured
        assert reserved == pytest.approx(held, rel=0.002)
        assert device == pytest.approx(shown, rel=0.002)
        break  # both ranks took the same
