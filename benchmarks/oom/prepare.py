"""The programs that run out of memory, followed on a card they are too large for: the cause, and what makes them
fit, as `analyze run` says; written to `subjects`, for `measure.py` to run on a GPU.

    python -m benchmarks oom prepare [NAME ...]
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.analysis import Analysis
from analyzer.options import Options
from analyzer.pipeline.diagnosis import diagnosed
from analyzer.results.estimate import UNREAD
from analyzer.runtimes.timeline import simulate
from analyzer.runtimes.under_settings import under_setting
from analyzer_programs.program import follow
from analyzer_programs.ways.way_out import ways_out

HERE = Path(__file__).parent
# The part of what a program holds with room that its card leaves to the allocator.
PARTS = {
    "backward": 0.93,
    "exception": 0.68,
    "hf_evaluation": 0.13,
    "loader": 0.52,
    "logits": 0.6,
    "running_loss": 0.5,
    "second_step": 0.8,
    "validation": 0.5,
}
_USUAL = 0.7
# What this one holds depends on when Python collects garbage.
DEVICES = {"cycle": "1339MiB"}
_CAUSE = ("label", "source", "phase", "requested_bytes", "cycle_bytes", "exception_bytes")
HOLES = ("sizes", "holes")
_MIB = 1 << 20


def subject(name: str) -> dict[str, Any]:
    """Return a program's card, what `analyze run` says of it there, and the changes it names."""
    path = HERE / "programs" / f"{name}.py"
    analysis, _ = follow(path, (), Options.of({"device": "h100"}), {})
    roomy = analysis.estimate
    held = int(PARTS.get(name, _USUAL) * roomy.peak_reserved)
    if name in HOLES:
        held = _between(analysis)
    size = -(-(roomy.device_used - roomy.peak_reserved + held) // _MIB)
    options = Options.of({"device": DEVICES.get(name, f"{size}MiB")})
    found = diagnosed(follow(path, (), options, {})[0])
    remedies = ways_out(str(path), (), options, {}, "end", found).remedies
    estimate, text = found.estimate, path.read_text("utf-8")
    failed = estimate.out_of_memory
    assert failed is not None
    return {
        "device": options.device,
        "mode": estimate.mode,
        "limit_bytes": failed.limit_bytes,
        "cause": {key: getattr(failed, key) for key in _CAUSE},
        "peak": {
            "at": estimate.peak_at,
            "largest": max(estimate.breakdown, key=estimate.breakdown.__getitem__),
        },
        "with_room": {key: getattr(estimate, key) for key in ("peak_allocated", "peak_reserved")},
        "growth": None if estimate.growth is None else asdict(estimate.growth),
        "fragmentation": None if estimate.fragmentation is None else asdict(estimate.fragmentation),
        "in_vain_bytes": sum(
            row.nbytes for row in estimate.tensors if row.path[:1] and row.path[0] in UNREAD
        ),
        "remedies": [
            {**asdict(one), "text": patched(text, one.typed) if one.kind == "patch" else ""}
            for one in remedies
        ],
    }


def _between(analysis: Analysis) -> int:
    """Return a limit under which the program finds no memory, and would with segments that expand."""
    allocator = analysis.prediction.allocator()
    assert isinstance(allocator, PyTorchAllocator) and analysis.prediction.limited is not None
    least = under_setting(analysis.events, allocator.settings, {"expandable_segments": True}).peak_reserved
    most = analysis.estimate.peak_reserved
    for part in (0.9, 0.7, 0.5, 0.3, 0.15, 0.05):
        limit = int(least + part * (most - least))
        if simulate(analysis.events, analysis.prediction.limited(limit, True)).failure is not None:
            return limit
    raise SystemExit(f"{analysis.estimate.target}: runs wherever it would with segments that expand")


def patched(text: str, diff: str) -> str:
    """Return a text with a unified diff without context applied."""
    lines, hunks = text.splitlines(keepends=True), re.split(r"(?m)^(?=@@)", diff)[1:]
    for hunk in reversed(hunks):
        head, *body = hunk.splitlines(keepends=True)
        begin, count = re.match(r"@@ -(\d+)(?:,(\d+))?", head).groups()  # type: ignore[union-attr]
        number = 1 if count is None else int(count)
        first = int(begin) - 1 if number else int(begin)
        lines[first : first + number] = [line[1:] for line in body if line.startswith("+")]
    return "".join(lines)


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Follow the named programs (all, without names), and write what is said of each to a file of its own."""
    (HERE / "subjects").mkdir(exist_ok=True)
    sys.modules["bitsandbytes"] = None  # type: ignore[assignment]  # the GPU's machine lacks it
    for name in names or sorted(part.stem for part in (HERE / "programs").glob("*.py")):
        entry = subject(name)
        print(name, entry["device"], entry["cause"], [one["name"] for one in entry["remedies"]], flush=True)
        text = json.dumps(entry, indent=1, sort_keys=True) + "\n"
        (HERE / "subjects" / f"{name}.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
