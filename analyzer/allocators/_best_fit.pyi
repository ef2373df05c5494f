from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

def peaks(
    events: Integers,
    units: Integers,
    setup_count: int,
    large_segment: int,
    limit: int,
    take: Callable[[int, int], int],
    give: Callable[[int, int], object],
    refused: Callable[[int, int], int | None] | None = None,
    held: Integers | None = None,
    /,
) -> tuple[int, int, bool, int]: ...

class Blocks:
    def __init__(self, rows: Integers, keys: int, large_segment: int, /) -> None: ...
    def simulate(self, events: Integers, units: Integers, take: Callable[[int, int], int], /) -> None: ...
    def rows(self) -> bytes: ...
    @property
    def peak(self) -> int: ...

class Chunks:
    def __init__(self, most_dead: int, /) -> None: ...
    def simulate(
        self, events: Integers, units: Integers, extend: Callable[[int], tuple[int, int] | None], /
    ) -> bool: ...
    def copy(self) -> Chunks: ...
    @property
    def peak(self) -> int: ...
