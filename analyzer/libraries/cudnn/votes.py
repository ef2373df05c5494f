"""What the nearest measured convolutions say of one that nobody asked about, at any number of batch sizes at once.

Each votes with its form and a weight that falls with distance: the same convolution at other batch sizes, and others of the same
operation, dtype, layout and class (dimensions, filter, strides, dilated, grouped), near in the logarithms of channels, positions and
batch. Numbers stand in rows (one a voter) and columns (one a batch): a neighbour's form at the batch is linear in it, the weights are
summed in the order of the voters, and the first of equal sums wins.

1. A measured batch of the same convolution that lies on one straight line with two others speaks by that line instead of its form.
2. Of another figure than the first plan's, a neighbour whose answer is that of the default settings votes for the call's own.
3. A trial's workspace that is what the neighbour's Fourier engine takes votes for what the call's own takes (`fourier.py`); one that
   no form explains grows as input and output do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.libraries.cudnn.forms import REST_BYTES, Form, bytes_of, carried_form, form_of, parts_of
from analyzer.libraries.cudnn.fourier import fourier_bytes
from analyzer.libraries.cudnn.table import (
    DETERMINISTIC_TRIAL,
    STRICT_TRIAL,
    TRIAL,
    VOTERS,
    Convolution,
    Integers,
    Measurements,
    convolution_of,
)

_SIBLING = {"bfloat16": "float16", "float16": "bfloat16"}
_TRIALS = (TRIAL, STRICT_TRIAL, DETERMINISTIC_TRIAL)
_BLOCK_BYTES = 512
Distances = npt.NDArray[np.float64]


class Voted(NamedTuple):
    """Bytes at each batch, and between what the voters' answers lie."""

    nbytes: Integers
    low_bytes: Integers
    high_bytes: Integers


def voted(
    like: Convolution, batches: Integers, table: Measurements, figure: str, firsts: Integers | None
) -> Voted | None:
    """What the vote says of the call `like` (its own batch does not matter) at each of `batches`; None where nobody may vote.

    firsts: what its first plan takes with the default settings, at each, where another figure is asked for.
    """
    like = replace(like, x_shape=(1, *like.x_shape[1:]))
    near = neighbours(table, like, False, figure) or neighbours(table, like, True, figure)
    if not near:
        return None
    distances, places = _distances(near, batches)
    farthest = np.sort(distances, axis=0)[min(VOTERS, len(distances)) - 1]
    distances = np.where(distances > farthest, np.inf, distances)
    guesses = _guesses(_Question(like, batches, table, figure, firsts), near, places, np.isfinite(distances))
    # Nearest first, the smaller guess among equals; those beyond the farthest voter come last.
    order = np.lexsort((guesses, distances), axis=0)[:VOTERS]
    distances = np.take_along_axis(distances, order, axis=0)
    guesses = np.take_along_axis(guesses, order, axis=0)
    blocks = -(-guesses // _BLOCK_BYTES)
    weights = 1 / (distances + 0.2)
    sums = np.zeros_like(weights)
    for place in range(len(weights)):
        sums += np.where(blocks == blocks[place], weights[place], 0.0)
    chosen: Integers = guesses[sums.argmax(axis=0), np.arange(len(batches))]
    return Voted(chosen, guesses.min(axis=0), guesses.max(axis=0))


class _Question(NamedTuple):
    """What is asked: of which call (at batch 1), at which batches, which figure."""

    like: Convolution
    batches: Integers
    table: Measurements
    figure: str
    firsts: Integers | None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A measured convolution near a call: distance, row of the family table, and what was measured at which batches.

    as_first: whether that is what the first plan takes with the default settings. lines: of the very same convolution, for
    each batch the straight line it lies on, if it does.
    """

    distance: float
    row: int
    batches: Integers
    sizes: Integers
    as_first: tuple[bool, ...]
    lines: tuple[WorkspaceLine | None, ...]
    as_fourier: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class WorkspaceLine:
    """Three measured batches next to each other whose workspaces lie on one straight line: two of its points."""

    batch: int
    nbytes: int
    other_batch: int
    other_bytes: int

    def at(self, batches: Integers) -> Integers:
        """Bytes at each of these batches."""
        rise, run = self.other_bytes - self.nbytes, self.other_batch - self.batch
        return np.maximum(self.nbytes + rise * (batches - self.batch) // run, 0)


def lines_of(batches: Integers, sizes: Integers) -> tuple[WorkspaceLine | None, ...]:
    """For each of ascending batches the line it lies on with two batches next to it, best with one on either side."""
    steps, rises = np.diff(batches), np.diff(sizes)
    begins = np.flatnonzero(rises[:-1] * steps[1:] == rises[1:] * steps[:-1]).tolist()
    known = {
        at: WorkspaceLine(int(batches[at]), int(sizes[at]), int(batches[at + 2]), int(sizes[at + 2]))
        for at in begins
    }
    return tuple(
        known.get(place - 1) or known.get(place - 2) or known.get(place) for place in range(len(batches))
    )


@lru_cache(maxsize=65536)
def neighbours(table: Measurements, like: Convolution, loosely: bool, figure: str) -> tuple[Neighbour, ...]:
    """Convolutions that may vote on the call `like`, whatever its batch: nearest first, until they have votes enough."""
    found: list[Neighbour] = []
    votes = 0
    for distance, row in table.nearest(like, loosely=loosely):
        for dtype in dtypes_of(like):
            batches, sizes = table.batches(like, row, dtype, figure)
            if batches.size:
                first = dict(zip(*(part.tolist() for part in table.batches(like, row, dtype)), strict=True))
                same = tuple(
                    first.get(batch) == size
                    for batch, size in zip(batches.tolist(), sizes.tolist(), strict=True)
                )
                lines = lines_of(batches, sizes) if distance == 0 else (None,) * len(batches)
                fourier = _as_fourier(table, like, row, batches, sizes) if figure in _TRIALS else same
                found.append(Neighbour(distance, row, batches, sizes, same, lines, fourier))
                votes += min(_votes_of(distance), batches.size)
                break
        if votes >= 2 * VOTERS:
            break
    return tuple(found)


def _as_fourier(
    table: Measurements, like: Convolution, row: int, batches: Integers, sizes: Integers
) -> tuple[bool, ...]:
    """For each measured batch of a family whether what was measured is what its Fourier engine takes."""
    return tuple(
        fourier_bytes(convolution_of(table.families[row], batch, kind_of(like))) == size
        for batch, size in zip(batches.tolist(), sizes.tolist(), strict=True)
    )


def _votes_of(distance: float) -> int:
    """How many batches of a measured convolution vote: of the very same one more."""
    return 3 if distance == 0 else 1


def dtypes_of(call: Convolution) -> tuple[str, ...]:
    """The call's type, and the one whose measurements stand in."""
    sibling = _SIBLING.get(call.dtype)
    return (call.dtype,) if sibling is None else (call.dtype, sibling)


def _distances(near: Sequence[Neighbour], batches: Integers) -> tuple[Distances, Integers]:
    """How far each that may vote is, a row for each and a column a batch, and which of its neighbour's batches votes."""
    distances: list[Distances] = []
    places: list[Integers] = []
    for neighbour in near:
        steps = np.abs(np.log2(neighbour.batches[:, None] / batches[None, :]))
        votes = _votes_of(neighbour.distance)
        nearest = (
            steps.argmin(axis=0)[None, :] if votes == 1 else np.argsort(steps, axis=0, kind="stable")[:votes]
        )
        places.append(nearest)
        distances.append(neighbour.distance + 0.5 * np.take_along_axis(steps, nearest, axis=0))
    return np.concatenate(distances), np.concatenate(places)


def _guesses(
    asked: _Question, near: Sequence[Neighbour], places: Integers, voting: npt.NDArray[np.bool_]
) -> Integers:
    """What each of those `voting` says, in rows and columns as `_distances` has them; 0 for the others."""
    fourier = _own_fourier(asked) if asked.figure in _TRIALS else None
    guesses = np.zeros(places.shape, np.int64)
    end = 0
    for neighbour in near:
        begin, end = end, end + min(_votes_of(neighbour.distance), len(neighbour.batches))
        here, votes = places[begin:end], guesses[begin:end]
        for place in set(here[voting[begin:end]].tolist()):
            said = _said(asked, neighbour, place, fourier)
            np.copyto(votes, said, where=here == place)
    return guesses


def _said(asked: _Question, neighbour: Neighbour, place: int, fourier: Integers | None) -> Integers:
    """What one measured batch of a neighbour says of the call, at each batch that is asked for."""
    if asked.firsts is not None and neighbour.as_first[place]:
        said = asked.firsts
    elif (line := neighbour.lines[place]) is not None:
        said = line.at(asked.batches)
    else:
        said = _by_form(asked, neighbour, place)
    if fourier is not None and neighbour.as_fourier[place]:
        least = 0 if asked.firsts is None else asked.firsts
        said = np.where(fourier >= 0, np.maximum(fourier, least), said)
    return said


def _by_form(asked: _Question, neighbour: Neighbour, place: int) -> Integers:
    """What the form of a measured call gives, which is linear in the batch; of a trial it may explain little."""
    like = asked.like
    other, form = _measured_form(
        asked.table, neighbour.row, int(neighbour.batches[place]), int(neighbour.sizes[place]), kind_of(like)
    )
    if form.rest_bytes >= REST_BYTES and asked.figure in _TRIALS:
        took = bytes_of(other, form)
        grown, measured = (sum(parts_of(call, False)[:2]) for call in (like, other))
        return np.array([took * grown * batch // measured for batch in asked.batches.tolist()], np.int64)
    form = carried_form(form, other, like)
    first = bytes_of(like, form)
    linear = bytes_of(replace(like, x_shape=(2, *like.x_shape[1:])), form) - first
    found: Integers = first + linear * (asked.batches - 1)
    return found


def _own_fourier(asked: _Question) -> Integers:
    """What the call's own Fourier engine takes at each batch, -1 where it has none."""
    calls = (
        replace(asked.like, x_shape=(batch, *asked.like.x_shape[1:])) for batch in asked.batches.tolist()
    )
    found = [fourier_bytes(call) for call in calls]
    return np.array([-1 if nbytes is None else nbytes for nbytes in found], np.int64)


def kind_of(call: Convolution) -> Convolution:
    """Of a call what a row of the family table does not say: operation, dtype and layout."""
    return Convolution(call.operation, call.dtype, call.channels_last, (1, 1), (1, 1), (), (), ())


@lru_cache(maxsize=65536)
def _measured_form(
    table: Measurements, row: int, batch: int, nbytes: int, kind: Convolution
) -> tuple[Convolution, Form]:
    """A measured call and its form."""
    other = convolution_of(table.families[row], batch, kind)
    return other, form_of(other, nbytes)
