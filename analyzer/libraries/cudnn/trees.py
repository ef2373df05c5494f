"""Trees of decisions grown from what cuDNN answered on a GPU: in what share of convolutions like this one.

A table lies in `recorded/NAME.npz`. Members: `about` (JSON), and for each group of convolutions `.roots` (a
tree's first node), `.feature` (a node's, by number; -1: a leaf), `.value` (the limit up to which the next
node follows; a leaf's addend to the logarithm of the odds), `.right` (the node that follows above the limit).

`python -m benchmarks cudnn grow` and `besides` write them.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

# How near to 0 or 1 a share decides.
SURE = 0.01


class Forest:
    """A table of trees by group. name: the table's, such as "sm90.first"; without a file it has no groups."""

    def __init__(self, name: str) -> None:
        path = resources.files(__package__).joinpath("recorded", f"{name}.npz")
        file: Any = np.load(io.BytesIO(path.read_bytes())) if path.is_file() else {}
        self.groups = {member.removesuffix(".roots") for member in file if member.endswith(".roots")}
        self._member: Callable[[str], list[Any]] = cache(lambda member: file[member].tolist())

    def share(self, group: str, values: Sequence[float]) -> float:
        """Return the share of a group's convolutions that say yes, by these features: the sum of the leaves
        they lead to; 1 without a table."""
        if not self.groups:
            return 1.0
        members = ("roots", "feature", "value", "right")
        roots, features, limits, right = (self._member(f"{group}.{each}") for each in members)
        odds = 0.0
        for root in roots:
            node = root
            while (feature := features[node]) >= 0:
                node = node + 1 if values[feature] <= limits[node] else right[node]
            odds += limits[node]
        return 1 / (1 + math.exp(-odds))


forest = cache(Forest)  # read once
