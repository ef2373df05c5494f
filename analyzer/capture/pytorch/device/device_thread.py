"""The thread on which autograd runs backward passes for a GPU, where it matters that there is one.

1. The engine runs what is ready in the order it was made, last first, by numbers that each thread counts for
   itself. On a GPU it works on a thread of its own; so nodes it makes, in a backward pass that can itself be
   differentiated, are numbered apart from those the program makes. Without a GPU it would work on the
   program's thread, and the order would be another.
2. So such a pass (`create_graph=True`) runs on a thread here too, while the program waits. That thread counts
   from where the program did when it began.
3. Any other backward pass makes no nodes that outlive it: it stays on the program's thread.

Source: `torch/csrc/autograd/engine.cpp` (`CompareNodeTaskTime`, `thread_init`), `function.h`
(`sequence_nr_`), `aten/src/ATen/SequenceNumber.cpp`.

Not modelled: passes under autocast or within `torch.func`'s transforms, whose state belongs to the program's
thread: they stay there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from analyzer.capture.pytorch.device.default_device import default_device
from analyzer.capture.pytorch.patches import replaced

_NODES_AT_ONCE = 1000


class DeviceThread:
    """Runs differentiable backward passes on one thread, which enters `modes` first."""

    def __init__(self, modes: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        self._modes = modes
        self._first_number = torch._C._autograd._get_sequence_nr()
        self._worker = ThreadPoolExecutor(1)
        self._there = False  # what asks runs on that thread already

    def _count(self) -> None:
        """Number this thread's nodes from at least where the program's were when it began."""
        x = torch.zeros(_NODES_AT_ONCE, requires_grad=True)
        while (missing := self._first_number - torch._C._autograd._get_sequence_nr()) > 0:
            for _ in range(min(missing, _NODES_AT_ONCE)):
                x.view(-1)

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """While open, run backward passes that make a graph there; start before the program's threads."""
        self._worker.submit(int).result()
        run = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

        def run_backward(
            outputs: Any, gradients: Any, retain: bool, create: bool, *args: Any, **kwargs: Any
        ) -> Any:
            if (
                not create
                or self._there
                or torch.is_autocast_enabled("cuda")
                or torch.is_autocast_enabled("cpu")
                or torch._C._functorch.peek_interpreter_stack() is not None
            ):
                return run(outputs, gradients, retain, create, *args, **kwargs)
            default = default_device()  # which autograd brings along, as all of the thread's state
            return self._worker.submit(
                lambda: self._run_on_thread(
                    lambda: run(outputs, gradients, retain, create, *args, **kwargs), default
                )
            ).result()

        try:
            with replaced({"torch.autograd._engine_run_backward": run_backward}):
                yield
        finally:
            self._worker.shutdown()

    def _run_on_thread(self, run: Callable[[], Any], default: torch.device | None) -> Any:
        """Run a function on this thread, counted, under the capture's modes and with that default device."""
        self._there = True
        self._count()
        try:
            with self._modes(), default or contextlib.nullcontext():
                return run()
        finally:
            self._there = False
