"""Of two ways to run one program, compiled or not, is the faster named? A part of docs/evidence/TIMING.md.

1. The ways (`cases.json`, "ways") are of programs whose models no rule of compiled code was written beside: as it is, compiled, compiled
   with CUDA graphs, with a smaller `activation_memory_budget`, and with the batch in two micro-batches. They are measured and emulated
   like the compiled cases (`compiled.py`, `compiled_score.py`); what is not compiled is predicted from its trace.
2. Pairs are those of `strategies.py`. Of a way three groups of five steps were timed, in one process: they are its trials, of which the
   median counts.
3. For each program and each limit that one of its compiled ways needs, the **choice** is what `analyze advise --compiled` goes by: the
   way that is said to be the fastest of those that are said to fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from analyzer.devices import load
from analyzer_emulation.step import time_of
from analyzer_timing.host import factor_of
from benchmarks.harness import pages
from benchmarks.harness.files import read
from benchmarks.timing.cases import WAYS, tag
from benchmarks.timing.compiled_score import DEVICE, LAUNCHES
from benchmarks.timing.pack import RAW
from benchmarks.timing.score import predicted
from benchmarks.timing.strategies import Way, table_of_pairs

_TEXT = pages.prose(__file__)
_CHANGES = ("compile", "budget", "micro")
_NEAR = 1.05


@dataclass(frozen=True, slots=True)
class Timed(Way):
    """A way whose trials are groups of steps of one process."""

    @property
    def measured(self) -> float:
        """The median of its trials."""
        return median(self.trials)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A way, with the bytes its allocator reserved, measured and said; said: None where it was not emulated."""

    way: Way
    held: int
    said: int | None


def ways() -> list[Compiled]:
    """Every measured way that is also predicted."""
    content, emulated = read(RAW / "compiled.json.gz"), read(LAUNCHES)
    measured = {tag(row["case"]): row for row in content["rows"] if "wall" in row}
    factor = factor_of(content["host"])
    profile, found = replace(load(DEVICE), host_factor=factor), []
    for case in WAYS:
        row = measured.get(tag(case))
        if row is None:
            continue
        launches = emulated["cases"].get(tag(case), ())
        said = time_of(launches, profile) if "compile" in case else predicted(case, factor)
        if said is None:
            continue
        changes = {name: case[name] for name in _CHANGES if name in case}
        program, walls = _program(case), tuple(row["walls"])
        way = Timed(program, changes, walls, said.seconds, said.low, said.high, said.bound)
        found.append(Compiled(way, row["reserved"], emulated["reserved"].get(tag(case))))
    return found


def _program(case: Mapping[str, Any]) -> str:
    return tag({name: value for name, value in case.items() if name not in _CHANGES})


def advised(found: Sequence[Compiled]) -> list[tuple[str, int, Compiled, Compiled | None]]:
    """For each program and limit: the way that is said to be the fastest that fits, and the one that is by what was measured."""
    rows = []
    for program in dict.fromkeys(one.way.program for one in found):
        those = [one for one in found if one.way.program == program and one.said is not None]
        for limit in sorted({max(one.held, one.said or 0) for one in those}):
            fits = [one for one in those if (one.said or 0) <= limit]
            runs = [one for one in those if one.held <= limit]
            if fits:
                best = min(runs, key=lambda one: one.way.measured, default=None)
                rows.append((program, limit, min(fits, key=lambda one: one.way.said), best))
    return rows


def section(found: Sequence[Compiled]) -> str:
    """The part's text."""
    choices = advised(found)
    near = [
        choice
        for choice in choices
        if choice[2].held <= choice[1]
        and (choice[3] is None or choice[2].way.measured <= _NEAR * choice[3].way.measured)
    ]
    text = _TEXT["opening"].format(
        ways=len(found), choices=len(choices), ran=sum(one.held <= limit for _, limit, one, _ in choices), near=len(near)
    )  # fmt: skip
    return f"{text}\n\n{table_of_pairs([one.way for one in found])}"


def lines(found: Sequence[Compiled]) -> str:
    """A line a way, in seconds, with the bytes reserved, measured and said."""
    return pages.records(
        [{**asdict(one.way), "reserved": one.held, "reserved, said": one.said} for one in found]
    )
