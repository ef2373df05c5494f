"""A piece of work of the device: the kernel's category in the table, its place there, and its least time."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2


@dataclass(frozen=True, slots=True)
class Work:
    """category: the kernels that are compared with one another ("mm:bfloat16:nt", "vec:add:4").

    place: where it lies among them: logarithms to base two of its sizes, equally many for a category. base:
    seconds by formula, of which the table says by what factor the measured ones differ. moved: bytes read,
    which may lie in the cache. repeats: how often a recurrent layer's kernels run, 0 for others. kind: the
    kind it counts as, where not as its category; spread: how far it may be off at least, as a logarithm.
    staged: seconds the host takes before the device can begin.
    """

    category: str
    place: tuple[float, ...]
    base: float
    moved: float = 0.0
    repeats: float = 0.0
    kind: str = ""
    spread: float = 0.0
    staged: float = 0.0


def log(value: float) -> float:
    """Logarithm to base two, 0 below one."""
    return log2(value) if value > 1 else 0.0


def wide(itemsize: int) -> int:
    """The size of an element, as the table has it: 2 or 4 bytes."""
    return 2 if itemsize <= 2 else 4
