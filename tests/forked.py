"""Processes of tests that start with torch imported: children of one process, which imports it once for all of them.

Each is as new to its code as a process of its own: modules, variables, folder and files are what the caller gives it. What
a test asks about the start of a process itself (its command, what it imports before the code) is asked of a real one.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.paths import PYTHONPATH

# For every request it forks; the child is `python -c CODE` or `python -m MODULE`, and its exit code goes into a pipe of the request.
_SERVER = """
import fcntl, json, os, runpy, select, signal, socket, sys, traceback
import networkx, torch
import analyzer_programs.peer
import analyzer_programs.following.script, analyzer_programs.live

here, running, own = socket.socket(fileno=int(sys.argv[1])), {}, list(sys.path)

def become(told, files):
    here.close()
    for other, _ in running.values():
        os.close(other)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["variables"])
    files = [fcntl.fcntl(file, fcntl.F_DUPFD, 500) for file in files[1:]]  # out of the way of the numbers they get
    for number, file in zip((0, 1, 2, *told["kept"]), files):
        os.dup2(file, number)
        os.close(file)
    paths = [path for path in told["variables"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [told["folder"] if told["module"] else "", *paths, *(path for path in own if path not in paths)]
    sys.argv[:] = told["words"]
    code = 0
    try:
        if told["module"]:
            sys.argv.insert(0, told["module"])
            sys.modules.pop(told["module"], None)  # which runpy would warn of
            runpy.run_module(told["module"], run_name="__main__", alter_sys=True)
        else:
            sys.argv.insert(0, "-c")
            exec(compile(told["code"], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else (print(end.code, file=sys.stderr) or 1)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)

poll = select.poll()
poll.register(here, select.POLLIN)
while True:
    for ready, _ in poll.poll():
        if ready != here.fileno():
            status, child = running.pop(ready)
            os.write(status, str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
            poll.unregister(ready)
            os.close(ready)
            os.close(status)
            continue
        told, files, _, _ = socket.recv_fds(here, 1 << 20, 16)
        if not told:
            sys.exit()
        if not (child := os.fork()):
            become(json.loads(told), files)
        for file in files[1:]:
            os.close(file)
        handle = os.pidfd_open(child)
        running[handle] = files[0], child
        poll.register(handle, select.POLLIN)
        here.send(str(child).encode())
"""


@cache
def server() -> socket.socket:
    """The socket of the process whose children they are."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(theirs.fileno())], cwd="/", pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONIOENCODING": "utf-8"}, start_new_session=True,
        )  # fmt: skip
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


class Forked:
    """A process of these words, `python` the first of them, as `subprocess.Popen` has it."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        start_new_session: bool = True,
    ) -> None:
        assert start_new_session and words[0] == sys.executable, words
        kind, said = (options := [word for word in words[1:] if word != "-P"])[:2]
        assert kind in ("-c", "-m"), words
        told = {
            "module": said if kind == "-m" else None, "code": said if kind == "-c" else None, "words": options[2:],
            "folder": str(cwd or Path.cwd()), "variables": dict(os.environ if env is None else env), "kept": list(pass_fds),
        }  # fmt: skip
        nothing = os.open(os.devnull, os.O_RDWR)
        files = [
            nothing if file == subprocess.DEVNULL else number if file is None else file.fileno()
            for number, file in enumerate((stdin, stdout, stderr))
        ]
        self._status, status = os.pipe()
        self.returncode: int | None = None
        socket.send_fds(server(), [json.dumps(told).encode()], [status, *files, *pass_fds])
        self.pid = int(server().recv(16))
        os.close(status)
        os.close(nothing)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, when it has ended."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python", timeout or 0)
            self.returncode = int(os.read(self._status, 16))
            os.close(self._status)
        return self.returncode

    def kill(self) -> None:
        """End it."""
        if self.returncode is None and not select.select([self._status], [], [], 0)[0]:
            os.kill(self.pid, signal.SIGKILL)


def ran(
    *words: str, folder: str | os.PathLike[str] | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `python WORDS` leaves, the first being -c or -m."""
    command = [sys.executable, *words]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = Forked(command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            code = process.wait(300)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), err.read())
