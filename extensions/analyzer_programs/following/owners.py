"""The list that grows: which container of the program gets more of the GPU's tensors with every step.

At a few steps the variables of the program's functions are looked at: lists, tuples, deques and dictionaries,
by their name, also in a dictionary and as attributes of an object. One whose last entry is a tensor of the
GPU (or a tuple, list or dictionary of some) and that became longer at every look, by an entry a step or more,
keeps what the steps make.

Not modelled: containers deeper inside others, and those that no variable of a running function leads to.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import torch

from analyzer.notes import GROWING
from analyzer.values.frames import variables_of

# The first steps, then every power of two.
_FIRST = 4
_KINDS = (list, deque, dict)


class Owners:
    """Growing containers of one program, looked for at the end of its steps."""

    def __init__(self) -> None:
        # By place in the program: number of looks at which it grew, entries and step of the last one.
        self._known: dict[str, tuple[int, int, int]] = {}
        self._with_graph: set[str] = set()

    def look(self, frame: FrameType | None, step: int) -> None:
        """Look at the program's variables, of this frame and its callers, if it is time."""
        if step > _FIRST and step & (step - 1):
            return
        while frame is not None:
            is_module = frame.f_code.co_name == "<module>"
            for name, container in _containers(frame.f_globals) if is_module else _of_function(frame):
                self._see(name, container, step)
            frame = None if is_module else frame.f_back

    def _see(self, name: str, container: Any, step: int) -> None:
        last = _last(container)
        if last is None:
            return
        looks, count, before = self._known.get(name, (0, 0, step - len(container)))
        grew = len(container) - count >= max(step - before, 1)
        self._known[name] = looks + 1 if grew else 0, len(container), step
        if last.requires_grad:
            self._with_graph.add(name)

    def sentence(self) -> str:
        """Return which containers grow with every step; "" for none."""
        parts = []
        for name, (looks, count, step) in self._known.items():
            if looks >= 3:
                behind = ", each with the graph behind it" if name in self._with_graph else ""
                parts.append(f"{name} (at step {step:,}: {count:,} of them{behind})")
        if not parts:
            return ""
        grow = "grows" if len(parts) == 1 else "grow"
        text = f"{', '.join(parts)} {grow} by tensors of the GPU with every step"
        return GROWING.note(text, containers=len(parts))


def _of_function(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the containers of a function's variables; none of one that asks for them by `locals()`: it may
    keep the very dictionary that `variables_of` empties."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED or "locals" in frame.f_code.co_names:
        return []
    return list(_containers(variables_of(frame)))


def _containers(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield containers with the words that name them."""
    for name, value in list(names.items()):
        if isinstance(value, _KINDS):
            yield f"the {_word(value)} {name}", value
        if isinstance(value, dict):
            for key, part in list(value.items()):
                if isinstance(part, _KINDS) and isinstance(key, str):
                    yield f"the {_word(part)} {name}[{key!r}]", part
        elif not isinstance(value, (type, torch.nn.Module, torch.Tensor)):
            for key, part in list(getattr(value, "__dict__", {}).items()):
                if isinstance(part, _KINDS):
                    yield f"the {_word(part)} {name}.{key}", part


def _word(value: Any) -> str:
    return "dictionary" if isinstance(value, dict) else type(value).__name__


def _last(container: Any) -> torch.Tensor | None:
    """Return a tensor of the GPU in the container's last entry, None without."""
    for _ in range(2):
        if not container:
            return None
        last = container[next(reversed(container))] if isinstance(container, dict) else container[-1]
        if isinstance(last, torch.Tensor):
            return last if last.is_cuda else None
        if not isinstance(last, (list, tuple, dict, deque)):
            return None
        container = last
    return None
