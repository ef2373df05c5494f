"""Trees of decisions grown from what cuDNN answered on a GPU: in what share of convolutions like this one.

A table lies in `recorded/NAME.npz`. Members: `about` (JSON), and for each group of convolutions `.roots` (a
tree's first node), `.feature` (a node's, by number; -1: a leaf), `.value` (the limit up to which the next
node follows; a leaf's addend to the logarithm of the odds), `.right` (the node that follows above the limit).

`python -m benchmarks cudnn grow` and `besides` write them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

# How near to 0 or 1 a share decides.
SURE = 0.01


class Forest:
    """A table of trees by group. name: the table's, such as "sm90.first"; without a file it has no groups."""

    def __init__(self, name: str) -> None:
        path = resources.files(__package__).joinpath("recorded", f"{name}.npz")
        self._file = np.load(io.BytesIO(path.read_bytes())) if path.is_file() else None
        members = () if self._file is None else self._file.files
        self.groups = {member.removesuffix(".roots") for member in members if member.endswith(".roots")}
        self._trees: dict[str, _Trees] = {}

    def share(self, group: str, values: Sequence[float]) -> float:
        """Return the share of a group's convolutions that say yes, by these features; 1 without a table."""
        if self._file is None:
            return 1.0
        if group not in self._trees:
            members = ("roots", "feature", "value", "right")
            self._trees[group] = _Trees(*(self._file[f"{group}.{each}"].tolist() for each in members))
        return self._trees[group].share(values)


class _Trees(NamedTuple):
    roots: list[int]
    feature: list[int]
    value: list[float]
    right: list[int]

    def share(self, values: Sequence[float]) -> float:
        """Return the sum of the leaves these values lead to, as a share."""
        odds = 0.0
        for root in self.roots:
            node = root
            while (feature := self.feature[node]) >= 0:
                node = node + 1 if values[feature] <= self.value[node] else self.right[node]
            odds += self.value[node]
        return 1 / (1 + math.exp(-odds))


forest = cache(Forest)  # read once
