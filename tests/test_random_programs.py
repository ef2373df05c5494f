"""Random programs (`benchmarks/random`): those recorded are followed to the peaks that PyTorch's own CUDA build had, emulated."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import analyzer
from benchmarks.random import campaign
from tests import forked
from tests.paths import PYTHONPATH, ROOT

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


@pytest.mark.parametrize(
    ("recorded", "answer"),
    [
        (1024, "the same requests: the allocator's doing\n"),
        (2048, "predicted 1,024 bytes for aten::ones.default, recorded 2,048"),
    ],
)
def test_the_first_difference_from_a_history_is_named(tmp_path: Path, recorded: int, answer: str) -> None:
    (tmp_path / "cases").mkdir()
    program = (
        "import torch\nfirst = torch.ones(1000, device='cuda')\nsecond = torch.ones(256, device='cuda')\n"
    )
    (tmp_path / "cases/two.py").write_text(program)
    (tmp_path / "rows.json").write_text(json.dumps([{"name": "two"}]))
    np.savez(
        tmp_path / "two.npz",
        actions=["alloc"],
        act=[0, 0],
        addr=[0, 1],
        size=[4000, recorded],
        base=[1 << 20, 1 << 21],
    )
    with tarfile.open(tmp_path / "histories.tgz", "w:gz") as archive:
        archive.add(tmp_path / "two.npz", "x_two.npz")
    words = ("random", "why", str(tmp_path / "rows.json"), str(tmp_path / "histories.tgz"))
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    ran = forked.ran("-m", "benchmarks", *words, "two", folder=tmp_path, variables=environment)
    assert ran.returncode == 0 and ran.stdout.startswith(answer), ran
    absent = forked.ran("-m", "benchmarks", *words, "three", folder=tmp_path, variables=environment)
    assert absent.returncode == 2 and "has no row of it" in absent.stderr
