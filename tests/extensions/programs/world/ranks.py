"""One rank of a program given as text, as the tests of this room follow it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from analyzer.analysis import Analysis
from analyzer.options import Options
from analyzer.ranks import Rank
from analyzer_programs.program import follow

JOIN = """
import os, torch, torch.distributed as dist
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
"""


def followed(folder: Path, text: str, ranks: int = 2, rank: int = 0) -> Analysis:
    """The analysis of one rank of a program of this text, which has joined the others."""
    return program(folder, JOIN + text, ranks, rank)


def program(folder: Path, text: str, ranks: int = 2, rank: int = 0) -> Analysis:
    """The analysis of one rank of a program of this text."""
    script = folder / "program.py"
    script.write_text(text)
    job = replace(Rank.of(rank, ranks), launched=True)
    found, error = follow(script, [], Options(device="h200"), {}, "end", job=job)
    if error is not None:
        raise error
    return found
