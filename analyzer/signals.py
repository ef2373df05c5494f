"""Signals that ask this process to end while it waits for others: as exceptions, so that those are ended and
files removed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_REQUESTS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ends_on_request() -> Iterator[None]:
    """While open, turn requests to end (SIGTERM, a closed terminal) into exceptions, to clean up."""
    with _signal_handler(_REQUESTS, _end):
        yield


def _end(number: int, _: object = None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


@contextmanager
def interrupted_on_request() -> Iterator[None]:
    """While open, SIGTERM interrupts the program that runs as Ctrl-C does, once: a second one, and one of a
    fork of this process, ends as by default."""
    process = os.getpid()

    def interrupt(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != process:
            signal.raise_signal(number)
        raise KeyboardInterrupt

    with _signal_handler((signal.SIGTERM,), interrupt):
        yield


@contextmanager
def uninterrupted() -> Iterator[Callable[[], None]]:
    """Delay signals while a process starts, so that it is ended; the yielded function raises them."""
    waiting: list[int] = []

    def check() -> None:
        if waiting:
            _end(waiting[0])

    with _signal_handler((signal.SIGINT, *_REQUESTS), lambda number, _: waiting.append(number)):
        yield check


@contextmanager
def _signal_handler(numbers: Sequence[int], how: Callable[[int, object], None]) -> Iterator[None]:
    """Install a handler for these signals while open; only the main thread receives signals."""
    before = {}
    try:
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, how) for number in numbers}
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
