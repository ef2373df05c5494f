"""Requests that may be made smaller: a library without room for one plan's workspace goes on to its next
plan.

1. A request with a `plan` (`Malloc`) is made as it is; where there is no room, those of `smaller` are made in
   their order, until one is served. A plan that wants as much or more than one refused is not among them: it
   has no more room.
2. The plan that ran is kept: every later request of the same plan begins with it, and goes on from it.
3. When the last is refused too, the program has no memory.

Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`run_single_conv`, `try_configs`), where an allocator's
out-of-memory error is caught for each plan in turn and the plan that ran goes into the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analyzer.allocators import OutOfMemoryError


class Plans:
    """Workspace bytes of the plan that runs, for each request. `refused`: how often a plan had no room."""

    def __init__(self) -> None:
        self.refused = 0
        self._running: dict[str, int] = {}

    def served(
        self, malloc: Callable[[int], int], nbytes: int, plan: str = "", smaller: Sequence[int] = ()
    ) -> tuple[int, int]:
        """Return a handle and its bytes (`nbytes` without a plan). Raises OutOfMemoryError."""
        running = self._running.get(plan, nbytes) if plan else nbytes
        problem: OutOfMemoryError | None = None
        try:
            try:
                return malloc(running), running
            except OutOfMemoryError as error:
                problem = error
            for size in smaller:
                if size >= running:
                    continue
                self.refused += 1
                try:
                    handle = malloc(size)
                except OutOfMemoryError as error:
                    problem = error
                    continue
                self._running[plan] = size
                return handle, size
            raise problem
        finally:
            problem = None  # an error that its own frame holds is a cycle, which keeps the program's tensors
