"""What `--parallel` predicts beside what two H200 took: python -m benchmarks ranks targets

Measured: `tests/data/h200/ranks_targets.json`, by `measure.py --jobs targets.json` (its rows say with which versions). Targets
need timm and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from analyzer import analyze
from analyzer.parallelism import KINDS
from benchmarks import ROOT, SUBJECTS
from benchmarks.harness.pages import prose
from benchmarks.ranks.score import cells

_TEXT = prose(__file__)

PAGE = ROOT / "docs/PARALLEL.md"
ROWS = ROOT / "tests/data/h200/ranks_targets.json"


def target(row: dict[str, Any]) -> Path:
    """Return the target of a measured row, which names the place where it lay then."""
    path = Path(row["target"])
    return SUBJECTS / "ranks/targets" / path.name if path.is_relative_to("benchmarks/ranks") else ROOT / path


def rows(names: Sequence[str] = ()) -> Iterator[tuple[dict[str, Any], list[tuple[int, int]]]]:
    """A measured row, and (predicted, measured) bytes: allocated, reserved, device."""
    for row in json.loads(ROWS.read_text()):
        if names and row["name"] not in names:
            continue
        options = {**row["options"], "parallel": f"{row['options']['parallel']},rank={row['rank']}"}
        found = analyze(target(row), device="h200", **options)
        pairs = [
            (found.peak_allocated, row["peak_allocated"]),
            (found.peak_reserved, row["peak_reserved"]),
            (found.device_used, row["nvml_peak"]),
        ]
        yield row, pairs


@click.command()
@click.argument("names", nargs=-1)
def targets(names: tuple[str, ...]) -> None:
    """Predict every target's ranks and write the page; of those named, print their rows."""
    lines = []
    for row, pairs in rows(names):
        said = ", ".join(
            f"{name} {value}"
            for name, value in row["options"].items()
            if name not in ("mode", "parallel") and (name, value) != ("optimizer", "adamw")
        )
        lines.append(
            f"| {Path(row['target']).stem} | {row['options']['parallel']} | {said} | {row['rank']} | {cells(pairs)} |"
        )
    if names:
        print("\n".join(lines))
        return
    settings = {kind: ", ".join(f"`{name}`" for name in known) for kind, known in KINDS.items()}
    PAGE.write_text(_TEXT["head"].format(**settings) + "\n".join(lines) + "\n" + _TEXT["tail"])
