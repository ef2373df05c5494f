"""The public programs as predicted, beside what they took on an H200.

    python -m benchmarks public score [NAME ...] [--sources .public]
    python -m benchmarks public table                                  # their part of docs/evidence/PROGRAMS.md
    python -m benchmarks public follow [NAME ...]

Measured: `tests/data/h200/public.json` and, in place of rows there, `public_watched.json`, by `measure.py` (its rows say with which GPU
and versions). follow: only follows, measured or not, and says what came of it. NAME: a job, NAME* or DOMAIN/.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import pages, recorded
from benchmarks.public import job_files
from benchmarks.public.followed import follow

ROWS = [
    ROOT / "tests/data" / name
    for name in ("h200/public.json", "h200/public_watched.json", "h100/public.json")
]
PAGE = ROOT / "docs/evidence/PROGRAMS.md"
MISSES = ROOT / "benchmarks/public/misses.json"
_HEAD = """
## Programs nobody here wrote

{jobs} programs of {repos} public repositories (`benchmarks/public/jobs`), fetched by commit and unmodified, with data of the right
form made at run time; run on one H200 (those of two ranks on two: driver 580, torch 2.11.0+cu130, 22 November 2026) and followed by
`analyze run` on a machine without one. Made by `python -m benchmarks public table`, never edited.

{verdicts}

"""
_TABLE = """
MiB measured, and how far the prediction is from it:

| program | of | allocated | | reserved | | device | |
|---|---|---|---|---|---|---|---|
"""


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


def page(scored: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> str:
    """The part of the page for (job, row, found) of every run; `misses.json` says why some are missed."""
    verdicts = [verdict(row, found) for _, row, found in scored]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("exact", "near", "off", "not followed"))
    text = _HEAD.format(
        jobs=len({job["name"] for job, *_ in scored}),
        repos=len({job["repo"] for job, *_ in scored}),
        verdicts=f"Allocated: {counts} (near: within 2 %).",
    )
    off = [pages.errors(found, row) for _, row, found in scored if "error" not in found]
    text += pages.summary(off) if off else ""
    text += _TABLE + "".join(
        f"| {recorded.named(row)} | {job['repo']} | {pages.cells(found, row, 'not followed')} |\n"
        for job, row, found in scored
    )
    why = json.loads(MISSES.read_text()) if MISSES.exists() else {}
    told = [
        f"- `{recorded.named(row)}`: {why.get(job['name'], found.get('error', 'not looked into yet'))}\n"
        for (job, row, found), word in zip(scored, verdicts, strict=True)
        if word != "exact"
    ]
    return text + ("\nWhat is not exact, and why:\n\n" + "".join(told) if told else "")


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
    if scored := runs(only_follow=False, **given):
        print(page(scored))


@_options
def table(**given: Any) -> None:
    """The same, into their part of the page."""
    if scored := runs(only_follow=False, **given):
        pages.write_part(PAGE, "public programs", page(scored))
