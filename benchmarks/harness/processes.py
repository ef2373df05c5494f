"""Functions in processes of their own: one that changes its process for good, takes all its memory or ends it.

    answer("benchmarks.programs.score:one", "mnist")                  # what one call gives
    stream("benchmarks.onnx.backend:work", names, 2)                  # a row for every item, as they come

Arguments and answers go as JSON; whatever else the function prints, nobody reads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import repeat
from multiprocessing import get_context
from queue import Empty, SimpleQueue
from typing import Any

from analyzer import child
from benchmarks import ROOT

_MARK = "@@"
_SAID = 400  # characters kept of what a process said at its end


class ProcessError(RuntimeError):
    """The process gave no answer: it took too long, or ended with what the message says."""


def _command(function: str) -> list[str]:
    return child.command(__spec__.name, function, folders=[path for path in sys.path if path])


def ended(
    function: str, *arguments: Any, seconds: float | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The process in which "module:function" was called, when it has ended. Raises ProcessError."""
    try:
        return subprocess.run(
            _command(function), input=json.dumps(arguments), capture_output=True, text=True, timeout=seconds, check=False, cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ProcessError(f"took more than {seconds:.0f} s") from None


def answer(
    function: str, *arguments: Any, seconds: float | None = None, environment: Mapping[str, str] | None = None
) -> Any:
    """What "module:function" returns. Raises ProcessError."""
    done = ended(function, *arguments, seconds=seconds, environment=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if not lines:
        raise ProcessError(f"exit code {done.returncode}: {done.stderr.strip()[-_SAID:]}")
    return json.loads(lines[-1].removeprefix(_MARK))


def stream(
    function: str, items: Sequence[Any], processes: int, *more: Any, seconds: float = float("inf")
) -> Iterator[tuple[Any, Any]]:
    """(item, row) as "module:function" yields rows for a list of items, (item, None) where it ended its process: the next of its
    share goes on in another. more: its further arguments. What is not through after `seconds` is left out."""
    found: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    running: dict[int, subprocess.Popen[str]] = {}
    end = time.monotonic() + seconds
    over = threading.Event()

    def share(place: int) -> None:
        left = list(items[place::processes])
        while left and not over.is_set():
            child = running[place] = subprocess.Popen(
                _command(function), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
            )  # fmt: skip
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write(json.dumps([left, *more]))
            child.stdin.close()
            for line in child.stdout:
                if line.startswith(_MARK):
                    found.put((left.pop(0), json.loads(line.removeprefix(_MARK))))
            child.wait()
            if left and not over.is_set():
                found.put((left.pop(0), None))

    threads = [threading.Thread(target=share, args=(place,), daemon=True) for place in range(processes)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        alive = any(thread.is_alive() for thread in threads)
        try:
            yield found.get(timeout=0.2)
        except Empty:
            if not alive:
                break
    over.set()
    for process in running.values():
        process.kill()


def in_parts(task: Any, processes: int, *more: Any) -> list[Any]:
    """`task(part, processes, *more)` of every part, each in a process of its own that inherits no CUDA context."""
    with get_context("spawn").Pool(processes) as pool:
        parts = zip(range(processes), repeat(processes), *(repeat(one) for one in more), strict=False)
        return pool.starmap(task, parts)


def main() -> None:
    """Run the function that is named, with the arguments on standard input."""
    module, name = sys.argv[1].split(":")
    function = getattr(import_module(module), name)
    result = function(*json.load(sys.stdin))
    for row in result if isinstance(result, Iterator) else [result]:
        print("\n" + _MARK + json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
