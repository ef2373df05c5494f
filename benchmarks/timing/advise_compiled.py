"""`analyze advise --compiled` beside trials on a GPU: does the budget it names run under the limit, and is it the fastest that does?

1. `compiled_plan` asks what each `activation_memory_budget` takes of each program, as `advise --compiled` does (`BUDGETS`, on an emulated
   GPU), and for each limit (a share of what the largest budget takes) which of them is named (`advisor/compiled.py`, `chosen`).
2. `compiled_advise` runs that on this machine's GPU, by the very step that is emulated. What is named runs in a process of its own under
   the limit from its beginning. Every budget runs in another without a limit first; then, what is cached given back, under each
   limit, the largest first, until one does not suffice. All compile together; each is timed alone (`compiled.py`, rule 1).
3. A figure is the median of three groups of five steps.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from analyzer_timing.advisor.compiled import BUDGETS, chosen
from benchmarks import ROOT
from benchmarks.harness import pages
from benchmarks.harness.files import read, write
from benchmarks.timing.advise import DEVICE, target_of

PROGRAMS: dict[str, dict[str, Any]] = {
    "gpt2.py": {"batch": 4, "mode": "train", "optimizer": "adamw_fused", "amp": "bf16"},
    "vit_b_16.py": {"batch": 32, "mode": "train", "optimizer": "adamw_fused", "amp": "bf16"},
    "resnet50.py": {"batch": 32, "mode": "train", "optimizer": "sgdm_fused", "amp": "bf16"},
}
SHARES = (1.0, 0.85, 0.7)
ADVICE = "advice"
RECORD = ROOT / "tests/data/h100/timing/advise_compiled.json.gz"
_TEXT = pages.prose(__file__)
_HELD = 1.02
_WARM, _TIMED, _GROUPS, _AGAIN = 5, 5, 3, 2
_NEAR = 1.05


@click.command("compiled_plan")
@click.argument("file", type=Path)
@click.argument("python")
def plan(file: Path, python: str) -> None:
    """Ask this Python's PyTorch what every budget takes of every program, and write what is named under each limit."""
    import functools

    from analyzer.options import Options
    from analyzer_emulation.emulated import of_target

    planned: dict[str, Any] = {}
    for name, options in PROGRAMS.items():
        target = f"{target_of(name)}:make_model"
        asked = functools.partial(of_target, target, Options.of({**options, "device": DEVICE}), python, {})
        begin = time.monotonic()
        estimates = {budget: asked(compiled=budget).estimate for budget in BUDGETS}
        planned[name] = pairs_of(estimates) | {"seconds": round(time.monotonic() - begin, 1)}
        write(file, planned)


def pairs_of(estimates: Mapping[float, Any]) -> dict[str, Any]:
    """What is said of every budget, and what is named under each limit; `estimates` were made without one."""
    taken = {
        str(budget): {
            "reserved": estimate.peak_reserved,
            "device": estimate.device_used,
            "said": [estimate.step_seconds.seconds, estimate.step_seconds.low, estimate.step_seconds.high],
        }
        for budget, estimate in estimates.items()
    }
    most = estimates[BUDGETS[0]]
    pairs = []
    for share in SHARES:
        budget = int(share * most.device_used)
        answer = chosen(
            lambda b, limit=budget: replace(estimates[b], budget_bytes=limit)  # type: ignore[misc]
        )
        named = answer.best
        pairs.append(
            {
                "share": share,
                "budget": budget,
                "limit": budget - (most.device_used - most.peak_reserved),
                "named": None if named is None else float(named.name.rpartition(" ")[2]),
            }
        )
    return {"taken": taken, "pairs": pairs}


def jobs(planned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is to be run: what is named under a limit first, then every budget without."""
    named, free = [], []
    for name, program in planned.items():
        limits = sorted({pair["limit"] for pair in program["pairs"]}, reverse=True)
        for pair in program["pairs"]:
            if pair["named"] is not None:
                named.append(_job(name, pair["named"], [pair["limit"]], True))
        free += [_job(name, float(budget), limits, False) for budget in program["taken"]]
    return [*named, *free]


def _job(name: str, budget: float, limits: list[int], from_the_start: bool) -> dict[str, Any]:
    return {
        "set": ADVICE, "program": name, "budget": budget, "limits": limits, "from_the_start": from_the_start,
        "case": {"model": name, "batch": PROGRAMS[name]["batch"], "mode": "train", "opt": PROGRAMS[name]["optimizer"],
                 "budget": budget, "limit": limits[0] if from_the_start else 0},
    }  # fmt: skip


@dataclass
class Clock:
    """Watches a step: calls `ready` when it is warm, times groups of steps, and sets one limit after the other behind them."""

    limits: Sequence[int]
    ready: Callable[[], None]
    times: list[float] = field(default_factory=list)
    phase: Any = None
    step: int = 0
    found: dict[int, float] = field(default_factory=dict)
    reserved: int = 0

    @property
    def steps(self) -> int:
        """How many are to be run."""
        return _WARM + _TIMED * _GROUPS + len(self.limits) * (_AGAIN + _TIMED * _GROUPS)

    def mark(self, name: str) -> None:
        """A named event is over."""
        import torch

        number, _, event = name.partition(".")
        if event != "step":
            return
        at, limits = int(number) + 1, [0, *self.limits]
        each = _TIMED * _GROUPS
        begin = _WARM
        for place, limit in enumerate(limits):
            if place:
                begin += each + _AGAIN
            if at < begin or at > begin + each or (at - begin) % _TIMED:
                continue
            torch.cuda.synchronize()
            if at == begin:
                if not place:
                    self.ready()
                self.times = []
            self.times.append(time.perf_counter())
            if at == begin + each:
                self.found[limit] = statistics.median(b - a for a, b in pairwise(self.times)) / _TIMED
                self.reserved = self.reserved or torch.cuda.max_memory_reserved()
                if place < len(limits) - 1:
                    restrict(limits[place + 1])

    def label(self, tensor: Any, name: str, category: Any) -> None:
        """Of no interest."""


def restrict(limit: int) -> None:
    """Let the allocator reserve no more than this; what is cached is given back."""
    import torch

    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(limit / total, 1.0))


def measured(job: Mapping[str, Any], ready: Callable[[], None]) -> dict[str, Any]:
    """The row of one budget: seconds of a step without a limit (0) and under each that suffices; bytes reserved in the first."""
    import torch
    from torch._functorch import config

    from analyzer.capture.pytorch.module import step as steps
    from analyzer.options import Options
    from analyzer_verify.runs.program import build, fast_random

    start = bool(job["from_the_start"])
    clock = Clock([] if start else job["limits"], ready)
    torch.manual_seed(0)
    config.activation_memory_budget = job["budget"]
    with fast_random():
        name = job["program"]
        step = build(f"{target_of(name)}:make_model", Options.of({**PROGRAMS[name], "steps": clock.steps}))
    step = replace(step, model=torch.compile(step.model))
    if start:
        restrict(job["limits"][0])
    row: dict[str, Any] = {key: job[key] for key in ("program", "budget", "limits", "from_the_start", "case")}
    try:
        steps.run(step, clock)
    except torch.OutOfMemoryError as error:
        row["out_of_memory"] = str(error)[:200]
    row["seconds"] = {str(limit): seconds for limit, seconds in clock.found.items()}
    row["reserved"] = clock.reserved or torch.cuda.max_memory_reserved()
    row["wall"] = clock.found.get(0)
    return row


@click.command("compiled_advise")
@click.argument("file", type=Path)
@click.argument("folder", type=Path)
@click.option("--seconds", default=540.0, help="no result is waited for after these")
@click.option("--together", default=12, help="processes at once")
def main(file: Path, folder: Path, seconds: float, together: int) -> None:
    """Run what a plan lists on this machine's GPU: advise_compiled.json.gz, the plan with what was measured."""
    from benchmarks.timing.compiled import run_all
    from benchmarks.timing.measure import versions

    planned = read(file)

    def keep(rows: Sequence[Mapping[str, Any]]) -> None:
        write(
            folder / "advise_compiled.json.gz",
            {"versions": versions(), "programs": planned, "rows": list(rows)},
        )

    run_all(jobs(planned), folder, seconds, together, keep)


@dataclass(frozen=True, slots=True)
class Pair:
    """A program under a limit: the budget that is named (None: nothing was said to fit), what it took, said with its range, and seconds of
    every budget that ran there. begun: the named one's, with the limit from the beginning; None: it ran out."""

    program: str
    limit: int
    named: float | None
    said: tuple[float, float, float] | None
    begun: float | None
    there: Mapping[float, float]

    @property
    def best(self) -> float | None:
        """The fastest that ran there."""
        return min([*self.there.values(), *([self.begun] if self.begun else [])], default=None)


def pairs_recorded(record: Mapping[str, Any]) -> list[Pair]:
    """Every program and limit of the record, but those whose named budget was not reached."""
    found = []
    for name, program in record["programs"].items():
        rows = [row for row in record["rows"] if row.get("program") == name and "error" not in row]
        for planned in program["pairs"]:
            limit, named = planned["limit"], planned["named"]
            there = {
                row["budget"]: row["seconds"][str(limit)]
                for row in rows
                if not row["from_the_start"] and str(limit) in row["seconds"]
            }
            own = [
                row
                for row in rows
                if row["from_the_start"] and row["budget"] == named and row["limits"] == [limit]
            ]
            if named is None:
                found.append(Pair(name, limit, None, None, None, there))
            elif own:
                low, middle, high = (program["taken"][str(named)]["said"][place] for place in (1, 0, 2))
                found.append(Pair(name, limit, named, (middle, low, high), own[0]["seconds"].get("0"), there))
    return found


def _error(pair: Pair) -> float:
    """Of the named budget's step, as a part of what was measured."""
    assert pair.said and pair.begun
    return pair.said[0] / pair.begun - 1


def _cells(pairs: Sequence[Pair]) -> list[str]:
    """The cells under the head of some pairs."""
    named = [pair for pair in pairs if pair.named is not None]
    ran = [pair for pair in named if pair.begun]
    near = sum((pair.begun or 0) <= _NEAR * (pair.best or 0) for pair in ran)
    within = sum(bool(pair.said and pair.said[1] <= (pair.begun or 0) <= pair.said[2]) for pair in ran)
    compared = [pair for pair in ran if pair.there and min(pair.there) < (pair.named or 0)]
    behind = sum((pair.begun or 0) > pair.there[min(pair.there)] for pair in compared)
    return [
        *(f"{count} of {len(named)}" for count in (len(ran), near, within)), f"{behind} of {len(compared)}",
        f"{sum(bool(pair.there) for pair in pairs if pair.named is None)} of {len(pairs) - len(named)}",
        pages.middle_and_far(map(_error, ran)), pages.worst(ran, lambda pair: f"{pair.program} in {pages.mib(pair.limit)} MiB", _error),
    ]  # fmt: skip


def _free(record: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every budget that ran without a limit, and what had been said of it."""
    rows = [row for row in record["rows"] if "error" not in row and not row["from_the_start"]]
    return [(row, record["programs"][row["program"]]["taken"][str(row["budget"])]) for row in rows]


def section(record: Mapping[str, Any]) -> str:
    """The page's part: a line a program."""
    pairs, free = pairs_recorded(record), _free(record)
    planned = sum(len(program["pairs"]) for program in record["programs"].values())
    text = _TEXT["opening"].format(
        versions=record["versions"], limits=len(pairs), planned=planned,
        held=sum(row["reserved"] <= _HELD * said["reserved"] for row, said in free), budgets=len(free),
    )  # fmt: skip
    rows = pages.by_kind(pairs, lambda pair: pair.program, _cells)
    return f"{text}\n\n{pages.table(_TEXT['head'].split(' | '), rows, 'lrrrrrrrl').rstrip()}"


def lines(record: Mapping[str, Any]) -> str:
    """A line a program and limit, and one a program and budget without a limit, in seconds and bytes."""
    budgets = [
        {"program": row["program"], "budget": row["budget"], "reserved, said": said["reserved"], "reserved": row["reserved"],
         "said": said["said"], "measured": row["seconds"].get("0")}
        for row, said in _free(record)
    ]  # fmt: skip
    return f"{pages.records([asdict(pair) for pair in pairs_recorded(record)])}\n{pages.records(budgets)}"
