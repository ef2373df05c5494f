"""A guard: a comparison of sizes the program made while it was captured. Which way it goes at other sizes
depends on it (as in torch.compile)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# A size as a tensor said it, a number of the program's, or an operation of two of these by its name in
# `operator`.
Tree: TypeAlias = "int | tuple[str, Tree, Tree]"


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """A comparison (name in `operator`), its operands, the answer, and "file.py:12"."""

    comparison: str
    left: Tree
    right: Tree
    answer: bool
    where: str
