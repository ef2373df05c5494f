"""Ways to run a few programs, compiled and not: as they were measured on an H100, and what is predicted of them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median
from typing import Any

from analyzer.devices import load
from analyzer_emulation.step import time_of
from analyzer_timing.host import factor_of
from benchmarks.harness.files import read
from benchmarks.timing.cases import WAYS, tag
from benchmarks.timing.compiled_score import DEVICE, LAUNCHES
from benchmarks.timing.pack import RAW
from benchmarks.timing.score import predicted

_CHANGES = ("compile", "budget", "micro")
_APART = 1.05


@dataclass(frozen=True, slots=True)
class Way:
    """Seconds of a step, measured (the median of three groups of five steps) and predicted."""

    program: str
    seconds: float
    predicted_seconds: float


def ways() -> list[Way]:
    """Return every measured way that is also predicted."""
    content, emulated = read(RAW / "compiled.json.gz"), read(LAUNCHES)["cases"]
    measured = {tag(row["case"]): row for row in content["rows"] if "wall" in row}
    factor = factor_of(content["host"])
    profile, found = replace(load(DEVICE), host_factor=factor), []
    for case in WAYS:
        row = measured.get(tag(case))
        if row is None:
            continue
        launches = emulated.get(tag(case), ())
        step = time_of(launches, profile) if "compile" in case else predicted(case, factor)
        if step is not None:
            found.append(Way(_program(case), median(row["walls"]), step.seconds))
    return found


def reserved_bytes() -> list[tuple[int, int]]:
    """Return (measured, predicted) bytes that the allocator reserved, of every way that was emulated."""
    measured = {
        tag(row["case"]): row["reserved"] for row in read(RAW / "compiled.json.gz")["rows"] if "wall" in row
    }
    predicted_bytes = read(LAUNCHES)["reserved"]
    cases = [tag(case) for case in WAYS]
    return [
        (measured[name], predicted_bytes[name])
        for name in cases
        if name in measured and name in predicted_bytes
    ]


def _program(case: Mapping[str, Any]) -> str:
    return tag({name: value for name, value in case.items() if name not in _CHANGES})


def pairs_of(found: Sequence[Way]) -> list[tuple[Way, Way]]:
    """Return two ways of one program whose steps differ by more than 5 %, the faster one first."""
    pairs = [sorted(pair, key=lambda way: way.seconds) for pair in combinations(found, 2)]
    return [
        (quick, slow)
        for quick, slow in pairs
        if quick.program == slow.program and slow.seconds > _APART * quick.seconds
    ]
