"""The measured cases beside the same ones emulated: the table of docs/evidence/EMULATION.md.

    python -m benchmarks emulation truth FOLDER PYTHON [MODEL ...]

FOLDER: the measured cases (`cases.py`, `measure.py`, `h200/truth.json`). PYTHON: of an environment with torch 2.11.0+cu130 and what the cases need. MODEL: only these
models' rows are made anew, the others are kept.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from analyzer import emulate
from analyzer.errors import AnalyzerError
from benchmarks import ROOT
from benchmarks.harness.pages import part, write_part

PAGE = ROOT / "docs/evidence/EMULATION.md"


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


def row(folder: Path, python: str, measured: dict[str, Any]) -> str:
    """One case: its name, and how far the emulated peaks are off, in bytes."""
    case, started = measured["case"], time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        found = Path(out) / "one.json"
        try:
            emulate(folder / "measure.py", [json.dumps(case), str(found)], python=python, device="h200")
        except AnalyzerError as error:
            print(error, file=sys.stderr)
        seen = json.loads(found.read_text("utf-8")) if found.exists() else {"error": "the process ended"}
    if "error" in seen:
        return f"| {case_name(case)} | - | - | {seen['error'][:60].replace('|', ' ')} |"
    off = [seen[name] - measured[name] for name in ("peak_allocated", "peak_reserved")]
    return f"| {case_name(case)} | {off[0]:,} | {off[1]:,} | {time.monotonic() - started:.0f} s |"


@click.command("truth")
@click.argument("folder", type=Path)
@click.argument("python")
@click.argument("models", nargs=-1)
def main(folder: Path, python: str, models: tuple[str, ...]) -> None:
    """Emulate the measured cases, all or those of these models, and write their table."""
    old = {line.split(" | ")[0][2:]: line for line in part(PAGE, "truth").splitlines() if ", batch " in line}
    rows = []
    for measured in json.loads((folder / "h200" / "truth.json").read_text("utf-8")):
        case = measured["case"]
        if not models or case["model"] in models:
            rows.append(row(folder, python, measured))
            print(rows[-1], flush=True)
        elif case_name(case) in old:
            rows.append(old[case_name(case)])
    exact = [line for line in rows if "| 0 | 0 |" in line]
    ran = [line for line in rows if "| - | - |" not in line]
    told = "\n".join(
        [
            f"{len(exact)} of the {len(ran)} cases that run are exact to the byte in both; {len(rows) - len(ran)} end at a function that is not answered.",
            "",
            "| case | allocated, bytes off | reserved, bytes off | takes |",
            "|---|--:|--:|---|",
            *rows,
        ]
    )
    write_part(PAGE, "truth", told)
