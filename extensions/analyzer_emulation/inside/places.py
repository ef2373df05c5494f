"""Where in the user's program an operator runs: its line, its module, and for one of the backward pass those
of its forward operator.

1. The line is the innermost one outside PyTorch's own files and this package's, which builds a target's step.
2. The module is the innermost one whose `forward` runs, by its path in the outermost.
3. An operator of the backward pass belongs where the autograd node was made that runs it, known by its
   sequence number.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from values.frames import variables_of
from values.own import RESOLVED

_FOLDERS = (f"{Path(torch.__file__).parent.resolve()}/", *RESOLVED)
_OWN = (*_FOLDERS, "<frozen ", "<string>")
_PHASES = {"zero_grad": "zero_grad", "step": "optimizer", "clip_grad_norm_": "optimizer"}


class SourcePlaces:
    """Finds the running line and module, without keeping modules (and their memory) alive."""

    def __init__(self, on_module: Callable[[torch.nn.Module], None] = lambda root: None) -> None:
        """on_module: called with each outermost module when first seen."""
        self._on_module = on_module
        self._files: dict[str, bool] = {}
        self._names = weakref.WeakKeyDictionary[torch.nn.Module, str]()
        self._made: dict[int, tuple[str, str]] = {}
        self._roots = weakref.WeakSet[torch.nn.Module]()

    def roots(self) -> list[torch.nn.Module]:
        """Return the outermost modules seen that are still alive."""
        return list(self._roots)

    def current_place(self) -> tuple[str, str, str]:
        """(line "file.py:12", module's path, phase) of the operator under way."""
        node: Any = torch._C._current_autograd_node()
        if node is not None:
            recorded = self._made.get(node._sequence_nr())
            return (*recorded, "backward") if recorded else (*self._walk()[:2], "backward")
        line, module, phase = self._walk()
        if torch.is_grad_enabled():  # a node of this operator's has been made just before
            self._made.setdefault(torch._C._autograd._get_sequence_nr() - 1, (line, module))
        return line, module, phase

    def line(self) -> str:
        """Return the user's running line, "file.py:123"."""
        return self._walk()[0]

    def _is_library(self, filename: str) -> bool:
        """Return whether a file is a library's, Python's or this package's: not the user's code."""
        is_library = self._files.get(filename)
        if is_library is None:
            is_library = self._files[filename] = filename.startswith(_OWN) or os.path.realpath(
                filename
            ).startswith(_FOLDERS)
        return is_library

    def _walk(self) -> tuple[str, str, str]:
        """Return (line, module, phase) from the frames of the running thread."""
        frame: FrameType | None = sys._getframe(2)
        line = phase = ""
        inner: Any = None
        outer: Any = None
        while frame is not None:
            code = frame.f_code
            if not line and not self._is_library(code.co_filename):
                line = f"{code.co_filename}:{frame.f_lineno}"
            if code.co_name == "forward" and code.co_varnames[:1] == ("self",):
                module = variables_of(frame).get("self")
                if isinstance(module, torch.nn.Module):
                    inner = module if inner is None else inner
                    outer = module
            elif not phase and code.co_name in _PHASES and self._is_library(code.co_filename):
                phase = _PHASES[code.co_name]
            frame = frame.f_back
        if inner is None:
            return line, "", phase
        return line, self._name(inner, outer), phase or "forward"

    def _name(self, inner: torch.nn.Module, outer: torch.nn.Module) -> str:
        """Return a module's path within the outermost running module."""
        place_name = self._names.get(inner)
        if place_name is None:
            if outer not in self._roots:
                self._roots.add(outer)
                self._on_module(outer)
                for name, module in outer.named_modules():
                    self._names.setdefault(module, name)
            place_name = self._names.setdefault(inner, type(inner).__name__)
        return place_name
