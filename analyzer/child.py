"""A module of this package run as a process of its own, by this Python.

The child finds the package where this process has it. The folder is passed on the command line, not in
PYTHONPATH: the variable would reach every other Python that the child starts, and where the package is
installed its folder holds this environment's torch too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

_BESIDE = Path(__file__).parents[1]
# Where the core and its extensions lie: beside it, or in a checkout's folder.
FOLDERS = tuple(str(folder) for folder in (_BESIDE, _BESIDE / "extensions") if any(folder.glob("analyzer*")))


def packages() -> list[Path]:
    """Return the folders of the core and its extensions."""
    packages = (path for folder in FOLDERS for path in Path(folder).glob("analyzer*"))
    return sorted(path for path in packages if (path / "__init__.py").exists())


# Runs a module as `python -m` would, with more folders to import from: those before its own, in order.
_START = """
import json, runpy, sys
module, folders = sys.argv[1], json.loads(sys.argv[2])
if not set(folders) <= set(sys.path):
    sys.path[:] = folders + [folder for folder in sys.path if folder not in folders]
sys.argv[:] = sys.argv[2:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def command(module: str, *arguments: str, folders: Sequence[str] = FOLDERS) -> list[str]:
    """Return the command that runs a module with arguments. folders: further folders it imports from."""
    # -P: the folder in which the command is typed may hold files with the names of modules.
    return [sys.executable, "-P", "-c", _START, module, json.dumps(list(folders)), *arguments]


def error_stream() -> int:
    """Return the descriptor a child prints to: this process's stderr, also where Python's has none of its own
    (a test's, a notebook's, a redirected one)."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return 2
