"""Python's own garbage: what lies in reference cycles, and is freed when Python's collector runs.

1. A storage that dies while the collector runs was in a cycle that nothing else referred to: **garbage**.
2. When it runs follows from how many containers were made (`gc.get_threshold()`, CPython's
   `Modules/gcmodule.c`). The recorder makes many more of them than the program, so it runs earlier here: what
   it freed may be held longer (`sentence`).
3. Where a program ran out of memory, what is garbage at that moment is found by collecting then; what only
   the frames of an **exception** other than the one that ended it keep (it is being handled, or a variable
   holds it) by clearing these, as `traceback.clear_frames` does.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from traceback import walk_tb
from typing import Any

_WORTH_BYTES = 64 << 20


class Garbage:
    """collected: storages that died in cycles; excepted: those that only frames of an exception kept."""

    def __init__(self) -> None:
        self.collected: set[int] = set()
        self.excepted: set[int] = set()
        self._into: set[int] | None = None
        self._collected_bytes = 0

    @contextlib.contextmanager
    def watched(self, collects: bool) -> Iterator[None]:
        """While open, Python collects cycles by itself, as it does for any program, or only where the program
        asks: the command line goes without."""
        enabled = gc.isenabled()
        gc.callbacks.append(self._collects)
        if collects:
            gc.enable()
        else:
            gc.collect()
            gc.disable()
        try:
            yield
        finally:
            gc.callbacks.remove(self._collects)
            if enabled:
                gc.enable()
            else:
                gc.disable()

    def _collects(self, phase: str, _: Any) -> None:
        if self._into is not self.excepted:
            self._into = self.collected if phase == "start" else None

    def died(self, index: int, storage: Any) -> None:
        """Note that a storage died."""
        if self._into is not None:
            self._into.add(index)
            self._collected_bytes += storage.nbytes if storage.on_device else 0

    def cut(self, count: int) -> None:
        """Forget all but the first so many storages; their bytes are remembered."""
        self.collected = {index for index in self.collected if index < count}

    def sentence(self) -> str:
        """Return a sentence on what the collector freed until now; "" if little."""
        nbytes = self._collected_bytes
        if nbytes < _WORTH_BYTES:
            return ""
        return (
            f"{nbytes / 2**20:,.0f} MiB lay in reference cycles until Python's garbage collector ran; it runs"
            " earlier here than without the recorder, so up to as much more may be held"
        )

    def search(self, error: BaseException | None) -> None:
        """Free what is garbage, and what exceptions other than this one, which ended the program, keep."""
        gc.collect()
        if error is None:
            return
        ended = {id(frame) for frame, _ in walk_tb(error.__traceback__)}
        others = [
            one for one in gc.get_objects() if issubclass(type(one), BaseException) and one is not error
        ]
        self._into = self.excepted
        try:
            for other in others:
                for frame, _ in walk_tb(other.__traceback__):
                    if id(frame) not in ended:
                        with contextlib.suppress(RuntimeError):  # it still runs
                            frame.clear()
            gc.collect()
        finally:
            self._into = None
