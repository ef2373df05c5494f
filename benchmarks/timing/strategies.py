"""Of two ways to run one program, is the faster named? Steps of every alternative (`advise.py`, rule 1) on a GPU without a limit, beside
what `Estimate.step_seconds` says of each.

1. `strategies` measures: three groups of five steps behind three, of which the median group counts; all alternatives once, then again
   in the other order until time is over. The trials without a limit of the advice's record (five steps each) are of the same ways:
   the mean of all trials counts.
2. Two ways of a program make a **pair** where their steps differ by more than 5 %. Its faster one is named where the prediction puts
   it first. A pair is **apart** where every trial of the one was faster than every trial of the other: what a host takes differs from
   trial to trial.
3. A pair is of the **kind** of what its ways differ in: the micro-batches, the checkpoints, the order of channels.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import files, pages
from benchmarks.timing import advise
from benchmarks.timing.layouts import sentence

RECORD = ROOT / "tests/data/h100/timing/strategies.json.gz"
_APART, _GROUPS = 1.05, 3
_KINDS = {
    "compile": "compilation",
    "budget": "budget",
    "micro": "micro-batches",
    "grad_accumulation": "micro-batches",
    "checkpoint": "checkpoints",
    "channels_last": "channels last",
}
_TEXT = pages.prose(__file__)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a program: what it changes, seconds of a step in every trial, and said, with their range."""

    program: str
    changes: Mapping[str, Any]
    trials: tuple[float, ...]
    said: float
    low: float
    high: float
    bound: str

    @property
    def measured(self) -> float:
        """The mean of its trials."""
        return sum(self.trials) / len(self.trials)


@click.command("strategies")
@click.argument("out", type=Path)
@click.option("--seconds", default=560.0, help="nothing is begun after these")
def measure(out: Path, seconds: float) -> None:
    """Run every program's alternatives on this machine's GPU: seconds of their steps, without a limit."""
    from benchmarks.timing.measure import versions

    until = time.monotonic() + seconds
    advise.warm_up()
    planned = [
        (name, changes)
        for name, program in files.read(advise.RECORD)["programs"].items()
        for changes in program["alternatives"]
    ]
    rows: list[dict[str, Any]] = []
    for name, changes in [*planned, *reversed(planned)]:
        if time.monotonic() > until:
            break
        rows.append({"program": name, **advise.tried(name, changes, None, _GROUPS)})
        print(f"{name} {changes}: {1e3 * rows[-1].get('seconds', 0):.1f} ms", flush=True)
        files.write(out, {"versions": versions(), "rows": rows})


def trials(*records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, Mapping[str, Any], list[float]]]:
    """Of each way: its program, its changes, seconds of every trial without a limit."""
    took: dict[str, tuple[str, Mapping[str, Any], list[float]]] = {}
    for row in (row for rows in records for row in rows if "seconds" in row):
        key = f"{row['program']} {sorted(row['changes'].items())}"
        took.setdefault(key, (row["program"], row["changes"], []))[2].append(row["seconds"])
    return took


def recorded() -> dict[str, tuple[str, Mapping[str, Any], list[float]]]:
    """The trials of both records."""
    advice = files.read(advise.RECORD)["programs"]
    free = [{"program": name, **row} for name, program in advice.items() for row in program["free"]]
    return trials(files.read(RECORD)["rows"], free)


def predicted(took: Mapping[str, tuple[str, Mapping[str, Any], list[float]]]) -> list[Way]:
    """Every measured way, with what is said of it now."""
    import analyzer

    found = []
    for name, changes, times in took.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The second step is like any later one.
            options = {**advise.PROGRAMS[name], **changes, "steps": 2}
            said = analyzer.analyze(advise.target_of(name), device=advise.DEVICE, **options).step_seconds
        if said is not None:
            found.append(Way(name, changes, tuple(times), said.seconds, said.low, said.high, said.bound))
    return found


def pairs_of(ways: Sequence[Way]) -> list[tuple[Way, Way]]:
    """The pairs, the faster one first."""
    found = []
    for one, other in combinations(ways, 2):
        quick, slow = sorted((one, other), key=lambda way: way.measured)
        if quick.program == slow.program and slow.measured > _APART * quick.measured:
            found.append((quick, slow))
    return found


def is_apart(quick: Way, slow: Way) -> bool:
    """Whether every trial of the one was faster than every trial of the other."""
    return max(quick.trials) < min(slow.trials)


def kind_of(one: Way, other: Way) -> str:
    """What two ways differ in."""
    differs = [word for key, word in _KINDS.items() if one.changes.get(key) != other.changes.get(key)]
    return ", ".join(differs) or "nothing"


def table_of_pairs(ways: Sequence[Way]) -> str:
    """A line a program, one for each kind of what pairs differ in, and one of all: of the pairs, and but for kinds of their ways."""

    def cells(pairs: Sequence[tuple[Way, Way]]) -> list[str]:
        right = [quick.said < slow.said for quick, slow in pairs]
        sure = [good for good, pair in zip(right, pairs, strict=True) if is_apart(*pair)]
        some = list({id(way): way for pair in pairs for way in pair}.values())
        within = sum(way.low <= way.measured <= way.high for way in some)
        return [
            str(sum(right)), f"{sum(right) / len(right):.0%}", f"{sum(sure)} of {len(sure)}", str(len(some)),
            pages.middle_and_far(map(error_of, some)), f"{within} of {len(some)}", pages.worst(some, name_of, error_of),
        ]  # fmt: skip

    pairs = pairs_of(ways)
    programs = pages.by_kind(pairs, lambda pair: pair[0].program, cells)
    kinds = pages.by_kind(pairs, lambda pair: f"differ in: {kind_of(*pair)}", lambda some: cells(some)[:3])
    lines = [*programs[:-1], *([*line, "", "", "", ""] for line in kinds[:-1]), programs[-1]]
    return pages.table(_TEXT["head"].split(" | "), lines, "lrrrrrrrl").rstrip()


def error_of(way: Way) -> float:
    """Of its step, as a part of what was measured."""
    return way.said / way.measured - 1


def name_of(way: Way) -> str:
    """ "gpt2.py: grad_accumulation=2"."""
    changes = {key: value for key, value in way.changes.items() if key in _KINDS}
    return f"{way.program}: {pages.shown(changes) or 'as it is'}"


def section(ways: Sequence[Way]) -> str:
    """The part's text."""
    text = _TEXT["opening"].format(
        ways=len(ways),
        versions=files.read(RECORD)["versions"],
        fewest=min(len(way.trials) for way in ways),
        trials=max(len(way.trials) for way in ways),
        apart=max(max(way.trials) / min(way.trials) - 1 for way in ways),
        layouts=sentence(),
    )
    return f"{text}\n\n{table_of_pairs(ways)}"


def lines(ways: Sequence[Way]) -> str:
    """A line a way, in seconds."""
    return pages.records([asdict(way) for way in ways])
