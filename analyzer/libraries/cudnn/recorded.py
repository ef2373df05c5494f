"""Convolutions that cuDNN was asked about once, kept for machines without the library: the networks people
use, at common batches.

A table lies in `recorded/NAME.npz`, for a GPU that was asked by a handle ("h200") or a compute capability
asked by a description ("sm86"). A call of it is a **family** (`Convolution.family`) at a batch. Members:
`about` (JSON: GPU, versions, date, method), `family` (int32 [families, 18]), and for each dtype and layout,
e.g. "float32.nchw": `.family` (row of the family table), `.batch`, and what cuDNN answered, sorted by family,
then batch: `.forward`, `.data`, `.weight` are the first plan's workspaces with the default settings (bytes),
`.trial.forward` and so on the other `FIGURES` (`NO_PLAN`, `NOT_ASKED`, `AS_FIRST`: as with the default
settings).

`python -m benchmarks cudnn record` writes them. Which plan wins a timing only a GPU knows: `winner` was
measured on the H200.
"""

from __future__ import annotations

import io
import json
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.releases import Release

# The first plan's workspace with the default settings, in deterministic mode and without TF32; the largest of
# benchmark mode's trials with each; the largest of those that are timed, and that of the plan that won.
FIRST, DETERMINISTIC, STRICT = "first", "deterministic", "strict"
TRIAL, DETERMINISTIC_TRIAL, STRICT_TRIAL = "trial", "deterministic_trial", "strict_trial"
TIMED, WINNER = "timed", "winner"
FIGURES = (FIRST, DETERMINISTIC, STRICT, TRIAL, DETERMINISTIC_TRIAL, STRICT_TRIAL, TIMED, WINNER)
# What is asked for one after the other where the first finds no room: the workspaces of the plans behind it
# that take less than all before.
AFTER = tuple(f"after{place}" for place in range(1, 12))
NO_PLAN, NOT_ASKED, AS_FIRST = -1, -2, -3
# What may be as with the default settings. Besides there are ONNX Runtime's searches
# (`convolution.HEURISTICS`), in tables of their own.
AS_FIRST_FIGURES = (DETERMINISTIC, STRICT, TRIAL, DETERMINISTIC_TRIAL, STRICT_TRIAL, TIMED)
# The release all tables are of.
RELEASE: Release = (9, 19)
_MULTIPLIER = np.int64(0x5851F42D4C957F2D)  # odd, so that no power of it is zero
Integers = npt.NDArray[np.int64]


class Record:
    """One table of recorded answers, whose members are unpacked on first use: most analyses need few."""

    def __init__(self, name: str) -> None:
        path = resources.files(__package__).joinpath("recorded", f"{name}.npz")
        self._file = np.load(io.BytesIO(path.read_bytes()))
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._answers: dict[tuple[str, str, tuple[int, ...]], dict[int, int]] = {}
        self.name = name
        self.about: dict[str, str] = json.loads(str(self._file["about"]))

    def answers(self, call: Convolution, figure: str = FIRST) -> dict[int, int]:
        """Return the bytes of a figure by batch, of the convolution at whatever batches it was asked."""
        group = f"{call.dtype}.{'nhwc' if call.channels_last else 'nchw'}"
        member, family = member_of(group, call.operation, figure), call.family
        asked = group, member, family
        if asked not in self._answers:
            self._answers[asked] = self._read(group, member, family, call.operation, figure)
        return self._answers[asked]

    def _read(
        self, group: str, member: str, family: tuple[int, ...], operation: str, figure: str
    ) -> dict[int, int]:
        """Return the recorded bytes by batch for a family of convolutions; empty where there are none."""
        row = self._row(family) if member in self._file else None
        if row is None:
            return {}
        sizes, rows = self._array(member), self._array(f"{group}.family")
        # In the array's own type: for numbers of another one it would be converted whole.
        start, stop = np.searchsorted(rows, np.array([row, row + 1], rows.dtype)).tolist()
        found = sizes[start:stop].astype(np.int64)
        if figure in AS_FIRST_FIGURES:
            found = np.where(found == AS_FIRST, self._array(f"{group}.{operation}")[start:stop], found)
        batches = self._array(f"{group}.batch")[start:stop].tolist()
        return {batch: nbytes for batch, nbytes in zip(batches, found.tolist(), strict=True) if nbytes >= 0}

    def _row(self, family: tuple[int, ...]) -> int | None:
        """Return the row of a family, None if there is none."""
        families, hashes = self._array("family"), self._hashes
        for row in np.flatnonzero(hashes == _hashed(np.array([family], np.int64))).tolist():
            if tuple(families[row].tolist()) == family:
                return int(row)
        return None

    @cached_property
    def _hashes(self) -> Integers:
        """A number for each family: made faster than tuples, and found faster than these."""
        return _hashed(self._array("family").astype(np.int64))

    def _array(self, member: str) -> npt.NDArray[Any]:
        if member not in self._arrays:
            self._arrays[member] = self._file[member]
        return self._arrays[member]


def _hashed(families: Integers) -> Integers:
    """Return one number for each row, modulo 2**64."""
    with np.errstate(over="ignore"):
        return families @ np.power(_MULTIPLIER, np.arange(1, families.shape[1] + 1), dtype=np.int64)


def member_of(group: str, operation: str, figure: str) -> str:
    """Return the file's name of one figure: "float32.nchw.forward", "float32.nchw.trial.forward"."""
    return f"{group}.{operation}" if figure == FIRST else f"{group}.{figure}.{operation}"


@lru_cache(maxsize=8)
def record(name: str) -> Record | None:
    """The table of that name; None without one."""
    try:
        return Record(name)
    except FileNotFoundError:
        return None
