"""What of an operator's operands still lies in the L2 cache: what was used a while ago has been displaced.

1. Every operator touches its operands and results. A storage is in the cache as long as, since it was
   touched, less has been touched than the cache holds: `_HOLDS` of its size: an H100's two halves may both
   hold a line, and lines are replaced before the oldest one is.
2. A storage larger than that is never there as a whole.

Not modelled: which lines are replaced; persisting accesses.
"""

from __future__ import annotations

from analyzer.graph.model import Operator, Storage

_HOLDS = 0.3


class Residency:
    """The cache while a program's operators run, in order."""

    def __init__(self, storages: tuple[Storage, ...], cache_bytes: int) -> None:
        self._storages, self._room = storages, cache_bytes * _HOLDS
        self._clock = 0
        self._touched: dict[int, int] = {}

    def missing(self, operator: Operator) -> float:
        """The share of the bytes of an operator's operands that are not in the cache; then it has run."""
        read = away = 0
        seen = set()
        for tensor in operator.inputs:
            if tensor.storage in seen:
                continue
            seen.add(tensor.storage)
            nbytes = self._storages[tensor.storage].nbytes
            last = self._touched.get(tensor.storage)
            read += nbytes
            if last is None or self._clock - last + nbytes > self._room:
                away += nbytes
        seen.update(t.storage for t in operator.outputs if t is not None)
        for number in seen:
            self._clock += self._storages[number].nbytes
        for number in seen:
            self._touched[number] = self._clock
        return away / read if read else 0.0
