"""Processes that the program starts by `multiprocessing`: they have the emulated GPU too, and what each took
of it is written down.

1. A forked process has everything already. A spawned one is started through this folder (`__main__.py`), with
   the variables by which the emulated libraries are loaded first.
2. At its end each process that used the GPU appends what it saw, one line of JSON, to a file that was opened
   before: it may be allowed to write nowhere else.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing.popen_spawn_posix
import multiprocessing.process
import multiprocessing.util
import os
import sys
from multiprocessing import spawn
from pathlib import Path
from typing import Any

# Of whose functions no type checker knows those that begin with an underscore.
_SPAWNING: Any = multiprocessing.popen_spawn_posix.Popen
_PROCESS: Any = multiprocessing.process.BaseProcess
_UTIL: Any = multiprocessing.util
_FOLDER = str(Path(__file__).parent)


def follow(watch: Any, job: str, records_fd: int, variables: dict[str, str]) -> None:
    """Record child processes started from here on. watch: has the recorder; job: the job's file; records_fd:
    descriptor of the file that records are appended to; variables: environment this process was started
    with."""
    bootstrap, launch = _PROCESS._bootstrap, _SPAWNING._launch

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = self.run

        def to_its_end() -> None:
            try:
                run()
            except BaseException as error:
                if type(error).__name__ != "Enough":
                    raise
            finally:
                _append_record(watch, records_fd)

        self.run = to_its_end
        return bootstrap(self, *args, **kwargs)

    def launched(self: Any, started: Any) -> None:
        self._fds.append(records_fd)
        before = {name: os.environ.get(name) for name in variables}
        command, spawn.get_command_line = spawn.get_command_line, command_line
        os.environ.update(variables)
        try:
            launch(self, started)
        finally:
            spawn.get_command_line = command
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def command_line(**keywords: Any) -> list[str]:
        flags = _UTIL._args_from_interpreter_flags()
        return [sys.executable, *flags, _FOLDER, "--child", job, str(records_fd), json.dumps(keywords)]

    _PROCESS._bootstrap = observed
    _SPAWNING._launch = launched


def _append_record(watch: Any, records_fd: int) -> None:
    """Append this process's record to the records' file, locked."""
    if watch.recorder is None or not sys.modules["torch"].cuda.is_initialized():
        return
    line = memoryview(json.dumps(watch.recorder.close()).encode() + b"\n")
    fcntl.lockf(records_fd, fcntl.LOCK_EX)
    try:
        while line:
            line = line[os.write(records_fd, line) :]
    finally:
        fcntl.lockf(records_fd, fcntl.LOCK_UN)
