"""A call's time on another measured GPU, from its time on the H100: `h200.npz`.

1. The same calls were measured on both. Of each category of the table (`table.py`) the logarithm of the ratio
   is a plane over two things: how far the H100's time is from the formula's, and the formula's seconds. A
   call that the memory holds up gains by more bandwidth, one of few bytes or much arithmetic does not, and
   these two tell them apart.
2. A plane says nothing beyond the ratios it was fitted to: it ends at the least and the most of them.

Source: `python -m benchmarks timing measure` of commit cf817472 on an H200 (torch 2.11.0, CUDA 13.0, cuDNN
9.19, 28 November 2026), made into the file by `python -m benchmarks timing beside`, which prints how far a
call is off that is left out of the fit.
"""

from __future__ import annotations

from functools import cache
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Steps of the file's numbers, the middle of the formula's seconds, and the size of a number.
SCALE, MIDDLE, MOST = 50.0, log(2e-5), 127


class Plane(NamedTuple):
    """Logarithm of the ratio: level + by_factor * factor + by_seconds * (log(seconds) - MIDDLE), least to
    most; spread: mean absolute error of a call left out."""

    level: float
    by_factor: float
    by_seconds: float
    least: float
    most: float
    spread: float

    def at(self, factor: float, seconds: float) -> float:
        """Return the logarithm of the ratio. factor: logarithm of how many times as long as `seconds`, the
        formula's, the call takes on the H100."""
        height = self.level + self.by_factor * factor + self.by_seconds * (log(seconds) - MIDDLE)
        return min(max(height, self.least), self.most)


@cache
def planes(gpu: str) -> dict[str, Plane]:
    """Return the plane of each category that was measured on both GPUs. gpu: a profile's name."""
    with np.load(Path(__file__).parent / f"{gpu}.npz") as file:
        names = bytes(file["names"]).decode().split("\n")
        rows = (file["planes"] / SCALE).tolist()
    return {name: Plane(*row) for name, row in zip(names, rows, strict=True)}
