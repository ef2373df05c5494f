"""A CUDA build of PyTorch, as it reports itself: its flags, the libraries it was built with, its version's
local part.

Programs ask before they choose a path (`if torch.backends.cudnn.is_available():
torch.backends.cudnn.benchmark = True`), and a build without CUDA says no. The answers are those of a real
build, torch 2.11.0+cu130, asked where there is no GPU (`python -m benchmarks cuda_functions measure`); for
what a GPU decides `functions.py` speaks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

TABLE = Path(__file__).with_name("build.json")
_CALL = "()"


@cache
def table() -> Mapping[str, Any]:
    """Return what the build reports by name below torch, with () for functions."""
    return dict(json.loads(TABLE.read_text(encoding="utf-8")))


def names() -> tuple[str, ...]:
    """Return the replaced names, relative to `torch`."""
    return tuple(name.removesuffix(_CALL) for name in table())


def answers() -> dict[str, Any]:
    """Return name -> constant or function that returns it; versions get the build's local part."""
    return {name.removesuffix(_CALL): _replacement(name, value) for name, value in table().items()}


def _replacement(name: str, value: Any) -> Any:
    """Return what replaces a name: its recorded value, a function that returns it, or a version."""
    answer = tuple(value) if isinstance(value, list) else value
    if name.endswith("__version__"):
        release = str(torch.__version__).partition("+")[0]
        return type(torch.__version__)(f"{release}+{value.partition('+')[2]}")
    if not name.endswith(_CALL):
        return answer
    says: Callable[..., Any] = lambda *_, **__: answer  # noqa: E731
    return says
