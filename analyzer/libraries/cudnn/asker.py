"""cuDNN asked for a GPU that is described to it: one call, or many at once, and the answers kept.

1. The library is loaded by a process of its own (`runs/cudnn_answers.py`), started at the first call that nobody asked before.
2. An answer is kept on disk, in the user's cache folder (`ANALYZER_CACHE`, else where the system keeps caches), by release and
   description: a second analysis starts no process, and a folder of answers serves where there is no library. Without a folder that can
   be written to, answers last as long as this process.
3. A release that knows no such GPU may crash. The call at which it ended has no answer; after `_MOST_ENDS` of these nobody is asked
   any more.

Source: NVIDIA cuDNN backend API reference, `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from analyzer.libraries.cudnn.answers import CudnnPlan
from analyzer.libraries.cudnn.finding import Library
from analyzer.libraries.cudnn.table import Convolution
from analyzer.releases import RECORDED, Release

_ROOT = Path(__file__).resolve().parents[3]
_AT_ONCE = 256
_MOST_ENDS = 3
_SECONDS = 120.0


def _folder() -> Path:
    """Where answers are kept; nowhere for a user without a home."""
    try:
        return Path(os.environ.get("ANALYZER_CACHE") or user_cache_path("gpu-memory-analyzer"))
    except RuntimeError:
        return Path(os.devnull)


_CACHE = _folder()
# Nothing of the program that is followed reaches the process: not its preloaded libraries, not its settings of cuDNN.
_DROPPED = ("LD_PRELOAD", "CUDNN_", "PYTHON", "CUDA_")


class Asker:
    """One cuDNN and one GPU's description. Threads may share it; a forked child starts a process of its own.

    library: whom to ask; None: only what the release of the tables answered before. description: the GPU's, JSON in cuDNN's field names. cache: the folder answers are kept in.
    """

    def __init__(self, library: Library | None, description: str, cache: Path = _CACHE) -> None:
        self._library, self._description = library, description
        digest = hashlib.sha256(f"{self.release}\n{description}".encode()).hexdigest()[:16]
        self._path = cache / "cudnn" / f"{digest}.plans.sqlite"
        self._known: dict[Convolution, tuple[CudnnPlan, ...] | None] = {}
        self._lock = threading.RLock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0
        self._ends = 0
        self._read = False

    @property
    def release(self) -> Release | None:
        """The library's release, as its file says it."""
        return RECORDED["cudnn"] if self._library is None else self._library.release

    def plans(self, call: Convolution) -> tuple[CudnnPlan, ...] | None:
        """The plans of a call, in the order in which they are tried; None: cuDNN gives no answer."""
        return self.ask([call])[0]

    def ask(self, calls: Sequence[Convolution]) -> list[tuple[CudnnPlan, ...] | None]:
        """The plans of each call."""
        with self._lock:
            self._load()
            missing = [call for call in dict.fromkeys(calls) if self._answer(call) is _UNASKED]
            for begin in range(0, len(missing), _AT_ONCE):
                chunk = missing[begin : begin + _AT_ONCE]
                found = self._asked(chunk)
                if found is None and len(chunk) > 1:  # find the one that ends the library
                    found = [(self._asked([call]) or [None])[0] for call in chunk]
                self._keep(dict(zip(chunk, found or [None] * len(chunk), strict=True)))
            answers = (self._answer(call) for call in calls)
            return [None if isinstance(answer, _Unasked) else answer for answer in answers]

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            process.kill()
            process.wait()

    def _answer(self, call: Convolution) -> tuple[CudnnPlan, ...] | _Unasked | None:
        return self._known.get(call, _UNASKED)

    def _asked(self, calls: Sequence[Convolution]) -> list[tuple[CudnnPlan, ...] | None] | None:
        """What the process says; None where it has ended."""
        process = self._running()
        if process is None or process.stdin is None or process.stdout is None:
            return None
        watch = threading.Timer(_SECONDS, process.kill)
        watch.daemon = True
        watch.start()
        try:
            process.stdin.write(json.dumps([astuple(call) for call in calls]) + "\n")
            process.stdin.flush()
            found = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            self.close()
            self._ends += 1
            return None
        finally:
            watch.cancel()
        return [tuple(map(plan_of, plans)) for plans in found]

    def _running(self) -> subprocess.Popen[str] | None:
        """The process, started if need be; None where it does not start, or has ended too often."""
        if self._process is not None and self._owner == os.getpid():
            return self._process
        if self._library is None or self._ends >= _MOST_ENDS:
            return None
        dropped = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        try:
            process = subprocess.Popen(
                command(self._library),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=_ROOT,
                env={**dropped, "PYTHONPATH": str(_ROOT), "LD_LIBRARY_PATH": str(Path(self._library.path).parent)},
            )  # fmt: skip
            self._process, self._owner = process, os.getpid()
            atexit.register(self.close)
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(self._description + "\n")
            process.stdin.flush()
            started = bool(process.stdout.readline())
        except OSError:
            started = False
        if not started:
            self.close()
            self._ends = _MOST_ENDS
            return None
        return self._process

    def _load(self) -> None:
        """Read what was answered before."""
        if self._read:
            return
        self._read = True
        if self._path.is_file():
            with suppress(sqlite3.Error, ValueError, TypeError), sqlite3.connect(self._path) as file:
                for asked, answered in file.execute("select question, answer from answers"):
                    plans = json.loads(answered)
                    self._known[convolution_of(json.loads(asked))] = (
                        None if plans is None else tuple(map(plan_of, plans))
                    )

    def _keep(self, answers: dict[Convolution, tuple[CudnnPlan, ...] | None]) -> None:
        """Remember, and write down what the library itself answered."""
        self._known |= answers
        if self._library is None:
            return
        rows = [
            (json.dumps(astuple(asked)), json.dumps([astuple(plan) for plan in plans]))
            for asked, plans in answers.items()
            if plans is not None
        ]
        with suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with sqlite3.connect(self._path, timeout=10) as file:
                file.execute("create table if not exists answers (question text primary key, answer text)")
                file.executemany("insert or replace into answers values (?, ?)", rows)


def convolution_of(fields: Sequence[Any]) -> Convolution:
    """A convolution from its JSON."""
    return Convolution(*(tuple(field) if isinstance(field, list) else field for field in fields))  # type: ignore[arg-type]


def plan_of(fields: Sequence[Any]) -> CudnnPlan:
    """A plan from its JSON."""
    engine, nbytes, deterministic, tensor_core, knobs = fields
    return CudnnPlan(
        engine, nbytes, deterministic, tensor_core, tuple((kind, value) for kind, value in knobs)
    )


def command(library: Library) -> list[str]:
    """How the process is started."""
    return [sys.executable, "-m", "analyzer.runs.cudnn_answers", library.path, library.cublaslt]


class _Unasked:
    """Nobody asked."""


_UNASKED = _Unasked()
