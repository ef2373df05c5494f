"""Predictions of the programs of `jobs.json` beside what two H200 took: python -m benchmarks ranks table

Measured: `tests/data/h200/ranks.json`, by `measure.py` (its rows say with which GPU and versions).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import click

from analyzer import run
from benchmarks import ROOT
from benchmarks.harness.pages import beside

HERE = ROOT / "benchmarks/ranks"
ROWS = ROOT / "tests/data/h200/ranks.json"
PAGE = ROOT / "docs/evidence/RANKS.md"
_HEAD = """# Ranks, predicted and measured

Each rank of these programs (`benchmarks/ranks/programs`) beside what it took on two H200 (torch 2.11.0+cu130, NCCL 2.28.9,
NVLink, 22 November 2026). Made by `python -m benchmarks ranks table`; the figures are predicted with the
torch that is installed, 2.13 here.

MiB measured, and how far the prediction is from it:

| program | rank | allocated | | reserved | | device | |
|---|---|---|---|---|---|---|---|
"""
_TAIL = """
Where allocated is too low, DDP's replaced buckets lived on until NCCL's watchdog looked, every 100 ms: these steps are
shorter, and the estimate says so. Reserved is too high under FSDP1 because blocks another stream uses are taken to be busy
until the host waits.

In a pipeline, reserved depends on when a message is through, which no clock tells here; torch 2.13 exchanges shapes and
gradients' shapes by running a microbatch, 2.11, which was measured, in another way (with 2.11's own pipelining, the last
stage's reservation is 0.4 % too high instead).

What NCCL logs of itself (`NCCL_DEBUG_SUBSYS=ALLOC`, 8 of these programs, both ranks: `tests/data/h200/nccl_log.json`, by
`measure.py --log` and `nccl_log.py`) is what `libraries/nccl.py` counts, to the allocation: `tests/libraries/test_nccl.py`. Not in
the log: the library's code, which the driver loads (356 MiB, and 62 for sends and receives), and 2 to 6 MiB of some ranks that
nothing explains.
"""


def rows(
    names: Sequence[str] | None = None, ranks: list[int] | None = None
) -> Iterator[tuple[str, int, list[tuple[int, int]]]]:
    """Program, rank, and (predicted, measured) bytes: allocated, reserved, device. names, ranks: these only."""
    jobs = {job["name"]: job for job in json.loads((HERE / "jobs.json").read_text())}
    for row in json.loads(ROWS.read_text()):
        job = jobs[row["name"]]
        if (names and row["name"] not in names) or (ranks is not None and row["rank"] not in ranks):
            continue
        found = run(HERE / "programs" / job["program"], job["args"], device="h200", ranks=2, rank=row["rank"])
        pairs = [
            (found.peak_allocated or 0, row["peak_allocated"]),
            (found.peak_reserved or 0, row["peak_reserved"]),
            (found.device_used or 0, row["nvml_peak"]),
        ]
        yield row["name"], row["rank"], pairs


def cells(pairs: list[tuple[int, int]]) -> str:
    """Cells of a table for (predicted, measured) bytes: MiB measured, and how far the prediction is from it."""
    return " | ".join(beside(got, measured) for got, measured in pairs)


def page(names: Sequence[str] = ()) -> str:
    """The page, of these programs; all, where none is named."""
    lines = [f"| {name} | {rank} | {cells(pairs)} |" for name, rank, pairs in rows(names)]
    return _HEAD + "\n".join(lines) + "\n" + _TAIL


@click.command()
@click.argument("names", nargs=-1)
def score(names: tuple[str, ...]) -> None:
    """Follow every program's ranks, or those named, and print the table."""
    print(page(names))


@click.command()
def table() -> None:
    """Follow every program's ranks, and write the page."""
    PAGE.write_text(page())
