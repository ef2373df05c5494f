"""cuDNN asked for a GPU that is described to it: one question, or many at once, and the answers kept.

1. The library is loaded by a process of its own (`answering.py`), started at the first question that nobody
   asked before.
2. An answer is kept on disk, in the user's cache folder (`ANALYZER_CACHE`, else where the system keeps
   caches), by release and description: a second analysis starts no process, and a folder of answers serves
   where there is no library. Without a folder that can be written to, answers last as long as this process.
3. cuDNN lists the engines it compiles at run time only where it finds a driver and a compiler: the process
   finds `stand_in.c` under their names, also where there are real ones, whose GPU would decide for which
   description it lists them. Where that was not compiled (`lists_compiled`) they are missing.
4. A release that knows no such GPU may crash. The question at which it ended has no answer; after
   `_MOST_ENDS` of these nobody is asked any more.

Source: NVIDIA cuDNN backend API reference, `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR`. Listed that way, the first
two plans of all 4,698 depthwise convolutions of `tests/data/h100/depthwise_first.jsonl.gz` are those of an
H100's handle.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from analyzer import child
from analyzer.cache import folder
from analyzer.libraries.cudnn.convolution import Plan, Question
from analyzer.libraries.cudnn.finding import Library
from analyzer.libraries.cudnn.recorded import RELEASE
from analyzer.releases import Release

_AT_ONCE = 256
_MOST_ENDS = 3
_SECONDS = 120.0
# Changed whenever this package makes other lists of what the library says.
_LISTS = "ranked, groups, strides, knobs of compiled engines"
_RANKED = 1  # version of a cache file whose lists include the engines that need a GPU


def _folder() -> Path:
    """Return the folder of cached answers; os.devnull without a home or in an emulated program."""
    try:
        return folder()
    except (ImportError, RuntimeError):
        return Path(os.devnull)


_CACHE = _folder()
# The stand-in for the driver and the compiler, and the names cuDNN opens these by.
_STAND_IN = next(iter(Path(__file__).parent.glob("_stand_in*.so")), None)
_OPENED_AS = ("libcuda.so.1", "libcuda.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
# Nothing of the program that is followed reaches the process: not its preloaded libraries, not its settings
# of cuDNN.
_DROPPED = ("LD_PRELOAD", "CUDNN_", "PYTHON", "CUDA_")


class Asker:
    """Asks one cuDNN about one described GPU. Threads may share it; a forked child starts a process of its
    own.

    library: whom to ask; None: only what release `RELEASE` answered before. description: the GPU's, JSON in
    cuDNN's field names. cache: the folder answers are kept in.
    """

    def __init__(self, library: Library | None, description: str, cache: Path = _CACHE) -> None:
        self._library, self._description = library, description
        self.lists_compiled = _STAND_IN is not None
        self.ranks_unusable = False
        key = f"{self.release}\n{description}\n{self.lists_compiled}\n{_LISTS}"
        digest = hashlib.sha256(key.encode()).hexdigest()[:16]
        self._path = cache / "cudnn" / f"{digest}.sqlite"
        self._known: dict[Question, tuple[Plan, ...] | None] = {}
        # Earlier answers, as JSON texts: a folder holds far more than one program asks.
        self._kept: dict[str, str] = {}
        self._lock = threading.RLock()
        self._process: subprocess.Popen[str] | None = None
        self._beside = ""
        self._owner = 0
        self._ends = 0
        self._read = False

    @property
    def has_library(self) -> bool:
        """Return whether new questions can be answered."""
        return self._library is not None

    @property
    def release(self) -> Release | None:
        """The library's release, as its file says it."""
        return RELEASE if self._library is None else self._library.release

    def ask(self, questions: Sequence[Question]) -> list[tuple[Plan, ...] | None]:
        """Return the plans of each question, in the order they are tried, None where cuDNN gives no answer; a
        longer list answers a question for fewer plans as well."""
        with self._lock:
            self._load()
            missing = [each for each in dict.fromkeys(questions) if self._answered(each) not in self._known]
            for begin in range(0, len(missing), _AT_ONCE):
                chunk = missing[begin : begin + _AT_ONCE]
                answers = self._answers_of(chunk)
                if answers is None and len(chunk) > 1:  # find the one that ends the library
                    answers = [(self._answers_of([question]) or [None])[0] for question in chunk]
                self._keep(dict(zip(chunk, answers or [None] * len(chunk), strict=True)))
            return [self._known[self._answered(question)] for question in questions]

    def close(self) -> None:
        """End the answering process."""
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()
            shutil.rmtree(self._beside, ignore_errors=True)

    def _answered(self, question: Question) -> Question:
        """Return the question whose known answer is this one's, too; itself if there is none."""
        tried = question._replace(first=False)
        for each in (question, tried, tried._replace(whole=True)):
            if each not in self._known and (text := self._kept.pop(json.dumps(each.fields), "")):
                with suppress(ValueError, TypeError):  # a damaged text is asked again
                    self._known[each] = tuple(map(Plan.read, json.loads(text)))
            if each in self._known:
                return each
        return question

    def _answers_of(self, questions: Sequence[Question]) -> list[tuple[Plan, ...] | None] | None:
        """Send the questions to the process and return its answers; None if it has ended."""
        process = self._running()
        if process is None:
            return None
        watch = threading.Timer(_SECONDS, process.kill)
        watch.daemon = True
        watch.start()
        try:
            answers = _answer(process, json.dumps([question.fields for question in questions]))
        except (OSError, ValueError):
            self.close()
            self._ends += 1
            return None
        finally:
            watch.cancel()
        return [tuple(map(Plan.read, plans)) for plans in answers]

    def _running(self) -> subprocess.Popen[str] | None:
        """Return the process, started if need be; None where it does not start, or has ended too often."""
        if self._process is not None and self._owner == os.getpid():
            return self._process
        if self._library is None or self._ends >= _MOST_ENDS:
            return None
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
        kept["LD_LIBRARY_PATH"] = self._search_path(self._library)
        try:
            self._process = subprocess.Popen(
                command(self._library),
                cwd="/",
                env=kept,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._owner = os.getpid()
            atexit.register(self.close)
            self.ranks_unusable = _answer(self._process, self._description)["ranks_unusable"]
        except (OSError, ValueError):
            self.close()
            self._ends = _MOST_ENDS
        return self._process

    def _search_path(self, library: Library) -> str:
        """Return the process's library search path, with the stand-in libraries first."""
        folders = [str(Path(library.path).parent)]
        if _STAND_IN is not None:
            self._beside = tempfile.mkdtemp(prefix="analyze-cudnn-")
            for name in _OPENED_AS:
                Path(self._beside, name).symlink_to(_STAND_IN)
            folders.insert(0, self._beside)
        return os.pathsep.join(folders)

    def _load(self) -> None:
        """Read earlier answers."""
        if self._read:
            return
        self._read = True
        if self._path.is_file():
            with suppress(sqlite3.Error), sqlite3.connect(self._path) as file:
                self.ranks_unusable = file.execute("pragma user_version").fetchone() == (_RANKED,)
                self._kept = dict(file.execute("select question, answer from answers"))

    def _keep(self, answers: dict[Question, tuple[Plan, ...] | None]) -> None:
        """Store answers, and write the library's own to the cache."""
        self._known |= answers
        if self._library is None:
            return
        rows = [
            (json.dumps(question.fields), json.dumps(plans))
            for question, plans in answers.items()
            if plans is not None
        ]
        with suppress(sqlite3.Error, OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with sqlite3.connect(self._path, timeout=10) as file:
                file.execute("pragma synchronous = off")  # what a power failure takes is asked again
                file.execute("create table if not exists answers (question text primary key, answer text)")
                if self.ranks_unusable:
                    file.execute(f"pragma user_version = {_RANKED}")
                file.executemany("insert or replace into answers values (?, ?)", rows)


def _answer(process: subprocess.Popen[str], line: str) -> Any:
    """Send the process a line; return what its answer says."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def command(library: Library) -> list[str]:
    """Return the command that starts the answering process."""
    return child.command("analyzer.libraries.cudnn.answering", library.path, library.cublaslt)
