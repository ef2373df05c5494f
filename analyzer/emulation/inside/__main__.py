"""Runs a program in the user's own Python under the emulated runtime: `python inside JOB`.

This folder is a program of its own: it runs with whatever Python and torch the user has, and imports nothing of `analyzer`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path


def main() -> None:
    """JOB: a JSON file with "script", "module" (whether it is a module's name) and "arguments"."""
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):  # as before, for whatever the program starts
        before = os.environ.pop(f"ANALYZER_EMULATED_{name}", None)
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    script, arguments = job["script"], job["arguments"]
    sys.argv = [script, *arguments]
    if job["module"]:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(script).resolve().parent)
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
