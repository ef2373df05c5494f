"""Which pages the driver of an H200 had left after the steps of small programs (`benchmarks/driver_holes.py` of commit cf817472)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from analyzer.allocators.driver import MIB, ORIGIN, AddressSpace
from tests.paths import DATA

# The addresses the rules speak of, around the context's first hole. What lies below are new chunks, and between these the
# stacks and heaps of the machine's threads.
WINDOW = range(-414, 98)


@cache
def recorded() -> dict[tuple[str, int], dict[str, Any]]:
    rows = json.loads(gzip.decompress((DATA / "h200" / "driver_holes.json.gz").read_bytes()))
    return {(row["program"], row["count"]): row for row in rows}


def holes_of(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Where a small tensor's segment lies in the first hole: the pages free around it, in MiB from there."""
    first = max(address for address, size in row["segments"] if size == 2 * MIB)
    return [
        ((address - first + at) // MIB, 2)
        for address, size in row["holes"]
        for at in range(0, size, 2 * MIB)
        if (address - first + at) // MIB in WINDOW
    ]


def holes_in(space: AddressSpace) -> list[tuple[int, int]]:
    return [
        ((address - ORIGIN + at) // MIB, 2)
        for address, size in space._holes
        for at in range(0, size, 2 * MIB)
        if (address - ORIGIN + at) // MIB in WINDOW
    ]
