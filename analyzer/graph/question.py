"""A question a program asked about sizes while it was captured: which way it takes at other sizes depends on the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# A size as a tensor told it, a number of the program's, or an operation of two of these by its name in `operator`.
Tree: TypeAlias = "int | tuple[str, Tree, Tree]"


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison (its name in `operator`), what was compared, the answer, and "file.py:12" where it was asked."""

    comparison: str
    left: Tree
    right: Tree
    answer: bool
    where: str
