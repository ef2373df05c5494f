"""How far a plan of several searches is: which of how many, and when the rest will be done if it goes on like
this."""

from __future__ import annotations

import time
from collections.abc import Callable

_MINUTE = 60


class Countdown:
    """Reports progress through `total` parts to `progress`; None: no reports."""

    def __init__(self, total: int, progress: Callable[[str], None] | None) -> None:
        self._total, self._progress = total, progress
        self._number, self._begun, self._head = 0, time.monotonic(), ""

    def begin(self, name: str) -> None:
        """Begin the next part."""
        done, self._number = self._number, self._number + 1
        left = (time.monotonic() - self._begun) / done * (self._total - done) if done else 0.0
        when = f", {_spoken(left)} left" if done else ""
        self._head = f"{name} ({self._number} of {self._total}{when})"
        if self._progress is not None:
            self._progress(self._head)

    def tell(self, stage: str) -> None:
        """Report the stage of the current part."""
        if self._progress is not None:
            self._progress(f"{self._head}: {stage}")


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"
