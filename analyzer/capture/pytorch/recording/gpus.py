"""The GPUs of the process: which there are, which one is current, and where a new tensor lies.

1. The program is told of `count` GPUs; those with memory here are `here` many, from number `first` on: all of
   them, or of a rank of a job its own. Inside the analysis they are numbered from 0.
2. Each thread has a current GPU (`torch.cuda.set_device`), which "cuda" without a number means. It is
   number 0 where a thread begins.
3. A tensor that is made like others lies where they do; one made for a device lies there. While a function
   runs that was given one of either, what it makes lies there, too (`placing`).
4. In a backward pass what no tensor places lies where the operator before it ran: the engine has a thread for
   each GPU (`torch/csrc/autograd/engine.cpp`, `Engine::ready_queue`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from analyzer.errors import CaptureError


class NoSuchGpuError(CaptureError):
    """The program uses a GPU beside those there are. needed: with how many there would be this one."""

    is_own = True

    def __init__(self, message: str, hint: str = "", needed: int = 0) -> None:
        super().__init__(message, hint)
        self.needed = needed


class _OfThread(threading.local):
    """current: the GPU of the thread; last: that of its last operator; placed: where the function that runs
    puts what it makes (None: no matter), and during which node of the backward pass that was said."""

    def __init__(self) -> None:
        self.current = self.last = 0
        self.placed: tuple[int, int] | None = None


class Gpus:
    """The GPUs of one process, by numbers from 0."""

    def __init__(self) -> None:
        self.first, self.count, self.here = 0, 1, 1
        self.several = False
        self.peers = True  # each reads the others' memory
        self._thread = _OfThread()

    def provide(self, count: int, peers: bool) -> None:
        """Let there be so many GPUs, all of them this process's. peers: each reads the others' memory."""
        self.first, self.count, self.here, self.several = 0, count, count, count > 1
        self.peers = peers

    def of_rank(self, number: int, count: int) -> None:
        """Let this process be the rank with one of the machine's GPUs, unless it has several of its own."""
        if not self.several:
            self.first, self.count = number, count

    @property
    def current(self) -> int:
        """The thread's current GPU."""
        return self._thread.current

    @current.setter
    def current(self, gpu: int) -> None:
        self._thread.current = gpu

    def device(self, gpu: int | None = None) -> torch.device:
        """Return a GPU as the program names it; the current one by default."""
        return torch.device("cuda", self.first + (self._thread.current if gpu is None else gpu))

    def index(self, device: Any = None) -> int:
        """Return the number the program knows a GPU by: given as PyTorch takes it, by default the current."""
        gpu = None if device is None else self.named(device)
        return self.first + (self._thread.current if gpu is None else gpu)

    def named(self, device: Any) -> int | None:
        """Return the GPU that a device argument (or a number) names, None where it names none. Raises
        NoSuchGpuError for one that is not here."""
        index: int | None
        if isinstance(device, torch.device):
            is_gpu, index = device.type == "cuda", device.index
        elif isinstance(device, str):
            kind, _, number = device.partition(":")
            is_gpu, index = kind == "cuda", int(number) if number.isdigit() else None
        else:
            is_gpu, index = isinstance(device, int) and not isinstance(device, bool), device
        if not is_gpu:
            return None
        if index is None:
            return self._thread.current
        if not 0 <= index - self.first < self.here:
            raise self.missing(index)
        return int(index - self.first)

    def chosen(self, device: Any) -> int:
        """Return the GPU that a program makes current; a rank's own whatever it says."""
        if self.count > self.here:
            return self._thread.current
        gpu = self.named(device)
        return self._thread.current if gpu is None else gpu

    def missing(self, index: int) -> NoSuchGpuError:
        """Return the error of a GPU that is not here."""
        if self.several:
            there = f"{self.here} GPUs"
        else:
            there = f"one GPU here: {self.device(0)}"
        return NoSuchGpuError(
            f"the program uses cuda:{index}, and there {'are' if self.several else 'is'} {there}",
            "let it use one GPU, as CUDA_VISIBLE_DEVICES=0 would have it"
            if self.count > self.here  # others belong to other ranks
            else f"give it as many with --gpus {index + 1}, or let it use fewer",
            index + 1,
        )

    @contextlib.contextmanager
    def placing(self, gpu: int | None) -> Iterator[None]:
        """While open, what this thread makes lies on this GPU, where nothing else says where (None: as
        before). Code of another node of a backward pass is not meant."""
        thread = self._thread
        before = thread.placed
        if gpu is not None:
            thread.placed = gpu, _node()
        try:
            yield
        finally:
            thread.placed = before

    def making(self) -> int:
        """Return the GPU that this thread makes tensors on now."""
        thread, node = self._thread, _node()
        if thread.placed is not None and thread.placed[1] == node:
            return thread.placed[0]
        return thread.current if node < 0 else thread.last

    def is_placed(self) -> bool:
        """Return whether the function that runs says where what it makes lies."""
        placed = self._thread.placed
        return placed is not None and placed[1] == _node()

    def run_on(self) -> int:
        """Return the GPU that an operator runs on now, which is this thread's last one from then on."""
        self._thread.last = self.making()
        return self._thread.last


def _node() -> int:
    """Return the number of the autograd node at work, -1 without one."""
    node: Any = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())
