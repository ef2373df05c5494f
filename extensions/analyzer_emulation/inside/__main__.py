"""Runs a program in the user's own Python under the emulated runtime, and writes down what its allocator did:
`python inside JOB OUT`.

This folder is a program of its own: it runs with whatever Python and torch the user has, and imports nothing
of `analyzer` but the folder `values`, as a package by itself. It begins to watch when the program imports
torch, so that what the program sets before is in force.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import runpy
import signal
import sys
import traceback
from multiprocessing.spawn import spawn_main
from pathlib import Path
from types import TracebackType
from typing import Any


class Watch:
    """The program's recorders; `recorder`: None before it imports torch, `sessions`: before onnxruntime."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.recorder: Any = None
        self.sessions: Any = None
        self._job = job

    def begin(self) -> None:
        """Start to record operators."""
        if self.recorder is not None:
            return
        job = self._job
        recorder = beside("record").OperatorRecorder
        self.recorder = recorder(
            job["kernels"], job["device"], job["assume"], job["until"], job["history"], job.get("gpus", 1)
        )

    def begin_sessions(self, onnxruntime: Any) -> None:
        """Start to record ONNX Runtime's sessions."""
        if self.sessions is None:
            ours = (*beside("values.own").RESOLVED, str(Path(__file__).parent))
            recorder = beside("sessions").SessionRecorder
            self.sessions = recorder(onnxruntime, ours, self._job["device"], self._served)

    def _served(self) -> tuple[int, int]:
        return (0, 0) if self.recorder is None else self.recorder.served()


def beside(name: str) -> Any:
    """Import a module of this folder, whose name the program may use too."""
    folder = Path(__file__).parent
    shared = next(
        there for up in (1, 2) if (there := folder.parents[up] / "analyzer/values").is_dir()
    )  # beside this package, or in a checkout
    spec = importlib.util.spec_from_file_location(
        "values", shared / "__init__.py", submodule_search_locations=[str(shared)]
    )
    assert spec is not None
    sys.modules["values"] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for one in ("values", *(f"values.{file.stem}" for file in shared.glob("[!_]*.py"))):
            sys.modules.pop(one, None)
        for file in folder.glob("[!_]*.py"):
            sys.modules.pop(file.stem, None)


def _own_variables() -> dict[str, str]:
    """Restore LD_PRELOAD and LD_LIBRARY_PATH for children; return what was removed."""
    variables: dict[str, str] = {}
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH"):
        kept = f"ANALYZER_EMULATED_{name}"
        variables |= {key: os.environ.pop(key) for key in (name, kept) if key in os.environ}
        if kept in variables:
            os.environ[name] = variables[kept]
    return variables


def _shown(error: BaseException) -> dict[str, str]:
    """Print the traceback of the program's frames; of a user's mistake that this package found (a batch, an
    input) return message and hint instead."""
    if any(base.__module__ == "analyzer.errors" for base in type(error).__mro__):
        return {name: getattr(error, name) for name in ("message", "hint")}
    traceback.print_exception(type(error), error, _of_program(error.__traceback__) or error.__traceback__)
    return {}


def _of_program(frames: TracebackType | None) -> TracebackType | None:
    """Return the frames without ours."""
    ours, rows = beside("values.own").RESOLVED, []
    while frames is not None:
        rows.append(frames)
        frames = frames.tb_next
    first = None
    for row in reversed(rows):
        file = row.tb_frame.f_code.co_filename
        if not (file == "<frozen runpy>" or str(Path(file).resolve()).startswith(ours)):
            first = TracebackType(first, row.tb_frame, row.tb_lasti, row.tb_lineno)
    return first


def main() -> None:
    """JOB: a JSON file with "script", "module" (whether it is a module's name), "arguments", "kernels"
    (`allocators/process.py`), "device" (whose history it is), "gpus" (how many the process has), "assume"
    (place -> value, `ProcessValues`), "packages" (further folders to import from), "until", "history"
    (`OperatorRecorder`) and "figures" (whether anyone wants them); OUT: the file for the record."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it does not outlive whoever started it
    variables = _own_variables()
    is_child = sys.argv[1] == "--child"
    job_file = sys.argv[1 + is_child]
    job = json.loads(Path(job_file).read_text("utf-8"))
    watch = Watch(job)
    importing = beside("importing")
    importing.once_imported("torch", lambda _: watch.begin())
    importing.once_imported("onnxruntime", watch.begin_sessions)
    out = Path(sys.argv[2])
    records_fd = (
        int(sys.argv[3]) if is_child else os.open(f"{out}.children", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    )
    beside("children").follow(watch, job_file, records_fd, variables)
    if is_child:
        keywords = json.loads(sys.argv[4])
        sys.argv[1:] = ["--multiprocessing-fork"]
        spawn_main(**keywords)
    script, arguments = job["script"], job["arguments"]
    sys.argv = [script, *arguments]
    ended: dict[str, Any] = {"how": "ended"}
    names: dict[str, Any] = {}  # the program's own, which hold its model until the figures are taken
    try:
        if job["module"]:
            sys.path[0] = str(Path.cwd())
            sys.path += job["packages"]
            names = runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(script).resolve().parent)
            sys.path += job["packages"]
            names = runpy.run_path(script, run_name="__main__")
    except SystemExit as error:
        code = error.code
        if code not in (None, 0):
            ended = {"how": "exit", "message": f"exit code {code}" if isinstance(code, int) else str(code)}
    except KeyboardInterrupt:
        ended = {"how": "interrupted"}
    except BaseException as error:
        kind = type(error).__name__
        ended = {
            "how": {"OutOfMemoryError": "memory", "Stuck": "stuck", "Enough": "ended"}.get(kind, "error"),
            "kind": kind,
            "message": str(error),
        }
        if ended["how"] == "error":
            ended |= _shown(error)
    record: dict[str, Any] = {"ended": ended}
    if job["figures"] and watch.recorder is not None and sys.modules["torch"].cuda.is_initialized():
        record |= watch.recorder.close()
    if job["figures"] and watch.sessions is not None:
        record |= watch.sessions.close()
    names.clear()
    out.write_text(json.dumps(record), "utf-8")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
