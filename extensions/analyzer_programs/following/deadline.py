"""A program's time, over wherever it is: in a loop of its own, in data it makes, between two operators.

A program is ended at a model's call or a step, where what was recorded is whole (`Phases`). One that comes to
neither is ended by a signal, `_GRACE_SECONDS` later and then every second, as Ctrl-C would.

Not modelled: a call of C that does not return; a program that has a handler of its own for this signal.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

_GRACE_SECONDS = 5.0


@contextlib.contextmanager
def ended_after(seconds: float | None, end: Callable[[], None]) -> Iterator[None]:
    """While open, call `end`, which raises, when the time is over; None: there is no end."""
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGALRM, lambda *_: end())
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_SECONDS, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
