"""Extensions: packages beside the core, found by the entry points that installed distributions announce.

1. A group is a kind of thing: `analyzer.commands`, `analyzer.engines`, `analyzer.formats`,
   `analyzer.runtimes`; and `analyzer.extensions`, functions that the core calls where they are there.
2. An extension is imported when somebody asks for it by name, not before.
3. `optional` is None for one that is not there, `required` raises an error that names its package.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from analyzer import child
from analyzer.errors import MissingDependencyError

if TYPE_CHECKING:
    from importlib import metadata

# Whose each is, for the sentence where its package is not installed: group, name -> package.
_PACKAGES = {
    ("engines", "trace"): "analyzer_programs",
    ("engines", "emulate"): "analyzer_emulation",
    ("extensions", "advise"): "analyzer_timing",
    ("extensions", "configuration"): "analyzer_programs",
    ("extensions", "emulate"): "analyzer_emulation",
    ("extensions", "run"): "analyzer_programs",
    ("extensions", "sandbox"): "analyzer_sandbox",
    ("extensions", "verify_emulated"): "analyzer_emulation",
    ("extensions", "verify_emulated_script"): "analyzer_emulation",
    ("extensions", "world"): "analyzer_programs",
}
COMMANDS = {
    "advise": "analyzer_timing",
    "calibrate": "analyzer_verify",
    "emulate": "analyzer_emulation",
    "engine": "analyzer_emulation",
    "pipeline": "analyzer_pipelines",
    "run": "analyzer_programs",
    "serve": "analyzer_serving",
    "verify": "analyzer_verify",
}


def importable() -> None:
    """Make the extensions of a checkout importable, as an installation's are: before an installation's own,
    which are of another core."""
    sys.path[:0] = [folder for folder in child.FOLDERS if folder not in sys.path]


def entries(group: str) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of a group ("runtimes"), as they are announced now."""
    from importlib import metadata  # which costs as much as click

    importable()
    return tuple(metadata.entry_points(group=f"analyzer.{group}"))


@cache
def announced(group: str) -> Mapping[str, Any]:
    """Return the entry points of a group by their names ("commands"). The first distribution's counts."""
    return {entry.name: entry for entry in reversed(entries(group)) if _is_there(entry.value)}


def _is_there(value: str) -> bool:
    """Return whether an entry point's package is there: an installation may leave one out."""
    return find_spec(value.partition(":")[0].partition(".")[0]) is not None


@cache
def optional(group: str, name: str) -> Any:
    """Return what an extension announced, None where there is none."""
    entry = announced(group).get(name)
    return None if entry is None else entry.load()


def required(group: str, name: str, purpose: str) -> Any:
    """Return what an extension announced. purpose: what it is needed for. Raises MissingDependencyError."""
    value = optional(group, name)
    if value is None:
        raise missing(_PACKAGES[group, name], purpose)
    return value


def missing(package: str, purpose: str) -> MissingDependencyError:
    """Return the error for an extension that is not installed."""
    return MissingDependencyError(
        f"{purpose} needs the extension {package}, which is not installed",
        "pip install gpu-memory-analyzer brings it",
    )
