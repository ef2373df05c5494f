"""The operands of an operator that are still in the L2 cache: those used longer ago have been displaced.

1. Every operator touches its operands and results. A storage is in the cache until more bytes than the cache
   holds have been touched since: `_HOLDS` of its size, because an H100's two halves may both hold a line,
   and lines are replaced before the oldest one is.
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
        """Return the share of an operator's operand bytes that are not in the cache, and count it as run."""
        read = away = 0
        touched = set()
        for tensor in operator.inputs:
            if tensor.storage in touched:
                continue
            touched.add(tensor.storage)
            nbytes = self._storages[tensor.storage].nbytes
            last = self._touched.get(tensor.storage)
            read += nbytes
            if last is None or self._clock - last + nbytes > self._room:
                away += nbytes
        touched.update(t.storage for t in operator.outputs if t is not None)
        for number in touched:
            self._clock += self._storages[number].nbytes
        for number in touched:
            self._touched[number] = self._clock
        return away / read if read else 0.0
