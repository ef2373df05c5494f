"""A running function's variables, without keeping them alive."""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Any


def variables_of(frame: FrameType) -> dict[str, Any]:
    """Return a frame's variables. Before Python 3.13 (PEP 667) a function's frame keeps the copy it is asked
    for, and with it every tensor among them, past its time: that one is emptied at once."""
    names = frame.f_locals
    variables = dict(names)
    if type(names) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        names.clear()
    return variables
