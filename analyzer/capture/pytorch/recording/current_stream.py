"""Which stream is current: what every operator runs on (`streams.py`).

Streams are numbered from 0 on each GPU, and the GPU's number times `STREAMS` is added, so that a number is of
one GPU. Each thread has a current stream of each.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from analyzer.capture.pytorch.recording.gpus import Gpus
from analyzer.graph import STREAMS


class _Here(threading.local):
    """The current streams of a thread: the program's by GPU, and that of the node autograd is at work on."""

    def __init__(self) -> None:
        self.program: dict[int, int] = {}
        self.node_stream = 0
        self.node: int | None = None


class Current:
    """Which stream is current: for the program, and for the node autograd is at work on."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus
        self._thread_state = _Here()
        self._made_on: dict[int, int] = {}
        self.made_any = False  # the program has asked for a stream of its own

    def now(self, gpu: int | None = None) -> int:
        """Return the number of the current stream; gpu: of another GPU than the one tensors are made on."""
        node: Any = torch._C._current_autograd_node()
        if gpu is None:
            gpu = self._gpus.making() if self._gpus.several else 0
        thread_state = self._thread_state
        if node is None:
            thread_state.node = None
            return thread_state.program.get(gpu, gpu * STREAMS)
        number = self._of_node(node)
        return number if number // STREAMS == gpu else gpu * STREAMS

    def _of_node(self, node: Any) -> int:
        thread_state, sequence = self._thread_state, node._sequence_nr()
        if thread_state.node != sequence:
            thread_state.node, thread_state.node_stream = sequence, self._made_on.get(sequence, 0)
        return thread_state.node_stream

    def set(self, number: int) -> None:
        """Make the stream with this number current."""
        node: Any = torch._C._current_autograd_node()
        if node is None:
            self._thread_state.node = None
            self._thread_state.program[number // STREAMS] = number
        else:
            self._of_node(node)
            self._thread_state.node_stream = number

    def note_node(self, sequence: int) -> None:
        """Note the stream of a new autograd node; the default stream of the first GPU is not stored."""
        number = self.now()
        if number:
            self._made_on[sequence] = number
