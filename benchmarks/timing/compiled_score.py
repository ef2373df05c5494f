"""The measured compiled steps beside what `Estimate.step_seconds` says of them: a part of docs/evidence/TIMING.md.

1. `python -m benchmarks timing compiled_emulate PYTHON` emulates each case with a CUDA build of PyTorch, as `analyzer.emulate` does,
   and records what its last step gives the device (`extensions/analyzer_emulation/inside/launches.py`): compiled_launches.json.gz. It takes
   minutes a case, so that the page predicts from what was recorded, by the very function that makes the estimate's figure.
2. Errors, ranges and bounds are counted as in `score.py`; **host** is the time to hand a step over from an idle
   device, less that of the copies from pageable memory, for which it waits.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from analyzer.devices import load
from analyzer_emulation.step import time_of
from analyzer_timing.host import factor_of
from benchmarks.harness import pages
from benchmarks.harness.files import read, write
from benchmarks.timing.cases import COMPILED, WAYS, tag
from benchmarks.timing.pack import RAW, of_gpu
from benchmarks.timing.score import Row, summary, table_of_kinds

_TEXT = pages.prose(__file__)

LAUNCHES = RAW / "compiled_launches.json.gz"
SCRIPT = "-m benchmarks.timing.compiled_step"  # found in the working folder
DEVICE = "h100"


def rows(gpu: str = DEVICE) -> list[Row]:
    """Every case measured on a GPU with recorded launches, predicted now."""
    content, launches, found = read(of_gpu(gpu) / "compiled.json.gz"), read(LAUNCHES)["cases"], list[Row]()
    measured = {tag(row["case"]): row for row in content["rows"] if "wall" in row}
    profile = replace(load(gpu), host_factor=factor_of(content["host"]))
    for group, cases in COMPILED.items():
        for case in cases:
            row, said = measured.get(tag(case)), time_of(launches.get(tag(case), ()), profile)
            if row is not None and said is not None:
                found.append(
                    Row(
                        group,
                        case,
                        sum(row["streams"].values()),
                        row["host"],
                        row["wall"],
                        said,
                    )
                )
    return found


def emulated(python: str, case: dict[str, Any]) -> tuple[Sequence[dict[str, Any]], int]:
    """What the last of five steps of a case gives the device, and the bytes its allocator reserves, emulated as an H100 by this
    Python's PyTorch."""
    from analyzer.options import Options
    from analyzer.ranks import Rank
    from analyzer_emulation.emulated import of_script

    with tempfile.TemporaryDirectory(prefix="compiled-") as folder:
        job = Path(folder) / "case.json"
        job.write_text(json.dumps(case), "utf-8")
        found = of_script(
            SCRIPT, [str(job)], Options(device=DEVICE), python, {"OMP_NUM_THREADS": "1"}, Rank()
        )
    return found.record.get("launches", ()), found.estimate.peak_reserved


@click.command("compiled_emulate")
@click.argument("python")
@click.option("--together", default=max((os.cpu_count() or 2) // 2, 1), help="cases at once")
@click.option("--only", default="", help="cases whose line has this in it")
def emulate(python: str, together: int, only: str) -> None:
    """Emulate the cases with this Python's PyTorch, and record what each step gives the device."""
    found = read(LAUNCHES) if LAUNCHES.exists() else {"cases": {}, "reserved": {}}
    ways = [case for case in WAYS if "compile" in case]
    chosen = [
        case
        for case in (*(case for cases in COMPILED.values() for case in cases), *ways)
        if only in tag(case)
    ]
    with ProcessPoolExecutor(together) as pool:
        for case, (launches, held) in zip(
            chosen, pool.map(functools.partial(emulated, python), chosen), strict=True
        ):
            found["cases"][tag(case)] = launches
            if case in WAYS:
                found["reserved"][tag(case)] = held
            print(f"{tag(case)}: {len(launches)}", flush=True)
            write(LAUNCHES, found)


def section(cases: Sequence[Row]) -> str:
    """The part's text."""
    content = read(RAW / "compiled.json.gz")
    text = _TEXT["opening"].format(versions=content["versions"], factor=factor_of(content["host"]))
    return f"{text}\n\n{table_of_kinds(summary(cases))}"
