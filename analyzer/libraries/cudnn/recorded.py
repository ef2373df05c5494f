"""Convolutions that cuDNN was asked about once, kept for machines without the library: the networks people
use, at common batches.

A table lies in `recorded/NAME.npz`, for a GPU that was asked by a handle ("h200") or a compute capability
asked by a description ("sm86"). A call of it is a **family** (`Convolution.family`) at a batch. Members:
`about` (JSON: GPU, versions, date, method), `family` (int32 [families, 18]), and for each dtype and layout,
e.g. "float32.nchw": `.family` (row of the family table), `.batch`, and what cuDNN answered, sorted by family,
then batch: `.forward`, `.data`, `.weight` are the first plan's workspaces with the default settings (bytes),
`.trial.forward` and so on the other figures (-1: no plan; `NOT_ASKED`; `AS_FIRST`: as the first plan with the
default settings; `AS_TRIAL`: as the largest trial with them).

`NAME.further.npz` has further families and batches of NAME, first plans alone: the H200's for the held-out
networks (`about` says of which tables).

`python -m benchmarks cudnn record` writes them. Which plan wins a timing only a GPU knows: `winner` was
measured on the H200.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache, cached_property, lru_cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from analyzer.libraries.cudnn.convolution import Convolution
from analyzer.releases import Release

# The first plan's workspace with the default settings, in deterministic mode and without TF32; the largest of
# benchmark mode's trials with each; the largest of those that are timed, and that of the plan that won.
FIRST, DETERMINISTIC, STRICT = "first", "deterministic", "strict"
TRIALS = {FIRST: "trial", DETERMINISTIC: "deterministic_trial", STRICT: "strict_trial"}
TIMED, WINNER = "timed", "winner"
# The requests one after the other where the first finds no room: the workspaces of the plans behind it that
# take less than all before.
AFTER = tuple(f"after{place}" for place in range(1, 12))
# In place of bytes, the latter of these figures. Besides there are ONNX Runtime's searches
# (`convolution.HEURISTICS`), in tables of their own.
NOT_ASKED, AS_FIRST, AS_TRIAL = -2, -3, -4
AS_FIRST_FIGURES = (DETERMINISTIC, STRICT, *TRIALS.values(), TIMED)
_FURTHER = ".further"
# The release all tables are of.
RELEASE: Release = (9, 19)


class Record:
    """One table of recorded answers, whose members are unpacked on first use: most analyses need few."""

    def __init__(self, name: str) -> None:
        path = resources.files(__package__).joinpath("recorded", f"{name}.npz")
        self._file = np.load(io.BytesIO(path.read_bytes()))
        self._array: Callable[[str], npt.NDArray[Any]] = cache(self._file.__getitem__)
        self._read = cache(self._of_family)
        self.name = name
        self.about: dict[str, str] = json.loads(str(self._file["about"]))

    def answers(self, call: Convolution, figure: str = FIRST) -> dict[int, int]:
        """Return the bytes of a figure by batch, of the convolution at whatever batches it was asked; empty
        where there are none."""
        group = f"{call.dtype}.{'nhwc' if call.channels_last else 'nchw'}"
        known = self._read(group, call.family, call.operation, figure)
        return {**self._further.answers(call, figure), **known} if self._further else known

    def _of_family(self, group: str, family: tuple[int, ...], operation: str, figure: str) -> dict[int, int]:
        member = member_of(group, operation, figure)
        row = self._families.get(np.array(family, np.int64).tobytes())
        if row is None or member not in self._file:
            return {}
        sizes, rows = self._array(member), self._array(f"{group}.family")
        # In the array's own type: for numbers of another one it would be converted whole.
        start, stop = np.searchsorted(rows, np.array([row, row + 1], rows.dtype)).tolist()
        kept = sizes[start:stop].astype(np.int64)
        signs = ((AS_TRIAL, TRIALS[FIRST]), (AS_FIRST, FIRST)) if figure in AS_FIRST_FIGURES else ()
        for sign, other in signs:
            if (alike := kept == sign).any():
                kept = np.where(alike, self._array(member_of(group, operation, other))[start:stop], kept)
        batches = self._array(f"{group}.batch")[start:stop].tolist()
        return {batch: nbytes for batch, nbytes in zip(batches, kept.tolist(), strict=True) if nbytes >= 0}

    @cached_property
    def _further(self) -> Record | None:
        """The table of this one's further families and batches."""
        return None if self.name.endswith(_FURTHER) else _opened(self.name + _FURTHER)

    @cached_property
    def _families(self) -> dict[bytes, int]:
        """The row of each family, by its numbers' bytes: made faster than tuples."""
        table = self._array("family").astype(np.int64)
        rows = table.view(f"V{table.itemsize * table.shape[1]}").ravel().tolist()
        return {family: row for row, family in enumerate(rows)}


def member_of(group: str, operation: str, figure: str) -> str:
    """Return the file's name of one figure: "float32.nchw.forward", "float32.nchw.trial.forward"."""
    return f"{group}.{operation}" if figure == FIRST else f"{group}.{figure}.{operation}"


@lru_cache(maxsize=8)
def record(name: str) -> Record | None:
    """The table of that name; None without one."""
    return _opened(name)


def _opened(name: str) -> Record | None:
    try:
        return Record(name)
    except FileNotFoundError:
        return None
