"""Which stream is current: what every operator runs on (`streams.py`)."""

from __future__ import annotations

import threading
from typing import Any

import torch


class _Here(threading.local):
    """The current streams of a thread: the program's, and that of the node autograd is at work on."""

    def __init__(self) -> None:
        self.program = self.node_stream = 0
        self.node: int | None = None


class Current:
    """Which stream is current: for the program, and for the node autograd is at work on."""

    def __init__(self) -> None:
        self._thread_state = _Here()
        self._made_on: dict[int, int] = {}
        self.made_any = False  # the program has asked for a stream of its own

    def now(self) -> int:
        """Return the number of the current stream."""
        thread_state = self._thread_state
        node: Any = torch._C._current_autograd_node()
        if node is None:
            thread_state.node = None
            return thread_state.program
        sequence = node._sequence_nr()
        if thread_state.node != sequence:
            thread_state.node, thread_state.node_stream = sequence, self._made_on.get(sequence, 0)
        return thread_state.node_stream

    def set(self, number: int) -> None:
        """Make the stream with this number current."""
        self.now()
        if self._thread_state.node is None:
            self._thread_state.program = number
        else:
            self._thread_state.node_stream = number

    def note_node(self, sequence: int) -> None:
        """Note the stream of a new autograd node; the default stream is not stored."""
        number = self.now()
        if number:
            self._made_on[sequence] = number
