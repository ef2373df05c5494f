"""Random programs (`benchmarks/random`): those recorded are followed to the peaks that PyTorch's own CUDA build had, emulated."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from benchmarks.random import campaign
from tests.paths import ROOT

RECORDED: list[dict[str, Any]] = [
    row
    for file in sorted((ROOT / "tests/data").glob("random_programs_*.json.gz"))
    for row in json.loads(gzip.decompress(file.read_bytes()))
]


def test_a_seed_gives_programs_that_python_reads() -> None:
    drawn = campaign.drawn(3, 20)
    assert len(drawn) == 20 and drawn == campaign.drawn(3, 20)
    for text in drawn:
        compile(text, "program.py", "exec")


@pytest.mark.parametrize("part", range(6))
@pytest.mark.sampled(2)
def test_recorded_programs_have_the_peaks_that_were_emulated(tmp_path: Path, part: int) -> None:
    """A sixth of those recorded, half with `-m campaign`, in parts; as an H100, by torch 2.11 with a cuDNN that was asked."""
    script = tmp_path / "program.py"
    wrong = []
    for row in RECORDED[part::12]:
        if "nn.Conv2d" in row["program"]:
            continue  # here nobody asks cuDNN
        script.write_text(row["program"])
        found = analyzer.run(script, device=campaign.DEVICE, release={"torch": "2.11"}, engine="trace")
        if (found.peak_allocated, found.peak_reserved, found.incomplete) != (
            row["allocated"],
            row["reserved"],
            None,
        ):
            wrong.append(
                (row["seed"], row["number"], found.peak_allocated, row["allocated"], found.incomplete)
            )
    assert not wrong
