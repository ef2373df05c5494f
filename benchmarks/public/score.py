"""The public programs as predicted, beside what they took on an H200 or an H100.

    python -m benchmarks public score [NAME ...] [--sources .public]
    python -m benchmarks public table      # what `record.py` keeps of all, by domain, into their part of docs/evidence/PROGRAMS.md
    python -m benchmarks public lines      # the same, a line a program, on the terminal
    python -m benchmarks public follow [NAME ...]

Measured: `tests/data/h200/public.json` and, in place of rows there, `public_watched.json`, `tests/data/h100/public.json` and
`tests/data/h200/public_first.json`, by `measure.py` (its rows say with which GPU and versions). Those of the last two were run before they were
followed: `first.json` has, round by round, what came of following each for the first time (of what `--found` wrote then), and by which commit; it
stands beside what comes of it now. follow: only follows, measured or not, and says what came of it. NAME: a job, NAME* or DOMAIN/.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import click

from benchmarks import ROOT
from benchmarks.harness import pages, recorded
from benchmarks.public import job_files, record
from benchmarks.public.followed import follow

_TEXT = pages.prose(__file__)

ROWS = [
    ROOT / "tests/data" / name
    for name in ("h200/public.json", "h200/public_watched.json", "h100/public.json", "h200/public_first.json")
]
PAGE = ROOT / "docs/evidence/PROGRAMS.md"
MISSES = ROOT / "benchmarks/public/misses.json"
FIRST = ROOT / "benchmarks/public/first.json"
# A job, its measured row and what came of following it.
Run: TypeAlias = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def measured() -> list[dict[str, Any]]:
    """The rows of the recorded runs that ended as the program wanted."""
    rows = [row for file in ROWS for row in json.loads(file.read_text())]
    return list({recorded.named(row): row for row in rows if "error" not in row}.values())


def device_of(row: dict[str, Any] | None) -> str:
    """The GPU that a run was measured on, as `--device` takes it."""
    return "h100" if row and "H100" in row["gpu"] else "h200"


def verdict(row: dict[str, Any], found: dict[str, Any]) -> str:
    """One word for the run: "not followed", "exact" (allocated, to the byte), "near" (within 2 %) or "off"."""
    if "error" in found:
        return "not followed"
    off = abs(pages.errors(found, row)["allocated"])
    return "exact" if not off else "near" if off <= 2.0 else "off"


def silently_under(row: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether the run took more than was predicted, and the estimate says nothing of a figure that is bounded or unknown, of what is
    data, or may be otherwise in another run. Nobody knows where the notes were not recorded (None)."""
    notes = found.get("notes", ())
    doubts = (word in note for note in notes or () for word in record.DOUBTS)
    if "error" in found or notes is None or found.get("bounded") or found.get("unknown") or any(doubts):
        return False
    return bool(found["allocated"] < row["peak_allocated"] or found["reserved"] < row["peak_reserved"])


def page(scored: list[Run], first: dict[str, Any] | None = None) -> str:
    """A part of the page for (job, row, found) of every run: a line a domain, of `first` one of all; `misses.json` says why some are missed."""
    rows = pages.by_kind(scored, lambda run: run[0]["domain"], _cells)
    if first:
        before = _before(scored, first)
        about = {key: first[key] for key in ("gpu", "driver", "date")}
        text = _TEXT["first"].format(tool=first["tool"][:7], **about, **_counts(scored))
        text += f" First time. {_outcome(before)} Now. {_outcome(scored)}"
        rows.append(["all, the first time", len(before), *_cells(before)])
    else:
        text = f"{_TEXT['head'].format(**_counts(scored))} {_outcome(scored)}"
    head = ["domain", "runs", *pages.figure_head()]
    text += f"\n\n{pages.table(head, rows, 'lrrrrrrrl')}\n{_TEXT['lines']}"
    if who := record.by_whom(found for *_, found in scored if "tool" in found):
        text += f" Followed last: {who}."
    why = json.loads(MISSES.read_text()) if MISSES.exists() else {}
    told: dict[str, list[str]] = {}
    for job, row, found in scored:
        if verdict(row, found) != "exact":
            reason = why.get(job["name"], found.get("error", "not looked into yet"))
            told.setdefault(reason.replace("|", "\\|"), []).append(f"`{recorded.named(row)}`")
    reasons = pages.table(
        ("not exact, because", "programs"), ([why, ", ".join(of)] for why, of in told.items())
    )
    return f"{text}\n" + (f"\n{reasons}" if told else "")


def _before(scored: list[Run], first: dict[str, Any]) -> list[Run]:
    """The same runs with what came of following them for the first time."""
    return [(job, row, first["runs"][recorded.named(row)]) for job, row, _ in scored]


def _cells(runs: Sequence[Run]) -> list[str]:
    """The cells of some runs, of which those that were not followed count as not exact."""
    return pages.figure_cells(
        [
            (recorded.named(row), None if "error" in found else pages.errors(found, row))
            for _, row, found in runs
        ]
    )


def lines(scored: list[Run], first: dict[str, Any] | None = None) -> str:
    """A line a run: MiB measured, and how far the prediction is from it, or was the first time and is now."""
    rows = []
    for (job, row, found), (*_, now) in zip(_before(scored, first) if first else scored, scored, strict=True):
        rows.append({"program": recorded.named(row), "of": job["repo"]})
        for name, key in pages.FIGURES.items():
            rows[-1] |= {name: f"{row[key] / pages.MIB:,.1f}", f"{name}, off": _off(found, row, name)}
            rows[-1] |= {f"{name}, now": _off(now, row, name)} if first else {}
    return pages.records(rows)


def rounds(scored: list[Run]) -> Iterator[tuple[str, list[Run], dict[str, Any] | None]]:
    """For each part of the page that these runs belong to: its name, its runs, and what came of them the first time."""
    known = json.loads(FIRST.read_text())
    if old := [run for run in scored if not any(recorded.named(run[1]) in one["runs"] for one in known)]:
        yield "public programs", old, None
    for number, one in enumerate(known, 1):
        if again := [run for run in scored if recorded.named(run[1]) in one["runs"]]:
            more = f", {number}" if number > 1 else ""
            yield f"public programs, first and now{more}", again, one


def _counts(runs: list[Run]) -> dict[str, int]:
    """How many programs, of how many repositories."""
    return {"jobs": len({job["name"] for job, *_ in runs}), "repos": len({job["repo"] for job, *_ in runs})}


def _outcome(runs: list[Run]) -> str:
    """How many are exact and how far the others are off."""
    verdicts = [verdict(row, found) for _, row, found in runs]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("exact", "near", "off", "not followed"))
    under = sum(silently_under(row, found) for _, row, found in runs)
    unknown = [(row, found) for _, row, found in runs if found.get("notes", ()) is None]
    unknown = [recorded.named(row) for row, found in unknown if silently_under(row, {**found, "notes": ()})]
    besides = f" Of {', '.join(unknown)} the notes were not recorded." if unknown else ""
    return f"Allocated: {counts} (near: within 2 %). Allocated or reserved below what was measured, and no word of a doubt: {under}.{besides}"


def _off(found: dict[str, Any], row: dict[str, Any], name: str) -> str:
    return "not followed" if "error" in found else pages.off(found[name], row[pages.FIGURES[name]])


def _say(name: str, found: dict[str, Any], row: dict[str, Any] | None = None) -> None:
    """One line to the terminal as soon as it is known."""
    if "error" in found:
        told = f"NOT FOLLOWED ({found.get('code')}): {found['error'][:600]}"
    elif row is None:
        told = (
            " ".join(f"{found[key] / pages.MIB:,.1f}" for key in pages.FIGURES)
            + f" | {'; '.join(found['notes'])[:300]}"
        )
    else:
        told = pages.cells(found, row, "")
    print(f"{name} [{found['seconds']:.0f} s] {told}", flush=True)


def runs(
    names: tuple[str, ...], only_follow: bool, sources: Path, copies: Path, seconds: float, at_once: int, again: bool,
    found_in: Path | None, keep: bool,
) -> list[tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]]:  # fmt: skip
    """(job, measured row, what came of following it) of every job that is named; without a row where they are only followed."""
    jobs = {job["name"]: job for job in job_files.chosen(job_files.load()[1], names)}
    chosen: list[tuple[dict[str, Any], dict[str, Any] | None]] = (
        [(job, None) for job in jobs.values()]
        if only_follow
        else [(jobs[row["name"]], row) for row in measured() if row["name"] in jobs]
    )
    told: dict[str, Any] = {}
    if found_in and found_in.exists():
        told = json.loads(found_in.read_text())
    lock = threading.Lock()

    def one(run: tuple[dict[str, Any], dict[str, Any] | None]) -> dict[str, Any]:
        job, row = run
        name = job["name"] if row is None else recorded.named(row)
        if keep and name in told:
            return dict(told[name])
        rank = (row or {}).get("rank") or 0
        place = (copies / f"rank{rank}").resolve()
        found = follow(job, sources.resolve(), place, seconds, rank, again, device_of(row))
        _say(name, found, row)
        with lock:
            told[name] = found
            if found_in:
                found_in.write_text(json.dumps(told, indent=1) + "\n")
        return found

    with ThreadPoolExecutor(at_once) as pool:
        all_found = list(pool.map(one, chosen))
    failed = sum("error" in found for found in all_found)
    print(f"{len(chosen)} runs, {failed} not followed", file=sys.stderr)
    return [(job, row, found) for (job, row), found in zip(chosen, all_found, strict=True)]


def _options(command: Any) -> Any:
    """What all three verbs are told."""
    for option in (
        click.option("--keep", is_flag=True, help="runs that --found has are not followed again"),
        click.option("--found", "found_in", type=Path, help="what was found, as JSON, written as it comes"),
        click.option("--again", is_flag=True, help="in the copies that are there"),
        click.option("--at-once", default=2),
        click.option("--seconds", default=600.0),
        click.option("--copies", type=Path, default=Path("/tmp/public_followed")),
        click.option("--sources", type=Path, default=ROOT / ".public"),
        click.argument("names", nargs=-1),
    ):
        command = option(command)
    return click.command()(command)


@_options
def only(**given: Any) -> None:
    """Follow every job, or those named, measured or not, and say what came of it."""
    runs(only_follow=True, **given)


@_options
def score(**given: Any) -> None:
    """Follow every measured job, or those named, and print the tables."""
    for _, some, first in rounds(runs(only_follow=False, **given)):
        print(page(some, first))


def _recorded() -> list[Run]:
    """What is recorded of every measured job."""
    jobs = {job["name"]: job for job in job_files.load()[1]}
    found = record.load()
    return [(jobs[row["name"]], row, found[recorded.named(row)]) for row in measured()]


@click.command("lines")
def show_lines() -> None:
    """Print what is recorded of every measured job, a line each."""
    for _, some, first in rounds(_recorded()):
        print(lines(some, first))


@click.command()
def table() -> None:
    """What is recorded of every measured job, into their part of the page."""
    for name, some, first in rounds(_recorded()):
        pages.write_part(PAGE, name, page(some, first))
