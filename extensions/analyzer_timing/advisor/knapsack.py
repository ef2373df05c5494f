"""Which items to choose so that all moments stay within a limit and the choice costs least: a knapsack with a
row a moment, solved to the optimum.

1. An item is chosen or not, and costs something where it is.
2. A **row** is a moment: the bytes that are there without any choice, and by how many each chosen item
   changes them (fewer while its results are not kept, more while it is computed again).
3. Of all choices under which no row exceeds the limit, one of those that cost least is taken; of equal ones
   that with fewer and earlier items.

Source: HiGHS, by `scipy.optimize.milp` (Huangfu, Hall, Parallelizing the dual revised simplex method, 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Costs are solved with the largest as 1,000, since HiGHS stops 1e-6 short of the optimum; and added to an
# item's, with every place, is what decides between equal choices.
_COSTLIEST, _LATER = 1e3, 1e-3
# Rows are solved in units of this share of the limit, in which HiGHS' tolerance of 1e-6 is no byte.
_UNITS = 1e6
_AGAIN = 4
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Row:
    """A moment. live_bytes: without any choice. change: item -> bytes it adds if chosen."""

    live_bytes: int
    change: Mapping[int, int]

    def bytes_of(self, chosen: Sequence[int]) -> int:
        """Return the live bytes of this moment under a choice of items."""
        return self.live_bytes + sum(self.change.get(item, 0) for item in chosen)


def cheapest(costs: Sequence[float], rows: Sequence[Row], limit: int) -> tuple[int, ...] | None:
    """The items to choose, ascending; None where no choice keeps to the limit, or none was found in
    `_SECONDS`. costs: not negative; limit: bytes."""
    if all(row.live_bytes <= limit for row in rows):
        return ()
    within = limit
    for _ in range(_AGAIN):
        chosen = _solve(costs, rows, within)
        if chosen is None:
            return None
        over = max(row.bytes_of(chosen) for row in rows) - limit
        if over <= 0:
            return chosen
        within -= over  # a choice of 0.999999 that was rounded
    return None


def _solve(costs: Sequence[float], rows: Sequence[Row], limit: int) -> tuple[int, ...] | None:
    """Return the items of least cost that keep every row within the limit; None if there is no choice."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    scale = max(abs(limit) / _UNITS, 1.0)
    matrix = np.zeros((len(rows), len(costs)))
    for place, row in enumerate(rows):
        for item, nbytes in row.change.items():
            matrix[place, item] = nbytes / scale
    most = np.array([(limit - row.live_bytes) / scale for row in rows])
    largest = max(costs, default=0.0) or 1.0
    weights = np.array(
        [_COSTLIEST * cost / largest + _LATER * (place + 1) for place, cost in enumerate(costs)]
    )
    solution = milp(
        weights,
        constraints=LinearConstraint(matrix, -np.inf, most),
        integrality=np.ones(len(costs)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0, "time_limit": _SECONDS},
    )
    if solution.x is None:
        return None
    return tuple(int(item) for item in np.flatnonzero(np.round(solution.x)))
