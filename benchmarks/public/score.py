"""The public programs as predicted, beside what they took on an H200.

    python -m benchmarks public score [NAME ...] [--sources .public] [-o docs/evidence/PROGRAMS.md]
    python -m benchmarks public follow [NAME ...]

Measured: `tests/data/h200/public.json` and, in place of rows there, `public_watched.json`, by `measure.py` (its rows say with which GPU
and versions). -o: writes its part of
the page, between two marks. --try: only follows, measured or not, and says what came of it. NAME: a job, NAME* or DOMAIN/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.public import job_files
from benchmarks.public.followed import follow

ROWS = ROOT / "tests/data/h200/public.json"
MISSES = Path(__file__).resolve().parent / "misses.json"
FIGURES = ("allocated", "reserved", "device")
_MEASURED = {"allocated": "peak_allocated", "reserved": "peak_reserved", "device": "nvml_peak"}
MIB = 2**20
_BEGIN, _END = (
    "<!-- public programs: made by benchmarks/public/score.py -->",
    "<!-- end of public programs -->",
)
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
    rows = json.loads(ROWS.read_text()) + json.loads(ROWS.with_name("public_watched.json").read_text())
    return list({name_of(row): row for row in rows if "error" not in row}.values())


def name_of(row: dict[str, Any]) -> str:
    """The run's name: a program's, and its rank's where it has several."""
    return row["name"] if row.get("rank") is None else f"{row['name']}.rank{row['rank']}"


def errors(row: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    """How far each figure is from what was measured, in percent."""
    return {name: 100 * (found[name] / row[_MEASURED[name]] - 1) for name in FIGURES}


def verdict(row: dict[str, Any], found: dict[str, Any]) -> str:
    """One word for the run: "not followed", "exact" (allocated, to the byte), "near" (within 2 %) or "off"."""
    if "error" in found:
        return "not followed"
    off = abs(errors(row, found)["allocated"])
    return "exact" if not off else "near" if off <= 2.0 else "off"


def line(row: dict[str, Any], repo: str, found: dict[str, Any]) -> str:
    """The program's row of the table."""
    off = {} if "error" in found else errors(row, found)
    cells = [
        f"{row[_MEASURED[name]] / MIB:,.1f} | "
        + ("not followed" if not off else "exact" if not off[name] else f"{off[name]:+.2f} %")
        for name in FIGURES
    ]
    return f"| {name_of(row)} | {repo} | {' | '.join(cells)} |"


def summary(all_errors: list[dict[str, float]]) -> str:
    """How many are exact, and the middle and far end of the errors, of those that are followed."""
    text = "| figure | byte-exact | median % | 95th percentile % | maximum % |\n|---|---|---|---|---|\n"
    for name in FIGURES:
        off = sorted(abs(row[name]) for row in all_errors)
        far = off[min(len(off) - 1, int(0.95 * len(off)))]
        exact = f"{sum(not value for value in off)} of {len(off)}"
        text += f"| {name} | {exact} | {statistics.median(off):.3f} | {far:.3f} | {off[-1]:.3f} |\n"
    return text


def page(scored: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> str:
    """The part of the page for (job, row, found) of every run; `misses.json` says why some are missed."""
    verdicts = [verdict(row, found) for _, row, found in scored]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("exact", "near", "off", "not followed"))
    text = _HEAD.format(
        jobs=len({job["name"] for job, *_ in scored}),
        repos=len({job["repo"] for job, *_ in scored}),
        verdicts=f"Allocated: {counts} (near: within 2 %).",
    )
    off = [errors(row, found) for _, row, found in scored if "error" not in found]
    text += summary(off) if off else ""
    text += _TABLE + "".join(line(row, job["repo"], found) + "\n" for job, row, found in scored)
    why = json.loads(MISSES.read_text()) if MISSES.exists() else {}
    told = [
        f"- `{name_of(row)}`: {why.get(job['name'], found.get('error', 'not looked into yet'))}\n"
        for (job, row, found), word in zip(scored, verdicts, strict=True)
        if word != "exact"
    ]
    return text + ("\nWhat is not exact, and why:\n\n" + "".join(told) if told else "")


def written(old: str, part: str) -> str:
    """The page `old` with its part for public programs anew, at its end if it had none."""
    before, _, rest = old.partition(_BEGIN)
    after = rest.partition(_END)[2].lstrip("\n")
    return f"{before.rstrip()}\n\n{_BEGIN}\n{part}{_END}\n" + (f"\n{after}" if after else "")


def _say(name: str, found: dict[str, Any], row: dict[str, Any] | None = None) -> None:
    """One line to the terminal as soon as it is known."""
    if "error" in found:
        told = f"NOT FOLLOWED ({found.get('code')}): {found['error'][:600]}"
    elif row is None:
        told = (
            " ".join(f"{found[key] / MIB:,.1f}" for key in FIGURES) + f" | {'; '.join(found['notes'])[:300]}"
        )
    else:
        off = errors(row, found)
        told = " ".join(f"{row[_MEASURED[key]] / MIB:,.1f} {off[key]:+.3f}%" for key in FIGURES)
    print(f"{name} [{found['seconds']:.0f} s] {told}", flush=True)


def main() -> None:
    """Print or write the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--sources", type=Path, default=ROOT / ".public")
    parser.add_argument("--copies", type=Path, default=Path("/tmp/public_followed"))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="in the copies that are there")
    parser.add_argument("--try", dest="only_follow", action="store_true")
    parser.add_argument("--found", type=Path, help="what was found, as JSON, written as it comes")
    parser.add_argument("--keep", action="store_true", help="runs that --found has are not followed again")
    parser.add_argument("-o", type=Path)
    given = parser.parse_args()
    jobs = {job["name"]: job for job in job_files.chosen(job_files.load()[1], given.names)}
    if given.only_follow:
        runs: list[tuple[dict[str, Any], dict[str, Any] | None]] = [(job, None) for job in jobs.values()]
    else:
        runs = [(jobs[row["name"]], row) for row in measured() if row["name"] in jobs]

    told: dict[str, Any] = {}
    if given.found and given.found.exists():
        told = json.loads(given.found.read_text())
    lock = threading.Lock()

    def one(run: tuple[dict[str, Any], dict[str, Any] | None]) -> dict[str, Any]:
        job, row = run
        name = job["name"] if row is None else name_of(row)
        if given.keep and name in told:
            return dict(told[name])
        rank = (row or {}).get("rank") or 0
        copies = given.copies / f"rank{rank}"
        found = follow(job, given.sources.resolve(), copies.resolve(), given.seconds, rank, given.again)
        _say(name, found, row)
        with lock:
            told[name] = found
            if given.found:
                given.found.write_text(json.dumps(told, indent=1) + "\n")
        return found

    with ThreadPoolExecutor(given.at_once) as pool:
        all_found = list(pool.map(one, runs))
    failed = sum("error" in found for found in all_found)
    print(f"{len(runs)} runs, {failed} not followed", file=sys.stderr)
    scored = [(job, row, found) for (job, row), found in zip(runs, all_found, strict=True) if row is not None]
    if not scored:
        return
    if given.o:
        given.o.write_text(written(given.o.read_text(), page(scored)))
    else:
        print(page(scored))


if __name__ == "__main__":
    main()
