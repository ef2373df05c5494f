"""The measured compiled steps beside what `Estimate.step_seconds` says of them: a part of docs/evidence/TIMING.md.

1. Each case was emulated once with a CUDA build of PyTorch, as `analyzer.emulate` does, and what its last step gives the device
   (`extensions/analyzer_emulation/inside/launches.py`) is recorded: compiled_launches.json.gz (`timing compiled_emulate` of commit
   cf817472). The page predicts from that, by the very function that makes the estimate's figure.
2. Errors, ranges and bounds are counted as in `score.py`; **host** is the time to hand a step over from an idle
   device, less that of the copies from pageable memory, for which it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzer.devices import load
from analyzer_emulation.step import time_of
from analyzer_timing.host import factor_of
from benchmarks.harness import pages
from benchmarks.harness.files import read
from benchmarks.timing.cases import COMPILED, tag
from benchmarks.timing.pack import RAW, of_gpu
from benchmarks.timing.score import Row, summary, table_of_kinds

_TEXT = pages.prose(__file__)

LAUNCHES = RAW / "compiled_launches.json.gz"
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


def section(cases: Sequence[Row]) -> str:
    """The part's text."""
    content = read(RAW / "compiled.json.gz")
    text = _TEXT["opening"].format(versions=content["versions"], factor=factor_of(content["host"]))
    return f"{text}\n\n{table_of_kinds(summary(cases))}"
