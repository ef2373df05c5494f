"""Cases drawn by lot (`lot.py`) whose steps were said before they were measured: a part of docs/evidence/TIMING.md.

1. `fresh_say PYTHON` predicts them, the compiled ones emulated by this Python's PyTorch, of a host that nobody measured, and records what
   it says: fresh.json.gz. The record was committed before the GPU was asked.
2. `programs --set fresh` and `compiled --set fresh` measure them, and `fresh_record` adds that to the record.
3. `fresh_table` counts what was said then, never again what would be said now.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from analyzer.timing.step_time import StepTime
from benchmarks.harness import pages
from benchmarks.harness.files import read, write
from benchmarks.timing.cases import COMPILED, SETS, tag
from benchmarks.timing.lot import DRAWN
from benchmarks.timing.pack import RAW
from benchmarks.timing.score import HEAD, PAGE, Row, cells, predicted, summary

RECORD = RAW / "fresh.json.gz"
_DIGITS = 2
_TEXT = pages.prose(__file__)


def _kept(said: StepTime | None) -> dict[str, Any] | None:
    """What is recorded of a prediction: its figures without their parts."""
    if said is None:
        return None
    return {
        name: value
        for name, value in dataclasses.asdict(said).items()
        if not name.startswith("by_") and name != "unknown"
    }


@click.command("fresh_say")
@click.argument("python")
@click.option("--launches", type=Path, help="a folder with what was emulated before")
def say(python: str, launches: Path | None) -> None:
    """Predict the cases, and record what is said of each."""
    from analyzer.devices import load
    from analyzer.emulation.step import time_of
    from benchmarks.timing.compiled_score import DEVICE, emulated

    record: dict[str, Any] = read(RECORD) if RECORD.exists() else {"said": {}, "failed": {}}
    for case in SETS[DRAWN]:
        try:
            record["said"][tag(case)] = _kept(predicted(case))
        except Exception as error:
            record["failed"][tag(case)] = repr(error)[:300]
        write(RECORD, record)
    for case in COMPILED[DRAWN]:
        known = None if launches is None else launches / f"{case['model']}.json.gz"
        try:
            found = read(known)["launches"] if known and known.exists() else emulated(python, case)[0]
            record["said"][tag(case)] = _kept(time_of(found, load(DEVICE)))
        except Exception as error:
            record["failed"][tag(case)] = repr(error)[:300]
        write(RECORD, record)


@click.command("fresh_record")
@click.argument("folder", type=Path)
def record(folder: Path) -> None:
    """Add what was measured (programs.json.gz and compiled.json.gz in the folder) to the record."""
    known = read(RECORD)
    known["rows"] = []
    for name in ("programs.json.gz", "compiled.json.gz"):
        content = read(folder / name)
        known["rows"] += [row for row in content["rows"] if row.get("set") == DRAWN]
        known["versions"] = content["versions"]
        known |= {"host": content["host"]} if "host" in content else {}
    write(RECORD, known)


def calibrated(rows: Sequence[Row]) -> list[Row]:
    """The same cases as rules say them now, of that machine's own host, by the loops that `analyze calibrate` times."""
    from dataclasses import replace

    from analyzer.devices import load
    from analyzer.emulation.step import time_of
    from analyzer.timing.host import factor_of
    from benchmarks.timing.compiled_score import DEVICE, LAUNCHES

    factor, launches, found = factor_of(read(RECORD)["host"]), read(LAUNCHES)["cases"], list[Row]()
    profile = replace(load(DEVICE), host_factor=factor)
    for row in rows:
        said = (
            time_of(launches[tag(row.case)], profile)
            if "compile" in row.case
            else predicted(row.case, factor)
        )
        if said is not None:
            found.append(replace(row, said=said))
    return found


def rows() -> tuple[list[Row], list[Row], list[str]]:
    """The eager and the compiled cases, as they were said in advance, and the tags of those that have no figure."""
    known = read(RECORD)
    eager, compiled, without = list[Row](), list[Row](), list[str]()
    measured = {tag(row["case"]): row for row in known["rows"]}
    for case in (*SETS[DRAWN], *COMPILED[DRAWN]):
        row, said = measured.get(tag(case), {}), known["said"].get(tag(case))
        if said is None or "wall" not in row:
            without.append(tag(case))
            continue
        time = StepTime(
            **{**said, "device_range": tuple(said["device_range"]), "host_range": tuple(said["host_range"])}
        )
        if "compile" in case:
            compiled.append(Row(DRAWN, case, sum(row["streams"].values()), row["host"], row["wall"], time))
        else:
            eager.append(
                Row(
                    DRAWN,
                    case,
                    sum(row["streams"].values()),
                    min(row["enqueue"], row["small"]),
                    row["wall"],
                    time,
                )
            )
    return eager, compiled, without


def section(eager: Sequence[Row], compiled: Sequence[Row], without: Sequence[str]) -> str:
    """The part's text."""
    from analyzer.timing.host import factor_of

    known = read(RECORD)
    own = calibrated(eager), calibrated(compiled)
    versions = known["versions"]
    head = ("case", "device ms", "said", "", "host ms", "said", "", "step ms", "said", "", "range", "bound")
    of = f"{versions['gpu']}, torch {versions['torch']}, {versions['date']}"
    lines = [
        (name, *summary(group)[-1][1:])
        for name, group in (
            ("eager, as said", eager),
            ("compiled, as said", compiled),
            ("all, as said", [*eager, *compiled]),
            ("all, of its host", [*own[0], *own[1]]),
        )
    ]
    reasons = [f"`{name}`: {_why(known, name)}" for name in without]
    return "\n\n".join(
        [
            _TEXT["opening"].format(
                of=of,
                count=len(eager) + len(compiled) + len(without),
                without="; ".join(reasons) or "none",
                factor=factor_of(known["host"]),
            ),
            pages.table(HEAD, lines, "lrrrrrrr").rstrip(),
            pages.table(head, [cells(row, _DIGITS) for row in (*eager, *compiled)], "lrrrrrrrrrll").rstrip(),
        ]
    )


def _why(known: dict[str, Any], name: str) -> str:
    """Why a case has no figure."""
    if name in known["failed"]:
        return f"not said ({known['failed'][name][:90]})"
    if known["said"].get(name) is None:
        return "no time was said"
    error = next((row.get("error", "") for row in known["rows"] if tag(row["case"]) == name), "not reached")
    return f"not measured ({error.strip().splitlines()[-1][:90] if error.strip() else 'no result'})"


@click.command("fresh_table")
def table() -> None:
    """Write the cases' part of docs/evidence/TIMING.md."""
    pages.write_part(PAGE, "fresh", section(*rows()))
