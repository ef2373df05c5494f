"""A table of cuDNN's choices in several files: what a campaign found is a file more, and no file is ever written again.

1. The first file is a table; each further one (`NAME.2.npz`, `NAME.3.npz`, ...) holds the calls it knows more of, all their
   figures, in the same form (`table.Measurements`), with a family table of its own.
2. Read together they are one table: families in the order of their first mention, calls by family and batch. Where two
   files speak of a call, what the later one says counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = np.ndarray[Any, Any]
_NOT_ASKED = -2
_BATCHES = 1 << 32  # more than any batch


def files(folder: Traversable, name: str) -> list[Traversable]:
    """The files of a table: NAME.npz, and NAME.2.npz and so on, as far as they are there."""
    found = [folder.joinpath(f"{name}.npz")]
    while (following := folder.joinpath(f"{name}.{len(found) + 1}.npz")).is_file():
        found.append(following)
    return found


class Joined:
    """The members of several files as those of one table. Members are read when they are first asked for."""

    def __init__(self, paths: Sequence[Traversable]) -> None:
        self._paths = paths
        listed: dict[str, None] = {}
        self._held: list[frozenset[str]] = []
        for path in paths:
            with path.open("rb") as file, np.load(file) as members:
                listed |= dict.fromkeys(members.files)
                self._held.append(frozenset(members.files))
        self.members: tuple[str, ...] = tuple(listed)
        self.rows: dict[tuple[int, ...], int] = {}  # family -> its place
        self._numbers: list[Array] = []
        self._orders: dict[str, tuple[list[Array], Array]] = {}

    def read(self, member: str, number: int = 0) -> Array:
        """A member of one file."""
        with self._paths[number].open("rb") as file, np.load(file) as members:
            found: Array = members[member]
        return found

    def families(self) -> Array:
        """Every family once."""
        first, *others = [self.read("family", number) for number in range(len(self._paths))]
        self.rows = rows = {tuple(family): row for row, family in enumerate(first.tolist())}
        self._numbers, tables = [np.arange(len(first))], [first]
        for table in others:
            before = len(rows)
            numbers = np.array(
                [rows.setdefault(tuple(family), len(rows)) for family in table.tolist()], np.int64
            )
            self._numbers.append(numbers)
            tables.append(table[numbers >= before])
        return np.concatenate(tables)

    def array(self, member: str) -> Array:
        """A member of the joined table: "float32.nchw.family" and its like, by call."""
        if len(self._paths) == 1 or member == "about":
            return self.read(member, len(self._paths) - 1)
        prefix = ".".join(member.split(".")[:2])
        places, calls = self._places(prefix)
        if member.endswith((".family", ".batch")):
            families, batches = np.divmod(calls, _BATCHES)
            return (families if member.endswith(".family") else batches).astype(np.int32)
        result = np.full(len(calls), _NOT_ASKED, np.int64)
        for number, where in enumerate(places):
            if member in self._held[number]:
                part = self.read(member, number)
                asked = part != _NOT_ASKED
                result[where[asked]] = part[asked]
        return result

    def _places(self, prefix: str) -> tuple[list[Array], Array]:
        """Where each file's calls are among all calls, and these: family and batch as one number, ascending."""
        found = self._orders.get(prefix)
        if found is None:
            keys = [self._keys(prefix, number) for number in range(len(self._paths))]
            every = keys[0]
            for key in keys[1:]:
                new = key[~np.isin(key, every, assume_unique=True)]
                every = np.sort(np.concatenate((every, new)), kind="stable")  # two sorted runs
            found = self._orders[prefix] = [np.searchsorted(every, key) for key in keys], every
        return found

    def _keys(self, prefix: str, number: int) -> npt.NDArray[np.int64]:
        if f"{prefix}.batch" not in self._held[number]:
            return np.empty(0, np.int64)
        family = self._numbers[number][self.read(f"{prefix}.family", number).astype(np.int64)]
        return family * _BATCHES + self.read(f"{prefix}.batch", number).astype(np.int64)


def more(arrays: Mapping[str, Array], base: Joined, families: Array) -> dict[str, Array]:
    """The members of a further file: the calls of a whole table that `base` (with these families) says otherwise or not."""
    known = {tuple(family): row for row, family in enumerate(families.tolist())}
    wanted: dict[str, Array] = {}
    used = np.zeros(len(arrays["family"]), bool)
    numbers = np.array([known.get(tuple(family), -1) for family in arrays["family"].tolist()], np.int64)
    for prefix in sorted(member.removesuffix(".batch") for member in arrays if member.endswith(".batch")):
        own, batches = arrays[f"{prefix}.family"].astype(np.int64), arrays[f"{prefix}.batch"].astype(np.int64)
        before = base.array(f"{prefix}.family").astype(np.int64) * _BATCHES + base.array(f"{prefix}.batch")
        keys = np.where(numbers[own] < 0, -1, numbers[own] * _BATCHES + batches)
        places = np.searchsorted(before, keys).clip(max=len(before) - 1)
        fresh = before[places] != keys
        for member, array in arrays.items():
            if member.startswith(f"{prefix}.") and not member.endswith((".family", ".batch")):
                there = (
                    base.array(member)[places]
                    if member in base.members
                    else np.full(len(array), _NOT_ASKED, np.int64)
                )
                fresh |= (there != array) & (array != _NOT_ASKED)
        if fresh.any():
            used[own[fresh]] = True
            wanted |= {
                member: array[fresh] for member, array in arrays.items() if member.startswith(f"{prefix}.")
            }
    rows = np.cumsum(used) - 1
    for member in wanted:
        if member.endswith(".family"):
            wanted[member] = rows[wanted[member].astype(np.int64)].astype(np.int32)
    return {"family": arrays["family"][used], **wanted}
