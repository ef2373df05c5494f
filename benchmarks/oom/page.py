"""`docs/evidence/OOM.md`: programs that run out of memory, what is said of them, and what a GPU did
(`tests/data/oom/results.json`, recorded by `measure.py`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT

HERE = Path(__file__).parent
RECORDED = ROOT / "tests/data/oom/results.json"
PAGE = ROOT / "docs/evidence/OOM.md"


@dataclass(frozen=True)
class Row:
    """One program. cause: as it is named. fails, line: whether it found no memory under its limit, and whether at the line predicted.
    room: predicted and measured (allocated, reserved) without a limit. remedies: each change with what it
    takes, predicted, and what came of it. settings: each setting's reserved bytes without a limit, predicted
    and measured."""

    name: str
    limit_bytes: int
    said: str
    cause: str
    fails: bool
    line: bool
    room: tuple[tuple[int, int], tuple[int, int]]
    remedies: tuple[tuple[str, int, dict[str, Any]], ...]
    settings: tuple[tuple[str, int, int], ...]

    @property
    def runs(self) -> bool:
        """Whether a change that was named runs under the limit."""
        return any(measured["ended"] == "ok" for _, _, measured in self.remedies)

    @property
    def removed(self) -> bool:
        """Whether the first change that was named runs."""
        return bool(self.remedies) and self.remedies[0][2]["ended"] == "ok"


def rows() -> list[Row]:
    """Return every program that was measured."""
    results = json.loads(RECORDED.read_text("utf-8"))["results"]
    found = []
    for path in sorted((HERE / "subjects").glob("*.json")):
        entry, measured = json.loads(path.read_text("utf-8")), results.get(path.stem, {})
        if not measured:
            continue
        tight, roomy = measured["as it is"], measured["with room"]
        said, fragmentation = entry["with_room"], entry["fragmentation"] or {"settings": []}
        found.append(
            Row(
                path.stem,
                entry["limit_bytes"],
                (HERE / "programs" / f"{path.stem}.py").read_text("utf-8").splitlines()[0].removeprefix("# "),
                _cause(entry),
                tight["ended"] == "out of memory",
                _at(path.stem, int(tight.get("line", 0)), entry["cause"]["source"]),
                (
                    (said["peak_allocated"], roomy.get("peak_allocated", 0)),
                    (said["peak_reserved"], roomy.get("peak_reserved", 0)),
                ),
                tuple(
                    (one["name"], one["peak_reserved"], measured[one["name"]])
                    for one in entry["remedies"]
                    if one["name"] in measured
                ),
                tuple(
                    (
                        row["setting"],
                        row["peak_reserved"],
                        measured[f"with room, {row['setting']}"]["peak_reserved"],
                    )
                    for row in fragmentation["settings"]
                    if "peak_reserved" in measured.get(f"with room, {row['setting']}", {})
                ),
            )
        )
    return found


def page() -> str:
    """Return the page."""
    recorded, every = json.loads(RECORDED.read_text("utf-8")), rows()
    settings = [row for one in every for row in one.settings]
    changes = [change for one in every for change in one.remedies]
    lines = [
        "# Programs that run out of memory",
        "",
        f"{len(every)} programs written in the spirit of public reports (`benchmarks/oom/programs`), each on a card it is"
        " too large for: what `analyze run` says, and what a GPU did whose allocator was held to the same limit"
        " (`torch.cuda.set_per_process_memory_fraction`). "
        f"{recorded['gpu']}, torch {recorded['torch']}, Python {recorded['python']}, {recorded['date']}. Written by"
        " `python -m benchmarks oom table`; the programs were measured by `benchmarks/oom/measure.py`.",
        "",
        f"- {sum(one.fails for one in every)} of {len(every)} find no memory under the limit,"
        f" {sum(one.fails and one.line for one in every)} at the line that is named.",
        f"- {sum(one.runs for one in every)} of {len(every)} run with a change that is named,"
        f" {sum(one.removed for one in every)} with the first, which removes the cause; of {len(changes)} changes"
        f" {sum(measured['ended'] == 'ok' for _, _, measured in changes)} run, reserved as predicted in"
        f" {sum(measured.get('peak_reserved') == said for _, said, measured in changes)}.",
        f"- Reserved under an allocator's setting, without a limit: exact in"
        f" {sum(said == took for _, said, took in settings)} of {len(settings)}.",
        f"- As they are, without a limit: allocated exact in"
        f" {sum(one.room[0][0] == one.room[0][1] for one in every)} of {len(every)}, reserved in"
        f" {sum(one.room[1][0] == one.room[1][1] for one in every)}.",
        "",
        "A line counts as named where the program fails in it, or in the line that calls `backward` for an operator"
        " of the backward pass. Predictions were made without a GPU, by torch 2.13 with cuDNN 9.19 within reach"
        " (`ANALYZER_PYTHON`). What `cycle` takes with room is followed without Python's collector, since it"
        " runs earlier beside a recorder. Before torch 2.13 addresses decide between equal blocks:"
        " `second_step` with saved tensors on the host is said to reserve 1,346 to 1,602 MiB. Under a limit, the"
        " order in which cached segments are given back moves an expandable segment by a page.",
        "",
        "| program | cause as named | limit MiB | fails, at the line | reserved with room, predicted and measured"
        " MiB | changes: predicted and measured reserved MiB |",
        "|---|---|---|---|---|---|",
    ]
    for one in every:
        changed = "; ".join(
            f"{name} {_mib(said)} / "
            f"{_mib(took['peak_reserved']) if took['ended'] == 'ok' else took['ended'].partition(':')[0]}"
            for name, said, took in one.remedies
        )
        lines.append(
            f"| {one.name}: {one.said} | {one.cause} | {_mib(one.limit_bytes)} | {'yes' if one.fails else 'no'},"
            f" {'yes' if one.line else 'no'} | {_mib(one.room[1][0])} / {_mib(one.room[1][1])} | {changed} |"
        )
    return "\n".join(lines) + "\n"


def _cause(entry: dict[str, Any]) -> str:
    """Return the cause as the screen names it: what keeps memory, what is in the way, or what is largest."""
    failed, growth, remedies = entry["cause"], entry["growth"], entry["remedies"]
    if 2 * failed["exception_bytes"] > entry["limit_bytes"]:
        return f"an exception's frames keep {_mib(failed['exception_bytes'])} MiB"
    if growth is not None:
        each = " a call" if growth["every"] == 1 else f" every {growth['every']} calls"
        return (
            f"{growth['source']} leaves {_mib(growth['step_bytes'])} MiB more{each}, held by {growth['held_by']},"
            f" full at call {growth['full_at']}"
        )
    if entry["fragmentation"] is not None and remedies and remedies[0]["kind"] == "environment":
        return "fragmentation"
    if 2 * entry["in_vain_bytes"] > entry["with_room"]["peak_allocated"]:
        return f"{_mib(entry['in_vain_bytes'])} MiB nothing will read again"
    return f"{entry['peak']['largest']}; in {failed['phase']}"


def _at(name: str, line: int, source: str) -> bool:
    """Return whether an error's line is the one that is named: an operator of the backward pass is named by the
    line it is the gradient of, and fails in the line that calls backward."""
    text = (HERE / "programs" / f"{name}.py").read_text("utf-8").splitlines()
    return line > 0 and (str(line) == source.rpartition(":")[2] or ".backward()" in text[line - 1])


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f}"


@click.command()
def score() -> None:
    """Print the page's sentences."""
    click.echo("\n".join(line for line in page().splitlines() if line.startswith("- ")))


@click.command()
def write_page() -> None:
    """Write docs/evidence/OOM.md."""
    PAGE.write_text(page(), "utf-8")
