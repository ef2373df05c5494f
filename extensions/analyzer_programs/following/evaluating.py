"""Forward passes that keep what a backward pass would need, and are followed by none: evaluation that forgot
`torch.no_grad()`.

A model that was switched to evaluation (`module.eval()`) is called with gradients on. If its result is gone
before any backward pass, and the next call of the model, or the program's end, comes before one too, the pass
was no part of training: the line is noted. A frozen model inside a loss is not, since its result lives until
the loss's backward pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_iter

from analyzer.capture.pytorch.recording.places import Places


class Evaluations:
    """Forward passes of one program that hold saved tensors without need. note: adds a note."""

    def __init__(self, places: Places, note: Callable[[str], None]) -> None:
        self._places, self._note = places, note
        # By the model's identity: the line that called it, and the result.
        self._open: dict[int, tuple[str, weakref.ref[torch.Tensor]]] = {}

    def calls(self, model: torch.nn.Module) -> None:
        """Judge the model's last output, since it is about to be called again."""
        self._judge(id(model))

    def returned(self, model: torch.nn.Module, out: Any) -> None:
        """Remember an output that requires gradients, of a model in evaluation mode."""
        if model.training or not torch.is_grad_enabled():
            return
        kept = next((t for t in tree_iter(out) if isinstance(t, torch.Tensor) and t.requires_grad), None)
        frame = self._places.user_frame()
        if kept is not None and kept.is_cuda and frame is not None:
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            self._open[id(model)] = line, weakref.ref(kept)

    def backward(self) -> None:
        """Forget remembered outputs: a backward pass has used them."""
        self._open.clear()

    def finish(self) -> None:
        """Judge the remaining outputs at the end of the program."""
        for model in list(self._open):
            self._judge(model)

    def _judge(self, model: int) -> None:
        """Add a note if a model's output still holds what a backward pass would need."""
        line, result = self._open.pop(model, ("", None))
        if result is not None and result() is None:
            self._note(
                f"{line} calls a model in evaluation mode with gradients on, and no backward pass follows:"
                " what that would need is kept, and counted; under torch.no_grad() it is not"
            )
