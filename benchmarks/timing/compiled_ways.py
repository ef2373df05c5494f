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
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import click

from analyzer.devices import load
from analyzer.emulation.step import time_of
from analyzer.timing.host import factor_of
from benchmarks.harness import pages
from benchmarks.harness.files import read
from benchmarks.timing.cases import WAYS, tag
from benchmarks.timing.compiled_score import DEVICE, LAUNCHES
from benchmarks.timing.pack import RAW
from benchmarks.timing.score import PAGE, predicted
from benchmarks.timing.strategies import Way, is_apart, pairs_of

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


def section(found: Sequence[Compiled]) -> list[str]:
    """The page's part."""
    all_ways = [one.way for one in found]
    pairs = pairs_of(all_ways)
    right = [pair for pair in pairs if pair[0].said < pair[1].said]
    sure = [pair for pair in pairs if is_apart(*pair)]
    good = [pair for pair in sure if pair in right]
    within = sum(way.low <= way.measured <= way.high for way in all_ways)
    choices = advised(found)
    ran = [choice for choice in choices if choice[2].held <= choice[1]]
    near = [
        choice
        for choice in ran
        if choice[3] is None or choice[2].way.measured <= _NEAR * choice[3].way.measured
    ]
    text = _TEXT["opening"].format(
        ways=len(found), programs=len({way.program for way in all_ways}), pairs=len(pairs), right=len(right),
        share=f"{len(right) / max(len(pairs), 1):.1%}", sure=len(sure), good=len(good), within=within,
        choices=len(choices), ran=len(ran), near=len(near),
    )  # fmt: skip
    lines = [
        [
            one.way.program, _words(one.way.changes), f"{1e3 * one.way.measured:.2f}", f"{1e3 * one.way.said:.2f}",
            f"{one.way.said / one.way.measured - 1:+.0%}",
            f"{1e3 * one.way.low:.2f} to {1e3 * one.way.high:.2f}"
            + ("" if one.way.low <= one.way.measured <= one.way.high else " (no)"),
            f"{'' if one.said is None else f'{one.said / 2**20:,.0f}'} / {one.held / 2**20:,.0f}",
        ]
        for one in found
    ]  # fmt: skip
    head = ("program", "way", "step ms", "said", "", "range", "reserved MiB, said / measured")
    choice_lines = [
        [program, f"{limit / 2**20:,.0f}", _words(best.way.changes), f"{1e3 * best.way.measured:.2f}"
         if best.held <= limit else "does not fit", "" if other is None else f"{1e3 * other.way.measured:.2f}"]
        for program, limit, best, other in choices
    ]  # fmt: skip
    return [
        text, pages.table(head, lines, "llrrrlr").rstrip(),
        pages.table(("program", "limit MiB", "said to be the fastest", "step ms", "best"), choice_lines, "lrlrr").rstrip(),
    ]  # fmt: skip


def _words(changes: Mapping[str, Any]) -> str:
    parts = [f"compile={changes['compile']}"] if "compile" in changes else []
    parts += [f"budget {changes['budget']}"] if "budget" in changes else []
    parts += [f"{changes['micro']} micro-batches"] if "micro" in changes else []
    return ", ".join(parts) or "as it is"


@click.command("compiled_ways_table")
def table() -> None:
    """Write the compiled ways' part of docs/evidence/TIMING.md."""
    pages.write_part(PAGE, "ways", "\n\n".join(section(ways())))
