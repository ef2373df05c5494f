"""A device's allocator history in columns, and the stacks behind its entries, each kept once.

An entry of a snapshot's history is some 70 bytes of pickle; as Python objects it would be a thousand. Here it
is seven numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# An allocator's actions (`TraceEntry`, torch/cuda/memory.py); an entry of another name is kept as the last.
_BLOCKS = ("alloc", "free_requested", "free_completed")
_SEGMENTS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")
ACTIONS = (*_BLOCKS, *_SEGMENTS, "oom", "other")
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, MAP, UNMAP, OOM, OTHER = range(9)
_CODES = {name: code for code, name in enumerate(ACTIONS)}
_FRAMES_KEPT = 128


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a stack: function, file and line as they were recorded."""

    name: str
    filename: str
    line: int


class StackRef:
    """Number of a stack, where a list of frames was."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Stacks:
    """Every stack once, by number; 0 is the empty one. Frames innermost first."""

    def __init__(self) -> None:
        self._frames: dict[tuple[str, str, int], Frame] = {}
        self._refs: dict[tuple[int, ...], StackRef] = {}  # by the identity of frames, which are kept
        self.stacks: list[tuple[Frame, ...]] = [()]
        self._empty = StackRef(0)

    def ref(self, frames: Any) -> StackRef:
        """Return the stack of a list of frames as it was read, or of one that was found before."""
        if isinstance(frames, StackRef):
            return frames
        if not isinstance(frames, list) or not frames:
            return self._empty
        known = [frame if type(frame) is Frame else self.frame(frame) for frame in frames[:_FRAMES_KEPT]]
        key = tuple(map(id, known))
        ref = self._refs.get(key)
        if ref is None:
            ref = self._refs[key] = StackRef(len(self.stacks))
            self.stacks.append(tuple(known))
        return ref

    def frame(self, values: Any) -> Frame:
        """Return a frame of these values; equal ones are one."""
        if not isinstance(values, dict):
            values = {}
        line = values.get("line")
        key = (_text(values.get("name")), _text(values.get("filename")), line if type(line) is int else 0)
        return self._frames.setdefault(key, Frame(*key))


def code_of(action: Any) -> int:
    """Return the number of an action's name."""
    return _CODES.get(action, OTHER) if isinstance(action, str) else OTHER


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class Trace:
    """A history in columns, one entry each: action, address, bytes, stream, microseconds, stack, category.

    address: for "oom" the bytes the device had free. category: a place in `categories`, 0 for none.
    """

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self.action, self.category = array("b"), array("b")
        self.address, self.size, self.stream, self.time = array("q"), array("q"), array("q"), array("q")
        self.stack = array("l")
        self.categories: list[str] = [""]

    def __len__(self) -> int:
        return len(self.action)

    def add(self, entry: Mapping[Any, Any]) -> None:
        """Append an entry. Raises ValueError for one that is none."""
        code = code_of(entry["action"])
        get = entry.get
        address = get("device_free", 0) if code == OOM else get("addr", 0)
        size, stream, time = get("size", 0), get("stream", 0), get("time_us", 0)
        if not type(address) is type(size) is type(stream) is type(time) is int or size < 0:
            raise ValueError("an entry of the history has no plain numbers")
        if max(address, size, stream, time) >= 2**63 or min(address, stream, time) < -(2**63):
            raise ValueError("an entry of the history has no plain numbers")
        stack, category = (
            self._stacks.ref(entry.get("frames")).number,
            self.category_of(entry.get("category")),
        )
        self.add_row(code, address, size, stream, time, stack, category)

    def add_row(
        self, action: int, address: int, size: int, stream: int, time: int, stack: int, category: int
    ) -> None:
        """Append an entry's numbers, which fit 64 bits."""
        self.action.append(action)
        self.address.append(address)
        self.size.append(size)
        self.stream.append(stream)
        self.time.append(time)
        self.stack.append(stack)
        self.category.append(category)

    def category_of(self, name: Any) -> int:
        """Return the number of a category, 0 for what is none."""
        if not isinstance(name, str) or not name:
            return 0
        if name not in self.categories:
            if len(self.categories) > 100:
                return 0
            self.categories.append(name)
        return self.categories.index(name)

    def frames(self, at: int) -> tuple[Frame, ...]:
        """Return the stack of an entry, innermost first."""
        return self._stacks.stacks[self.stack[at]]
