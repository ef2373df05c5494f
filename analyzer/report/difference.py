"""A difference of two estimates for a terminal, as JSON, and as annotations of a pull request on GitHub.

Names come out of models: they pass through `words.clean`, and in annotations through GitHub's own escapes
(https://docs.github.com/actions/reference/workflow-commands-for-github-actions).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.report import speed
from analyzer.report.columns import Column, table, within
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, percent, size

if TYPE_CHECKING:
    from analyzer.results.difference import Change, Difference

WORDS = {"peak_allocated": "allocated", "peak_reserved": "reserved", "device_used": "device"}
_TOP_LEVEL = "(top level)"
_ANNOTATED = 10
_SHARES = 3
_NOT_SOURCES = ("site-packages", "node_modules", "__pycache__")


def render(difference: Difference, view: View = PLAIN) -> str:
    """Return the verdict, the figures, and what changed at the peak."""
    lines = [verdict(difference), ""]
    lines += [f"{name}: {clean(before)}, now {clean(after)}" for name, before, after in difference.unlike]
    columns = [Column("", 12), Column("before", 14, rank=2), Column("after", 14), Column("change", 14)]
    columns.append(Column("", 10, rank=1))
    rows = [
        [f"{WORDS[c.name]:<12}", size(c.before), size(c.after), signed(c.grown), percent(c.grown, c.before)]
        for c in difference.figures
    ]
    lines += table(columns, rows, view.width)
    lines += step_lines(difference)
    if difference.moved:
        lines.append(f"the peak was in {clean(difference.moved[0])} and is in {clean(difference.moved[1])}")
    for title, changes in (
        ("by category", difference.categories),
        ("by module", difference.modules),
        ("by line", difference.lines),
    ):
        if changes:
            lines += ["", f"At the peak, {title}"]
            lines += [f"{signed(c.grown):>14}  {named(c)}" for c in changes[: view.top]]
            if len(changes) > view.top:
                lines.append(f"{'':>14}  and {len(changes) - view.top} more (--format json lists all)")
    return "\n".join(within(lines, view.width)) + "\n"


def verdict(difference: Difference) -> str:
    """Return one sentence: whether it grew past the tolerance, and how much."""
    most = max(difference.figures, key=lambda c: c.grown / max(c.before, 1))
    share = f"{100 * difference.tolerance:g} %" if difference.tolerance else ""
    share = size(difference.allowed_bytes) if difference.allowed_bytes else share
    allowed = f" ({share} allowed)" if share else ""
    if all(change.grown == 0 for change in difference.figures):
        return "no change"
    if difference.exceeds:
        return (
            f"needs more: {WORDS[most.name]} {signed(most.grown)},"
            f" {percent(most.grown, most.before)}{allowed}"
        )
    if most.grown > 0:
        return (
            f"within tolerance: {WORDS[most.name]} {signed(most.grown)},"
            f" {percent(most.grown, most.before)}{allowed}"
        )
    least = min(difference.figures, key=lambda c: c.grown)
    return f"needs less: {WORDS[least.name]} {signed(least.grown)}, {percent(least.grown, least.before)}"


def step_lines(difference: Difference) -> list[str]:
    """Return the time of a step before and after, which affects no verdict; empty unless both are known."""
    one, two = difference.before.step_seconds, difference.after.step_seconds
    if one is None or two is None:
        return []
    change = f"{100 * (two.seconds / one.seconds - 1):+.1f} %" if one.seconds else "-"
    ranges = f"{speed.step_range(difference.before)}, now {speed.step_range(difference.after)}"
    return [
        f"a step took about {speed.step(difference.before)} and takes {speed.step(difference.after)},"
        f" {change} ({ranges})"
    ]


def render_json(difference: Difference, _: View = PLAIN) -> str:
    """Return the difference as JSON, without the two estimates."""

    def rows(changes: Sequence[Change]) -> list[dict[str, object]]:
        return [{**dataclasses.asdict(change), "grown": change.grown} for change in changes]

    document = {
        "schema": 1,
        "exceeds": difference.exceeds,
        "tolerance": difference.tolerance,
        "tolerance_bytes": difference.allowed_bytes,
        "figures": rows(difference.figures),
        "categories": rows(difference.categories),
        "modules": rows(difference.modules),
        "lines": rows(difference.lines),
        "shares": rows(difference.shares),
        "unlike": [list(entry) for entry in difference.unlike],
        "moved": list(difference.moved) if difference.moved else None,
        "time": {"before": speed.fields(difference.before), "after": speed.fields(difference.after)},
    }
    return json.dumps(document, indent=1) + "\n"


def render_github(difference: Difference, _: View = PLAIN) -> str:
    """Return GitHub workflow commands: the verdict, and an annotation for each grown line."""
    kind = "error" if difference.exceeds else "notice"
    grown = [share for share in difference.shares if share.grown > 0][:_SHARES]
    why = ", ".join(f"{named(share)} {signed(share.grown)}" for share in grown)
    message = verdict(difference) + (f": {why}" if difference.exceeds and why else "")
    lines = [f"::{kind} title=GPU memory::{_data(message)}"]
    if difference.exceeds:
        for change in [c for c in difference.lines if c.grown > 0 and ":" in c.name][:_ANNOTATED]:
            file, number = change.name.rsplit(":", 1)
            file = clean(_from_here(file, difference.after.target))
            text = f"{signed(change.grown)} at the peak, now {size(change.after)}"
            lines.append(
                f"::warning file={_property(file)},line={_property(clean(number))},title=GPU"
                f" memory::{_data(text)}"
            )
    return "\n".join(lines) + "\n"


def _from_here(file: str, target: str) -> str:
    """Return the path GitHub needs, from the working directory: an estimate has a file's last name only.

    It is looked for beside the target, then in the whole working directory; where there are several it stays
    as it is.
    """
    current = Path.cwd()
    folders = [Path(part).parent for part in (target, target.rpartition(":")[0]) if part]
    beside = [path for path in (current / folder / file for folder in [Path(), *folders]) if path.is_file()]
    for path in beside or _files_named(current, Path(file).name):
        if path.resolve().is_relative_to(current):
            return path.resolve().relative_to(current).as_posix()
    return file


def _files_named(folder: Path, name: str) -> list[Path]:
    """Return the one file of that name below the folder, without hidden and installed ones."""
    lines = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".") and f not in _NOT_SOURCES]
        if name in files:
            lines.append(Path(parent) / name)
    return lines if len(lines) == 1 else []


def signed(nbytes: int) -> str:
    return f"+{size(nbytes)}" if nbytes > 0 else size(nbytes)


def named(change: Change) -> str:
    return clean(change.name) or _TOP_LEVEL


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
