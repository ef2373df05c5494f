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
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
_KINDS = {"grad_accumulation": "micro-batches", "checkpoint": "checkpoints", "channels_last": "channels last"}


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


def section(ways: Sequence[Way], versions: Mapping[str, str]) -> list[str]:
    """The page's part: how many pairs are named rightly, by kind and by program, and every way."""
    pairs = pairs_of(ways)
    right = [pair for pair in pairs if pair[0].said < pair[1].said]
    sure = [pair for pair in pairs if is_apart(*pair)]
    good = [pair for pair in sure if pair in right]
    within = sum(way.low <= way.measured <= way.high for way in ways)
    fewest, trials_at_most = (choose(len(way.trials) for way in ways) for choose in (min, max))
    most = max(max(way.trials) / min(way.trials) - 1 for way in ways)
    opening = f"""{len(ways)} ways to run five programs, the advice's alternatives, each without a limit on one GPU ({versions["gpu"]}, torch {versions["torch"]},
{versions["date"]} and later), in {fewest} to {trials_at_most} trials, of which the mean counts; a way took up to {most:.0%} longer in one trial than in another. Of {len(pairs)} pairs
of ways of one program whose steps differ by more than 5 %, **the faster is named in {len(right) / len(pairs):.1%}** ({len(right)}); of those {len(sure)} in which every
trial of the one was faster than every trial of the other, in {len(good) / max(len(sure), 1):.1%} ({len(good)}). {within} of {len(ways)} steps lie in their range.
No figure is fitted to these steps. {sentence()}
Trials of channels-last ways from before do not count. `python -m benchmarks timing strategies OUT` measures, `python -m benchmarks timing strategies_table` predicts anew and writes this."""
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for pair in pairs:
        for row in ("program", pair[0].program), ("differ in", kind_of(*pair)):
            counts[row][0] += 1
            counts[row][1] += pair in right
    rows = [
        [f"{of}: {name}" if of != "program" else name, str(count), str(rightly), f"{rightly / count:.0%}"]
        for (of, name), (count, rightly) in sorted(
            counts.items(), key=lambda entry: (entry[0][0] != "program", entry[0])
        )
    ]
    summary = pages.table(("pairs", "in all", "named rightly", ""), rows, "lrrr").rstrip()
    lines = [
        [
            way.program,
            _words(way.changes),
            f"{1e3 * way.measured:.1f}",
            f"{1e3 * way.said:.1f}",
            f"{way.said / way.measured - 1:+.0%}",
            f"{1e3 * way.low:.1f} to {1e3 * way.high:.1f}{'' if way.low <= way.measured <= way.high else ' (no)'}",
            way.bound,
        ]
        for way in ways
    ]
    head = ("program", "way", "measured ms", "said", "", "range", "bound")
    return ["## Which way is faster", opening, summary, pages.table(head, lines, "llrrrll").rstrip()]


def _words(changes: Mapping[str, Any]) -> str:
    parts = [f"{changes['grad_accumulation']} micro-batches"] if "grad_accumulation" in changes else []
    parts += [f"checkpoint {changes['checkpoint']}"] if "checkpoint" in changes else []
    parts += ["channels last"] if changes.get("channels_last") else []
    return ", ".join(parts) or "whole batch"


@click.command("strategies_table")
def table() -> None:
    """Write the record's part of docs/evidence/TIMING.md."""
    record = files.read(RECORD)
    pages.write_part(
        advise.PAGE, "strategies", "\n\n".join(section(predicted(recorded()), record["versions"]))
    )
