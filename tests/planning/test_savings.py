"""Savings of every strategy that `analyze what-if` named for three models, beside what an H200 measured."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

import analyzer
from tests.paths import DATA, MODELS

ROWS: list[dict[str, Any]] = json.loads((DATA / "h200/what_if.json").read_text())
BASES = {row["model"]: row for row in ROWS if row["strategy"] == "as it is"}
ALLOWED = 0.005  # of the base's device memory


@cache
def predicted(model: str, options: str) -> int:
    return analyzer.analyze(MODELS / model, device="h200", **json.loads(options)).device_used


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if "measured" in row and row not in BASES.values()],
    ids=lambda row: f"{row['model']} {row['strategy']}",
)
@pytest.mark.campaign
def test_a_saving_is_the_measured_one(row: dict[str, Any]) -> None:
    base = BASES[row["model"]]
    whole = base["measured"]["device"]
    saved = predicted(row["model"], json.dumps(base["options"])) - predicted(
        row["model"], json.dumps(row["options"])
    )
    assert abs(saved - (whole - row["measured"]["device"])) <= ALLOWED * whole
