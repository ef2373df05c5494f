"""Convolutions executed in benchmark mode on an H200 (`python -m benchmarks cudnn executed` of commit cf817472)."""

from __future__ import annotations

import gzip
import json

from analyzer.libraries.cudnn.convolution import Convolution
from tests.paths import DATA

TRIALS = DATA / "h200" / "convolution_trials.json.gz"


def executed() -> list[tuple[Convolution, int, int]]:
    """(call, largest request of its trials, workspace of the winner): each was executed twice."""
    with gzip.open(TRIALS, "rt") as file:
        rows = json.load(file)["calls"]
    return [
        (Convolution(*row[:3], *(tuple(part) for part in row[3:8])), row[8], row[9])  # type: ignore[arg-type]
        for row in rows
    ]
