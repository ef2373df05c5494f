"""Cases drawn by lot (`lot.py`) whose steps were said before they were measured: a part of docs/evidence/TIMING.md.

1. `fresh_say DRAW PYTHON` predicts them, the compiled ones emulated by this Python's PyTorch, of a host that nobody measured, and records what
   it says: fresh.json.gz in the records of the draw's GPU. The record was committed before the GPU was asked.
2. `programs --set DRAW` and `compiled --set DRAW` measure them, and `fresh_record DRAW` adds that to the record.
3. The page counts what was said then, never again what would be said now, which stands in a line of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from analyzer.results.step_time import StepTime
from benchmarks.harness import pages
from benchmarks.harness.files import read, write
from benchmarks.timing.cases import COMPILED, SETS, tag
from benchmarks.timing.lot import DRAWS
from benchmarks.timing.pack import of_gpu
from benchmarks.timing.score import Row, of_measured, predicted, summary, table_of_kinds

_TEXT = pages.prose(__file__)
_DRAW = click.argument("draw", type=click.Choice(list(DRAWS)))


def record_of(draw: str) -> Path:
    """Where a draw's predictions and measurements are kept."""
    return of_gpu(DRAWS[draw].gpu) / "fresh.json.gz"


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
@_DRAW
@click.argument("python")
def say(draw: str, python: str) -> None:
    """Predict the cases, and record what is said of each."""
    from analyzer.devices import load
    from analyzer_emulation.step import time_of
    from benchmarks.timing.compiled_score import emulated

    path, gpu = record_of(draw), DRAWS[draw].gpu
    record: dict[str, Any] = read(path) if path.exists() else {"said": {}, "failed": {}}
    for case in (*SETS[draw], *COMPILED[draw]):
        try:
            said = (
                time_of(emulated(python, case)[0], load(gpu))
                if "compile" in case
                else predicted(case, gpu=gpu)
            )
            record["said"][tag(case)] = _kept(said)
        except Exception as error:
            record["failed"][tag(case)] = repr(error)[:300]
        print(tag(case), record["failed"].get(tag(case), ""), flush=True)
        write(path, record)


@click.command("fresh_record")
@_DRAW
@click.argument("folder", type=Path)
def record(draw: str, folder: Path) -> None:
    """Add what was measured (programs.json.gz and compiled.json.gz in the folder) to the record."""
    known = read(record_of(draw))
    known["rows"] = []
    for name in ("programs.json.gz", "compiled.json.gz"):
        content = read(folder / name)
        known["rows"] += [row for row in content["rows"] if row.get("set") == draw]
        known["versions"] = content["versions"]
        known |= {"host": content["host"]} if "host" in content else {}
    write(record_of(draw), known)


def calibrated(draw: str, rows: Sequence[Row]) -> list[Row]:
    """The same cases as rules say them now, of that machine's own host, by the loops that `analyze calibrate` times; compiled ones as
    far as what they launch is recorded."""
    from dataclasses import replace

    from analyzer.devices import load
    from analyzer_emulation.step import time_of
    from analyzer_timing.host import factor_of
    from benchmarks.timing.compiled_score import LAUNCHES

    factor, launches, found = factor_of(read(record_of(draw))["host"]), read(LAUNCHES)["cases"], list[Row]()
    gpu = DRAWS[draw].gpu
    profile = replace(load(gpu), host_factor=factor)
    for row in rows:
        said = (
            time_of(launches.get(tag(row.case), ()), profile)
            if "compile" in row.case
            else predicted(row.case, factor, gpu)
        )
        if said is not None:
            found.append(replace(row, said=said))
    return found


def rows(draw: str) -> tuple[list[Row], list[Row], list[str]]:
    """The eager and the compiled cases, as they were said in advance, and the tags of those that have no figure."""
    known = read(record_of(draw))
    eager, compiled, without = list[Row](), list[Row](), list[str]()
    measured = {tag(row["case"]): row for row in known["rows"]}
    for case in (*SETS[draw], *COMPILED[draw]):
        row, said = measured.get(tag(case), {}), known["said"].get(tag(case))
        if said is None or "wall" not in row:
            without.append(tag(case))
            continue
        time = StepTime(
            **{**said, "device_range": tuple(said["device_range"]), "host_range": tuple(said["host_range"])}
        )
        if "compile" in case:
            compiled.append(Row(draw, case, sum(row["streams"].values()), row["host"], row["wall"], time))
        else:
            eager.append(of_measured(draw, row, time))
    return eager, compiled, without


def section(draw: str, cases: tuple[Sequence[Row], Sequence[Row], Sequence[str]]) -> str:
    """The part's text, of what `rows` says."""
    from analyzer_timing.host import factor_of

    known, all_cases = read(record_of(draw)), [*cases[0], *cases[1]]
    *kinds, (_, *every) = summary(all_cases)
    now = ["all now, of its host", *summary(calibrated(draw, all_cases))[-1][1:]]
    text = _TEXT[draw].format(
        versions=known["versions"],
        count=len(all_cases) + len(cases[2]),
        without="; ".join(f"`{name}`: {_why(known, name)}" for name in cases[2]) or "none",
        factor=factor_of(known["host"]),
    )
    return f"{text}\n\n{table_of_kinds([*kinds, ['all, as said', *every], now])}"


def _why(known: dict[str, Any], name: str) -> str:
    """Why a case has no figure."""
    if name in known["failed"]:
        return f"not said ({known['failed'][name][:90]})"
    if known["said"].get(name) is None:
        return "no time was said"
    error = next((row.get("error", "") for row in known["rows"] if tag(row["case"]) == name), "not reached")
    return f"not measured ({error.strip().splitlines()[-1][:90] if error.strip() else 'no result'})"
