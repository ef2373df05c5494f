"""`analyze advise` beside trials on a GPU: does what it names run under its budget, and how near is it to the fastest that does?

1. A **pair** is a program and a budget, a share of what the program takes as it is. `plan` asks for the advice of every pair, on any
   machine, and lists the **alternatives** of each program: the batch divided by 1, 2 and 4, and none, half and all of the blocks it
   repeats computed again, with the fused optimizer; each in channels-last too, where an advised way is.
2. `advise` runs them on this machine's GPU, by the very step that is analysed (`extensions/analyzer_verify/runs/program.py`), five steps timed after
   three. What the allocator may reserve is the budget less what the process takes besides, by
   `torch.cuda.set_per_process_memory_fraction`.
3. An alternative is run without a limit first; under a pair's limit only where that was faster than what was advised, the fastest
   first, until one runs. So the best of all is found without running all under every limit.
"""

from __future__ import annotations

import contextlib
import gc
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import click

from benchmarks import ROOT
from benchmarks.harness import pages
from benchmarks.harness.files import read, write

# The target's file, with what tells it from another of the same file -> its options.
PROGRAMS: dict[str, dict[str, Any]] = {
    "gpt2.py": {"batch": 8, "mode": "train", "optimizer": "adamw"},
    "resnet50.py": {"batch": 64, "mode": "train", "optimizer": "sgdm"},
    "vit_b_16.py": {"batch": 32, "mode": "train", "optimizer": "adamw"},
    "gpt2.py in bf16": {"batch": 16, "mode": "train", "optimizer": "adamw", "amp": "bf16"},
    "vit_b_16.py in bf16": {"batch": 64, "mode": "train", "optimizer": "adamw", "amp": "bf16"},
}
SHARES = (0.9, 0.7, 0.5, 0.35)
# Asked besides where nothing fits the least share, so that a program has as many pairs with a way as another.
SPARE_SHARE = 0.6
DEVICE = "h100"
RECORD = ROOT / "tests/data/h100/timing/advise.json.gz"
_DIVISORS, _PARTS = (1, 2, 4), (0.0, 0.5, 1.0)
_TEXT = pages.prose(__file__)
_WARM, _TIMED = 3, 5
_NEAR = 1.05
# What holds more than this of a limit does not run under it by giving blocks back.
_HOLDS = 1.1


def target_of(name: str) -> str:
    return str(ROOT / "models" / name.partition(" ")[0])


def alternatives(name: str, last: bool) -> list[dict[str, Any]]:
    """The changes of every alternative of a program; last: in channels-last too."""
    from analyzer.capture.pytorch.module.blocks import pattern_of, repeated
    from analyzer.targets import load, parse

    options = PROGRAMS[name]
    model = load(parse(target_of(name))).model
    paths = list(repeated(model))
    found = []
    for k in _DIVISORS:
        for part in _PARTS:
            count = round(part * len(paths))
            if options["batch"] % k or (part and not count):
                continue
            changes: dict[str, Any] = {"optimizer": f"{options['optimizer']}_fused"}
            if k > 1:
                changes |= {"batch": options["batch"] // k, "grad_accumulation": k}
            if count:
                changes["checkpoint"] = pattern_of(model, paths[:count])
            found += [changes, *([{**changes, "channels_last": True}] if last else [])]
    return found


@click.command("plan")
@click.argument("file", type=Path)
@click.option("--program", "names", multiple=True, type=click.Choice(list(PROGRAMS)), help="these alone")
def plan(file: Path, names: Sequence[str]) -> None:
    """Ask for the advice of every pair, and write what shall be tried; pairs that the file has already stay."""
    known = read(file) if file.exists() else {}
    for name in names or list(PROGRAMS):
        program = known.setdefault(name, {"options": PROGRAMS[name], "pairs": []})
        for share in (*SHARES, SPARE_SHARE):
            if share == SPARE_SHARE and all(pair["ways"] for pair in program["pairs"]):
                continue
            if all(pair["share"] != share for pair in program["pairs"]):
                program["pairs"].append(_pair(name, share))
                ways = [pair["ways"][0]["changes"] for pair in program["pairs"] if pair["ways"]]
                program["alternatives"] = alternatives(name, any(way.get("channels_last") for way in ways))
                write(file, known)


def _pair(name: str, share: float) -> dict[str, Any]:
    import analyzer
    from analyzer_timing.advise import advise

    target, begin = target_of(name), time.monotonic()
    needs = analyzer.analyze(target, device=DEVICE, **PROGRAMS[name])
    budget = int(share * needs.device_used)
    found = advise(target, device=DEVICE, budget=budget, **PROGRAMS[name])
    row = {
        "share": share,
        "budget": budget,
        "limit": budget - (needs.device_used - needs.peak_reserved),
        "infeasible": found.missing_bytes > 0,
        "seconds": round(time.monotonic() - begin, 1),
        "ways": [_way(way) for way in found.ways],
    }
    print(f"{name} {share}: {[way['name'] for way in row['ways'][:1]]} {row['seconds']} s", flush=True)
    return row


def _way(way: Any) -> dict[str, Any]:
    time_of = way.estimate.step_seconds
    return {
        "name": way.name,
        "changes": dict(way.changes),
        "verdict": way.verdict,
        "peak_reserved": way.estimate.peak_reserved,
        "said": None if time_of is None else [time_of.seconds, time_of.low, time_of.high],
    }


@dataclass
class Clock:
    """Watches a step (`capture/pytorch/module/step.py`, "Watcher"): when the warm iterations were over, and every few after them."""

    phase: Any = None
    step: int = 0
    times: list[float] = field(default_factory=list)

    def mark(self, name: str) -> None:
        """A named event is over."""
        import torch

        number, _, event = name.partition(".")
        if event == "step" and int(number) >= _WARM - 1 and (int(number) - _WARM + 1) % _TIMED == 0:
            torch.cuda.synchronize()
            self.times.append(time.perf_counter())

    def label(self, tensor: Any, name: str, category: Any) -> None:
        """Of no interest."""


def tried(name: str, changes: Mapping[str, Any], limit: int | None, groups: int = 1) -> dict[str, Any]:
    """What a way takes on this GPU under a limit of the allocator: seconds a step (of that many groups of five the median's), bytes
    reserved; or that it ran out."""
    import torch

    from analyzer.capture.pytorch.module import step as steps
    from analyzer.options import Options
    from analyzer_verify.runs.program import build, fast_random

    options = Options.of({**PROGRAMS[name], **changes, "steps": _WARM + groups * _TIMED})
    settings = str(options.runtime_options.get("alloc_conf") or "")
    if settings:
        torch.cuda.memory._set_allocator_settings(settings)
    torch.manual_seed(0)
    total = torch.cuda.get_device_properties(0).total_memory
    with fast_random():
        step = build(target_of(name), options)
    clock = Clock()
    torch.cuda.set_per_process_memory_fraction(1.0 if limit is None else min(limit / total, 1.0))
    torch.cuda.reset_peak_memory_stats()
    row: dict[str, Any] = {"changes": dict(changes), "limit": limit}
    try:
        steps.run(step, clock)
        torch.cuda.synchronize()
        row["seconds"] = statistics.median(end - begin for begin, end in pairwise(clock.times)) / _TIMED
    except torch.OutOfMemoryError as error:
        row["out_of_memory"] = str(error)[:200]
    row["peak_reserved"] = torch.cuda.max_memory_reserved()
    del step
    gc.collect()
    with contextlib.suppress(AttributeError):
        torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    if settings:
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    return row


@click.command("advise")
@click.argument("file", type=Path)
@click.argument("out", type=Path)
@click.option("--seconds", default=600.0, help="nothing is begun after these")
def main(file: Path, out: Path, seconds: float) -> None:
    """Try what a plan lists on this machine's GPU: a record with what was planned and what was measured."""
    from benchmarks.timing.measure import versions

    planned, until = read(file), time.monotonic() + seconds
    record: dict[str, Any] = {"versions": versions(), "programs": planned}
    warm_up()
    for name, program in planned.items():
        for pair in program["pairs"]:
            if pair["ways"] and time.monotonic() < until:
                way = pair["ways"][0]
                pair["advised"] = tried(name, way["changes"], pair["limit"])
                print(f"{name} {pair['share']} {way['name']}: {_said(pair['advised'])}", flush=True)
                if (everything := _everything(pair)) is not None:
                    pair["everything"] = tried(name, everything["changes"], pair["limit"])
                    print(f"  all blocks: {_said(pair['everything'])}", flush=True)
    write(out, record)
    for name, program in planned.items():
        program["free"] = []
        for changes in program["alternatives"]:
            if time.monotonic() < until:
                program["free"].append(tried(name, changes, None))
                print(f"{name} {changes}: {_said(program['free'][-1])}", flush=True)
        write(out, record)
        for pair in program["pairs"]:
            pair["under"] = _faster(name, program["free"], pair, until)
        write(out, record)


def _everything(pair: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The way that computes all blocks again, of the whole batch, where it was said to fit and is not what was advised: the one with
    most of the checkpoints among those that divide nothing."""
    whole = [
        way
        for way in pair["ways"]
        if "grad_accumulation" not in way["changes"] and "checkpoint" in way["changes"]
    ]
    slowest = max(whole, key=lambda way: way["said"][0], default=None)
    return None if slowest is None or slowest is pair["ways"][0] else slowest


def _faster(
    name: str, free: Sequence[Mapping[str, Any]], pair: Mapping[str, Any], until: float
) -> list[dict[str, Any]]:
    """The alternatives that are faster than the advised one without a limit, under the limit: until one runs."""
    advised = pair.get("advised", {}).get("seconds", float("inf"))
    found = []
    quicker = [row for row in free if row.get("seconds", float("inf")) < advised]
    for row in sorted(quicker, key=lambda row: row["seconds"]):
        if time.monotonic() > until:
            break
        if row["peak_reserved"] > _HOLDS * pair["limit"]:
            continue
        found.append(tried(name, row["changes"], pair["limit"]))
        if "seconds" in found[-1]:
            break
    return found


def warm_up() -> None:
    """Libraries are loaded, and the clock of the GPU is up."""
    import torch

    square = torch.randn(4096, 4096, device="cuda")
    for _ in range(50):
        square = (square @ square).clamp(-1, 1)
    torch.cuda.synchronize()


def _said(row: Mapping[str, Any]) -> str:
    held = f"{row['peak_reserved'] / 2**20:,.0f} MiB"
    return f"{1e3 * row['seconds']:.1f} ms, {held}" if "seconds" in row else f"out of memory, {held}"


def best_of(program: Mapping[str, Any], pair: Mapping[str, Any]) -> float | None:
    """The fastest step under a pair's limit: of what was run there, and of what might have run there, had there been time to try."""
    rows = [
        pair.get("advised", {}),
        pair.get("everything", {}),
        *pair.get("under", ()),
        *_untried(program, pair),
    ]
    return min((row["seconds"] for row in rows if "seconds" in row), default=None)


def _untried(program: Mapping[str, Any], pair: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The alternatives that were faster than the advised one without a limit, might run under it, and were not tried."""
    advised = pair.get("advised", {}).get("seconds", float("inf"))
    tried_there = [row["changes"] for row in pair.get("under", ())]
    if any("seconds" in row for row in pair.get("under", ())):
        return []  # the fastest that runs was found
    return [
        row
        for row in program.get("free", ())
        if row.get("seconds", float("inf")) < advised
        and row["peak_reserved"] <= _HOLDS * pair["limit"]
        and row["changes"] not in tried_there
    ]


def _apart(record: Mapping[str, Any]) -> float:
    """By what share one and the same way took longer in one trial than in another, at most."""
    most = 0.0
    for program in record["programs"].values():
        rows = [pair[kind] for pair in program["pairs"] for kind in ("advised", "everything") if kind in pair]
        took: dict[str, list[float]] = {}
        for row in [
            *rows,
            *program.get("free", ()),
            *(row for pair in program["pairs"] for row in pair.get("under", ())),
        ]:
            if "seconds" in row:
                took.setdefault(json.dumps(row["changes"], sort_keys=True), []).append(row["seconds"])
        most = max(most, *(max(some) / min(some) - 1 for some in took.values()))
    return most


def _row(name: str, program: Mapping[str, Any], pair: Mapping[str, Any]) -> dict[str, Any]:
    """A pair's line, seconds and bytes."""
    way, advised = (pair["ways"] or [{}])[0], pair.get("advised", {})
    best, untried = (best_of(program, pair), _untried(program, pair)) if advised else (None, [])
    return {
        "program": name, "budget": pair["share"], "limit": pair["limit"], "advised": way.get("name", "nothing fits"), "said": way.get("said"),
        "measured": advised.get("seconds"), "best": best, "best tried": not untried, "reserved, said": way.get("peak_reserved"),
        "reserved": advised.get("peak_reserved"),
    }  # fmt: skip


Asked: TypeAlias = tuple[str, Mapping[str, Any], Mapping[str, Any]]


def _pairs(record: Mapping[str, Any]) -> list[Asked]:
    """(name, program, pair) of every pair."""
    return [
        (name, program, pair) for name, program in record["programs"].items() for pair in program["pairs"]
    ]


def _error(asked: Asked) -> float:
    """Of the advised way's step, as a part of what was measured."""
    return float(asked[2]["ways"][0]["said"][0] / asked[2]["advised"]["seconds"] - 1)


def _cells(pairs: Sequence[Asked]) -> list[str]:
    """The cells under the head of some pairs."""
    tried_ones = [asked for asked in pairs if "advised" in asked[2]]
    ran = [asked for asked in tried_ones if "seconds" in asked[2]["advised"]]
    near = sum(
        pair["advised"]["seconds"] <= _NEAR * (best_of(program, pair) or 0.0) for _, program, pair in ran
    )
    within = sum(
        pair["ways"][0]["said"][1] <= pair["advised"]["seconds"] <= pair["ways"][0]["said"][2]
        for *_, pair in ran
    )
    compared = [pair for *_, pair in ran if "seconds" in pair.get("everything", {})]
    slower = sum(pair["advised"]["seconds"] > pair["everything"]["seconds"] for pair in compared)
    held = (pair["ways"][0]["peak_reserved"] / pair["advised"]["peak_reserved"] - 1 for *_, pair in ran)
    far = pages.worst(ran, lambda asked: f"{asked[0]} at {asked[2]['share']:.0%}", _error)
    return [
        *(f"{count} of {len(tried_ones)}" for count in (len(ran), near, within)),
        f"{slower} of {len(compared)}", pages.middle_and_far(map(_error, ran)), f"{max(map(abs, held), default=0.0):.1%}", far,
    ]  # fmt: skip


def section(record: Mapping[str, Any]) -> str:
    """The page's part on advice: a line a program."""
    from benchmarks.timing.answers import recorded

    again = [pair["advised_again"] for *_, pair in _pairs(record) if "advised_again" in pair]
    opening = _TEXT["opening"].format(
        pairs=len(_pairs(record)),
        versions=record["versions"],
        free=sum(len(program.get("free", ())) for program in record["programs"].values()),
        planned=sum(len(program["alternatives"]) for program in record["programs"].values()),
        again=len(again),
        anew=sum("seconds" in row for row in again),
        apart=_apart(record),
        answers=recorded(),
    )
    rows = pages.by_kind(_pairs(record), lambda asked: asked[0], _cells)
    return f"{opening}\n\n{pages.table(_TEXT['head'].split(' | '), rows, 'lrrrrrrrl').rstrip()}"


def lines(record: Mapping[str, Any]) -> str:
    """A line a pair."""
    return pages.records([_row(*asked) for asked in _pairs(record)])
