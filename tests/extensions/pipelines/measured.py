"""Pipelines of real sizes beside an H200, and the page that shows them.

    python -m tests.extensions.pipelines.measured predict [NAME ...]  # tests/data/pipelines.json, some 20 s of processor a row
    python -m tests.extensions.pipelines.measured table               # docs/evidence/DIFFUSION.md

The GPU ran `extensions/analyzer_pipelines/program.py` with the configurations of `benchmarks/subjects/pipelines.py`, each row
in a process of its own; the peaks of its stages are between the ends of its NVTX ranges.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.paths import ROOT

MEASURED = ROOT / "tests/data/h200/pipelines.json"
PREDICTED = ROOT / "tests/data/pipelines.json"
PAGE = ROOT / "docs/evidence/DIFFUSION.md"
MIB = 1 << 20


def measured() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(MEASURED.read_text())
    return document


def predicted() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads(PREDICTED.read_text())
    return rows


def prediction(row: dict[str, Any]) -> dict[str, Any]:
    """Follow a row's run; returns its figures in bytes."""
    import analyzer
    from analyzer_pipelines.configurations import PROGRAM
    from analyzer_pipelines.stages import stages
    from benchmarks.subjects.pipelines import write

    with tempfile.TemporaryDirectory() as folder:
        write(row["pipeline"], Path(folder))
        estimate = analyzer.run(PROGRAM, [folder, *row["arguments"]], device="h200", engine="trace")
    return {
        "allocated": estimate.peak_allocated,
        "reserved": estimate.peak_reserved,
        "reserved_range": estimate.reserved_range,
        "stages": {stage.name: stage.peak_allocated for stage in stages(estimate)},
        "ended": estimate.incomplete or "",
    }


def predict(names: list[str]) -> None:
    rows = predicted() if PREDICTED.exists() else {}
    for row in measured()["rows"]:
        if not names or row["name"] in names:
            rows[row["name"]] = prediction(row)
            print(row["name"], rows[row["name"]], flush=True)
            PREDICTED.write_text(json.dumps(rows, indent=1) + "\n")


def _beside(foretold: int, taken: int) -> str:
    return "exact" if foretold == taken else f"{100 * (foretold / taken - 1):+.2f} %"


def page() -> str:
    document, rows = measured(), predicted()
    lines, exact, near, held, stages, equal = [], 0, 0, 0, 0, 0
    for row in document["rows"]:
        foretold, words = rows[row["name"]], " ".join(row["arguments"])
        if "error" in row:
            outcome = "foretold" if row["error"].partition(": ")[2] in foretold["ended"] else "not foretold"
            lines.append(f"| {row['pipeline']} | `{words}` | the program's own error | {outcome} | | |")
            continue
        exact += foretold["allocated"] == row["allocated"]
        near += abs(foretold["allocated"] / row["allocated"] - 1) <= 0.01
        held += abs(foretold["reserved"] / row["reserved"] - 1) <= 0.02
        stages += len(row["stages"])
        equal += sum(foretold["stages"].get(name) == nbytes for name, nbytes in row["stages"].items())
        lines.append(
            f"| {row['pipeline']} | `{words}` | {row['allocated'] / MIB:,.1f} |"
            f" {_beside(foretold['allocated'], row['allocated'])} | {row['reserved'] / MIB:,.1f} |"
            f" {_beside(foretold['reserved'], row['reserved'])} |"
        )
    ran = sum("error" not in row for row in document["rows"])
    return (
        f"""# Diffusion pipelines, predicted and measured

`analyze pipeline` follows diffusers' pipelines, built from configurations. Here are its figures beside an {document["gpu"]} (torch
{document["torch"]}, diffusers {document["diffusers"]}, transformers {document["transformers"]}, {document["date"]}; random weights of real size, two
steps). Written by `python -m tests.extensions.pipelines.measured table`; the runs are in `tests/data/h200/pipelines.json`.

Allocated is exact in {exact} of {ran} runs and within 1 % in {near}; reserved within 2 % in {held}; of {stages} stages' peaks {equal} are exact. The
process's resident memory was measured, and is not predicted.

MiB measured, and how far the prediction is from it:

| pipeline | options of `program.py` | allocated | | reserved | |
|---|---|--:|---|--:|---|
"""
        + "\n".join(lines)
        + "\n"
    )


if __name__ == "__main__":
    if sys.argv[1] == "table":
        PAGE.write_text(page())
    else:
        predict(sys.argv[2:])
