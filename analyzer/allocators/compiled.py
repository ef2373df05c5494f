"""The compiled core of the best-fit allocators, for those who simulate the same requests hundreds of times.

The simulators (`pytorch/caching.py`, `onnxruntime_bfc.py`) are what the allocators do; `_best_fit.c` is their
search, splitting and joining in plain numbers, some hundred times as fast, and property tests hold it to
them. An installation compiles it if it can; without it (`AVAILABLE`) the simulators answer everything
themselves.

Sizes and addresses count units: those of the rounding. Events are rows of an array of int64: (key, number of
a size) for a request, (key, FREE) for what gives it back, (0, OVER) where a stage of an arena is over. A key
is requested once before it is given back. A request of no units takes nothing, and what gives it back does
nothing.

Not modelled there: settings, several streams, a cache emptied by the program, shrinking, requests apart from
an arena's regions.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import numpy.typing as npt

AVAILABLE = importlib.util.find_spec("analyzer.allocators._best_fit") is not None

Integers = npt.NDArray[np.int64]
FREE, OVER = -1, -2
# Sizes and addresses stay below this many bits. No device has as many units as these bits count.
ADDRESS_BITS = 40
