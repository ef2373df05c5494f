"""What the package torchinfo says of a model, beside the three estimates: input + 2 x outputs of leaf layers that have
parameters + parameters (torchinfo 1.8, `ModelStatistics`; it prints decimal megabytes).
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.liveness.naive import Leaf


def torchinfo_bytes(leaves: Sequence[Leaf], *, input_bytes: int, weight_bytes: int) -> int:
    """torchinfo's "Estimated Total Size" in bytes."""
    return input_bytes + 2 * sum(leaf.nbytes for leaf in leaves if leaf.has_parameters) + weight_bytes
