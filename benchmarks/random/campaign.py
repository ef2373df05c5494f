"""Random programs, traced beside emulated: no GPU is needed.

    python -m benchmarks random score PYTHON [--seed 7] [--count 60] [-o OUT.jsonl]
    python -m benchmarks random shrink PYTHON [--seed 7] [--count 60]     the first that differs, made as small as hypothesis can
    python -m benchmarks random table OUT.jsonl ...                       docs/evidence/RANDOM.md
    python -m benchmarks random record OUT.jsonl -o FILE.json.gz          what the tests follow: those that ran, with what was emulated
    python -m benchmarks random why ROWS HISTORIES NAME                   where a program parts from a history of a GPU (`why.py`)

PYTHON: of an environment with a CUDA build of torch. A seed gives the same programs with the same release of hypothesis.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks import ROOT
from benchmarks.harness import files, pages
from benchmarks.subjects.random import programs

DEVICE, PAGE = "h100", ROOT / "docs/evidence/RANDOM.md"
_SECONDS = 300


def compared(text: str, python: str) -> dict[str, Any]:
    """A program on both sides. kind: "same" requests and returns, "peaks" (the same peaks), "differs", or "invalid" (it fails for itself)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(text, "utf-8")
        words = [
            "verify",
            "run",
            "--emulated",
            "--python",
            python,
            "--device",
            DEVICE,
            "-q",
            "--format",
            "json",
        ]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "analyzer", *words, str(path)],
                capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"program": text, "kind": "differs", "at": f"no answer in {_SECONDS} s"}
    if not done.stdout:
        said = [line for line in done.stderr.splitlines() if line.startswith("analyze: error: ")] or [
            done.stderr[-300:]
        ]
        return {"program": text, "kind": "ended", "at": said[0].removeprefix("analyze: error: ").strip()}
    found = json.loads(done.stdout)
    figures = {row["name"]: (row["predicted"], row["measured"]) for row in found["figures"]}
    peaks = {name: figures[name] for name in ("allocated", "reserved")}
    same = found["history"] is not None and found["history"]["first"] is None
    kind = "same" if same else "peaks" if all(a == b for a, b in peaks.values()) else "differs"
    first = found["history"]["first"] if found["history"] else None
    at = "" if first is None else f"{first['what']} ({first['operator']}, {first['source']})"
    return {"program": text, "kind": kind, "at": at, **peaks}


def drawn(number: int, count: int) -> list[str]:
    """So many different programs of a seed."""
    found: dict[str, None] = {}

    @seed(number)
    @settings(
        max_examples=2 * count,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def draw(text: str) -> None:
        found[text] = None

    draw()
    return list(found)[:count]


@click.command("score")
@click.argument("python")
@click.option("--seed", "number", default=0, show_default=True)
@click.option("--count", default=60, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option("-o", "--output", type=Path)
def score(python: str, number: int, count: int, workers: int, output: Path | None) -> None:
    """Follow and emulate programs of a seed, and say where they differ."""
    kinds: Counter[str] = Counter()
    with (
        ThreadPoolExecutor(workers) as pool,
        (output or Path("/dev/null")).open("w", encoding="utf-8") as stream,
    ):
        for place, row in enumerate(pool.map(lambda text: compared(text, python), drawn(number, count))):
            kinds[row["kind"]] += 1
            print(json.dumps({"seed": number, "number": place, **row}), file=stream, flush=True)
            if row["kind"] not in ("same", "peaks"):
                peaks = "  ".join(
                    f"{name} {row[name][0]:,} for {row[name][1]:,}"
                    for name in ("allocated", "reserved")
                    if name in row
                )
                click.echo(f"{place:4} {row['kind']:8} {row['at'][:160]}  {peaks}")
    click.echo(", ".join(f"{kind}: {times}" for kind, times in kinds.most_common()))


@click.command("shrink")
@click.argument("python")
@click.option("--seed", "number", default=0, show_default=True)
@click.option("--count", default=60, show_default=True)
def shrink(python: str, number: int, count: int) -> None:
    """Show the smallest program found whose peaks differ; its failure's last lines say it."""

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def differs(text: str) -> None:
        row = compared(text, python)
        assert row["kind"] != "differs", f"{row['at']}\n{text}"

    try:
        differs()
    except AssertionError as found:
        click.echo(str(found))
    else:
        click.echo(f"none of {count} differs")


@click.command("table")
@click.argument("rows", nargs=-1, required=True, type=Path)
def table(rows: tuple[Path, ...]) -> None:
    """Write the page of what these campaigns found."""
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    counted: list[tuple[object, ...]] = []
    differing: list[tuple[object, ...]] = []
    for path in rows:
        every = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        kinds = Counter(row["kind"] for row in every)
        counted.append(
            (every[0]["seed"], len(every), *(kinds[kind] for kind in ("same", "peaks", "differs", "ended")))
        )
        for row in every:
            if row["kind"] in ("differs", "ended"):
                off = [pages.off(*row[name]) if name in row else "" for name in ("allocated", "reserved")]
                differing.append((row["seed"], row["number"], *off, row["at"].replace("|", "/")[:160]))
    PAGE.write_text(
        f"""# Random programs, traced beside emulated

Written by `python -m benchmarks random table` on {date}: programs drawn by hypothesis (`benchmarks/subjects/random.py`), followed by
`analyze run` and run by PyTorch's own CUDA build under the emulated runtime, as an {DEVICE}. *same*: the same requests and returns in the
same order; *peaks*: other requests, the same peaks; *ended*: one of the two got no further. A seed's figures are those of the day it was first run.

{pages.table(("seed", "programs", "same", "peaks", "differs", "ended"), counted)}

## What differed

{pages.table(("seed", "number", "allocated", "reserved", "where first"), differing) if differing else "Nothing."}
""",
        encoding="utf-8",
    )


@click.command("record")
@click.argument("rows", nargs=-1, required=True, type=Path)
@click.option("-o", "--output", required=True, type=Path)
@click.option("--count", default=30, show_default=True)
def record(rows: tuple[Path, ...], output: Path, count: int) -> None:
    """Keep programs that ran on both sides, with the peaks that were emulated."""
    every = [json.loads(line) for path in rows for line in path.read_text("utf-8").splitlines()]
    kept = [
        {
            "seed": row["seed"],
            "number": row["number"],
            "program": row["program"],
            **{name: row[name][1] for name in ("allocated", "reserved")},
        }
        for row in every
        if row["kind"] in ("same", "peaks")
    ][:count]
    files.write(output, kept)
    click.echo(f"{len(kept)} programs of {len(every)}")
