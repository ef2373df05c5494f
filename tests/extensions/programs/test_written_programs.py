"""Programs that were written to be difficult, or drawn by lot (`written_programs*.json.gz` of `tests/data`), beside what they
took on an H100 or an H200."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from tests.paths import DATA

WRITTEN: dict[str, dict[str, Any]] = {
    row["name"]: row
    for path in sorted(DATA.glob("h*00/written_programs*.json.gz"))
    for row in json.loads(gzip.decompress(path.read_bytes()))
}


# Quick ones that ask cuDNN for nothing.
@pytest.mark.parametrize(
    "name",
    [
        "linear_attn_chunked", "rope_alibi_window", "paged_kv_cache", "chunked_ce_muon", "sinkhorn_barycentre",
        "packed_varlen_attention", "kmeans_tsne", "h200_tfm_019", "h200_rnn_014",
    ],
)  # fmt: skip
@pytest.mark.sampled(3)
def test_a_program_takes_what_it_took_on_the_gpu(tmp_path: Path, name: str) -> None:
    row, script = WRITTEN[name], tmp_path / f"{name}.py"
    script.write_text(row["source"])
    device = "h200" if row["gpu"].endswith("H200") else "h100"
    found = analyzer.run(script, device=device, release={"torch": "2.11"}, engine="trace")
    assert (found.peak_allocated, found.peak_reserved) == (row["peak_allocated"], row["peak_reserved"])
    assert found.incomplete is None
