"""The measured cases beside the same ones emulated: the table of docs/evidence/EMULATION.md.

    python -m benchmarks emulation truth FOLDER PYTHON [MODEL ...]

FOLDER: the measured cases (`cases.py`, `measure.py`, `h200/truth.json`). PYTHON: of an environment with torch 2.11.0+cu130 and what the cases need. MODEL: only these
models' rows are made anew, the others are kept (`kept.py`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from analyzer import emulate
from analyzer.errors import AnalyzerError
from benchmarks.emulation import kept
from benchmarks.harness import pages


def case_name(case: dict[str, Any]) -> str:
    """ "gpt2, batch 8, train adamw, amp bf16"."""
    told = [
        case["model"],
        f"batch {case['batch']}",
        " ".join((case["mode"], case["opt"] if case["mode"] == "train" else "")).strip(),
    ]
    return ", ".join(
        [*told, *(f"{k} {v}" for k, v in case.items() if k not in ("model", "batch", "mode", "opt"))]
    )


def row(folder: Path, python: str, measured: dict[str, Any]) -> list[str]:
    """One case: how far the emulated peaks are off, in bytes, and seconds."""
    case, started = measured["case"], time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        found = Path(out) / "one.json"
        try:
            emulate(folder / "measure.py", [json.dumps(case), str(found)], python=python, device="h200")
        except AnalyzerError as error:
            print(error, file=sys.stderr)
        seen = json.loads(found.read_text("utf-8")) if found.exists() else {"error": "the process ended"}
    if "error" in seen:
        return ["-", "-", seen["error"][:60].replace("|", " ")]
    off = [seen[name] - measured[name] for name in ("peak_allocated", "peak_reserved")]
    return [f"{off[0]:,}", f"{off[1]:,}", f"{time.monotonic() - started:.0f} s"]


def text(cases: Sequence[kept.Case]) -> str:
    """What the page says of the cases."""
    ran = [cells[:2] for _, cells in cases if "-" not in cells]
    exact = ran.count(["0", "0"])

    def counted(some: Sequence[kept.Case]) -> list[str]:
        off = [f"{case}: {', '.join(cells[:2])}" for case, cells in some if list(cells[:2]) != ["0", "0"]]
        return [f"{len(some) - len(off)} of {len(some)}", "; ".join(off)]

    rows = pages.by_kind(cases, lambda case: case[0].split(", ")[2], counted)
    head = ("kind", "cases", "exact in both", "not exact: bytes off, allocated and reserved")
    return (
        f"{exact} of the {len(ran)} cases that run are exact to the byte in both; {len(cases) - len(ran)} end at a function that is not"
        f" answered.\n\n{pages.table(head, rows, 'lrrl')}"
    )


@click.command("truth")
@click.argument("folder", type=Path)
@click.argument("python")
@click.argument("models", nargs=-1)
def main(folder: Path, python: str, models: tuple[str, ...]) -> None:
    """Emulate the measured cases, all or those of these models, and write their table."""
    old, rows = kept.load("truth"), {}
    for measured in json.loads((folder / "h200" / "truth.json").read_text("utf-8")):
        name = case_name(measured["case"])
        if not models or measured["case"]["model"] in models:
            rows[name] = row(folder, python, measured)
            print(name, *rows[name], flush=True)
        elif name in old:
            rows[name] = old[name]
    kept.keep("truth", rows, text)
