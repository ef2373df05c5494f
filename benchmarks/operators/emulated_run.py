"""What `compare.py` runs under the emulated runtime: `python emulated_run.py JOB OUT`, a line of JSON a case.

JOB: {"groups": [...], "layouts": [...], "ways": [...], "limit": N, "done": how many cases there are already, "skip": groups left out}. A line says the case, what the
allocator was asked for in each part of it ([name, sizes; freed ones negative]), what the sample was, and the error it ended with, if any.
It is announced by a line with the case alone, so that one that ends the process is known.
"""

from __future__ import annotations

import gc
import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import database  # beside this file
import torch

SECONDS = 30  # a case that takes longer waits for a value that never comes


class TooLong(Exception):
    """The case does not end."""


def counts() -> tuple[int, int]:
    """How many blocks have been allocated and freed so far."""
    found = torch._C._cuda_memoryStats(0)["allocation"]["all"]
    return found["allocated"], found["freed"]


def history() -> Iterator[tuple[int, int]]:
    """The bytes of every request since recording began (freed ones are negative), and their address."""
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        if entry["action"] in ("alloc", "free_completed"):
            yield entry["size"] if entry["action"] == "alloc" else -entry["size"], entry["addr"]


def divided(
    events: list[int], begin: tuple[int, int], marks: list[tuple[str, tuple[int, int]]]
) -> list[tuple[str, list[int]]]:
    """The requests of each part between two marks."""
    ends, allocated, freed = [], begin[0], begin[1]
    marked = [place for _, place in marks]
    for position, size in enumerate([*events, 0]):
        while len(ends) < len(marked) and (allocated, freed) == tuple(marked[len(ends)]):
            ends.append(position)
        allocated, freed = allocated + (size > 0), freed + (size < 0)
    bounds = itertools.pairwise(ends)
    return [(name, events[a:b]) for (name, _), (a, b) in zip(marks, bounds, strict=False)]


class DeviceThread:
    """The thread on which autograd runs a device's backward passes, where one is differentiated itself. It is asked with a tensor of no
    elements, which takes no memory."""

    def __init__(self) -> None:
        self._leaf = torch.zeros(0, device="cuda", requires_grad=True)
        self._out = self._leaf * 1

    def settle(self) -> None:
        """Return when it has let go of what it was given before: it says that it is done earlier."""
        torch.autograd.grad(self._out, self._leaf, self._out.detach(), retain_graph=True)

    def count_alike(self) -> None:
        """Let it and this thread number what autograd makes from the same number on, as in a new process: of nodes that are ready the engine
        runs the last first, and in a process that has run other cases their numbers say nothing about that."""
        number = torch._C._autograd._get_sequence_nr
        node = torch.zeros(1, requires_grad=True)
        found = []

        def reach(wanted: int) -> None:
            with torch.enable_grad():
                while number() < wanted:
                    node.view(-1)

        def there(_: torch.Tensor) -> None:
            reach(here)
            found.append(number())

        here = number()
        handle = self._out.register_hook(there)
        self.settle()
        handle.remove()
        reach(found[0])


def watched(case: database.Case, sample: database.Sample) -> dict[str, Any]:
    """One case, run."""
    marks: list[tuple[str, tuple[int, int]]] = []
    begin = (0, 0)

    thread = DeviceThread() if case.way == "double" else None

    def tell(part: str) -> None:
        if thread is not None:
            thread.settle()
        marks.append((part, counts()))

    if thread is not None:
        thread.count_alike()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.memory._record_memory_history(enabled=None)
    begin = counts()
    torch.cuda.memory._record_memory_history(
        enabled="all", context=None, max_entries=200_000, clear_history=True
    )
    signal.alarm(SECONDS)
    error = None
    call = None
    try:
        if case.group.database == "kernel":
            call = _called(case, sample, tell)
        else:
            database.run(sample, case.layout, case.way, tell)
    except Exception as raised:
        error = f"{type(raised).__name__}: {str(raised)[:300]}"
    finally:
        signal.alarm(0)
    if error:
        tell("end")
    torch.cuda.synchronize()
    events = list(history())
    parts = divided([size for size, _ in events], begin, marks)
    if call is not None:
        before = sum(marks[0][1]) - sum(begin)
        taken: dict[int, int] = {}
        call["freed"] = []
        for at, (size, address) in enumerate(events[before : before + len(parts[0][1])]):
            call["freed"].append(-1 if size > 0 else taken.get(address, -1))
            if size > 0:
                taken[address] = at
        call["made"] = [[*one, taken.get(address, -1)] for *one, address in call["made"]]
    return {"parts": parts, "error": error, "call": call}


def _called(case: database.Case, sample: database.Sample, tell: Callable[[str], None]) -> dict[str, Any]:
    """A kernel, called by itself: what was given and made, and which of its requests each return is of."""
    number = itertools.count()

    def placed(value: Any) -> Any:
        if not (case.layout.startswith("every") and isinstance(value, torch.Tensor)):
            return database.placed(value, case.layout)
        turn = next(number) % len(database.EVERY) == database.EVERY.index(case.layout)
        return database.placed(value, "spread" if turn else "contiguous")

    call = sample.make(placed)
    tell("forward")
    out = call()
    tell("gone")
    described = database.described_call(call, out)
    del out
    tell("end")
    return described


def write(out: TextIO, row: dict[str, Any]) -> None:
    """A line, at once."""
    print(json.dumps(row), file=out, flush=True)


def main() -> None:
    """Run the job's cases."""
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))

    def late(*_: Any) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, late)
    torch.zeros(1, device="cuda")
    gc.disable()  # garbage of one case would be freed in another
    number = 0
    with Path(sys.argv[2]).open("a", encoding="utf-8") as out:
        for group in (database.Group(*one) for one in job["groups"]):
            for case, sample in database.cases(group, job["layouts"], job["ways"], job["limit"]):
                number += 1
                if number <= job["done"]:
                    continue
                write(out, {"case": case, "limit": job["limit"]})
                if list(group) in job["skip"]:
                    write(
                        out,
                        {
                            "case": case,
                            "limit": job["limit"],
                            "parts": [],
                            "error": "ended the process: left out",
                        },
                    )
                elif isinstance(sample, str):
                    write(out, {"case": case, "limit": job["limit"], "parts": [], "error": sample})
                else:
                    write(
                        out,
                        {
                            "case": case,
                            "limit": job["limit"],
                            "torch": torch.__version__,
                            "sample": sample.words,
                            **watched(case, sample),
                        },
                    )
            gc.collect()
    torch.cuda.memory._record_memory_history(enabled=None)


if __name__ == "__main__":
    main()
