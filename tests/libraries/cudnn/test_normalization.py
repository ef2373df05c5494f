"""Batch norm's workspace, beside what a handle says (`python -m benchmarks cudnn normalization`)."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import pytest

from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES
from analyzer.libraries.cudnn.normalization import workspace_bytes
from tests.paths import DATA

ROWS = json.loads(gzip.decompress((DATA / "h200/batch_norm.json.gz").read_bytes()))["rows"]


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_what_a_handle_says(dtype: str) -> None:
    def told(batch: int, channels: int, *rest: int) -> Any:
        *spatial, forward, backward, kept = rest
        rows = batch * math.prod(spatial)
        assert kept == 0
        return (
            (batch, channels, *spatial),
            [workspace_bytes(rows, channels, ELEMENT_BYTES[dtype], backward=back) for back in (False, True)],
            [forward, backward],
        )

    rows = [told(*row[1:]) for row in ROWS if row[0] == dtype]
    assert len(rows) == 1300
    assert [shape for shape, computed, said in rows if computed != said] == []
