"""What came of following each measured program the last time, and by which commit: `followed.json`.

    python -m benchmarks public keep FOUND [--tool COMMIT]   # of what `score --found FOUND` wrote

A machine of two cores follows all of them in a day, so some are followed again and the others stand as they were.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT

RECORD = ROOT / "benchmarks/public/followed.json"
DOUBTS = ("may differ", "may decide otherwise", "depends on data", "L-BFGS", "are between bounds")
_LATE = "not ended after"  # `followed.py`
_FIGURES = ("allocated", "reserved", "device", "bounded", "unknown", "error", "code", "seconds")


def load() -> dict[str, dict[str, Any]]:
    """What came of each run, by its name, with the commit that followed it ("tool")."""
    return dict(json.loads(RECORD.read_text())) if RECORD.exists() else {}


def kept(found: dict[str, Any], tool: str) -> dict[str, Any]:
    """What is recorded of a run: figures, and the notes that say a doubt."""
    notes = [note for note in found.get("notes", ()) if any(word in note for word in DOUBTS)]
    return {"tool": tool, **{key: found[key] for key in _FIGURES if key in found}, "notes": notes}


def by_whom(found: Iterable[dict[str, Any]]) -> str:
    """How many of these were followed last by which commit."""
    counts = Counter(one["tool"][:8] for one in found)
    return ", ".join(f"{count} by commit {tool}" for tool, count in counts.most_common())


@click.command()
@click.option("--tool", help="the commit that followed them; by default this tree's")
@click.argument("found", type=Path)
def keep(found: Path, tool: str | None) -> None:
    """Record what `score --found` wrote, in place of what is recorded of the same runs. What did not end in the time it was given says
    nothing against what was found before."""
    said = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    tool = tool or subprocess.run(said, check=True, capture_output=True, text=True).stdout.strip()
    runs = load()
    for name, one in json.loads(found.read_text()).items():
        if _LATE not in one.get("error", "") or "error" in runs.get(name, {"error": ""}):
            runs[name] = kept(one, tool)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(runs[name])}" for name in sorted(runs))
    RECORD.write_text(f"{{\n{lines}\n}}\n")
