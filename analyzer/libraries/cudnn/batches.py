"""The workspaces of one convolution at many batch sizes at once: what `convolutions.py` and `ladders.py` say of each.

The vote is the same one, batch by batch, with numbers in rows (one a voter) and columns (one a batch): a neighbour's form at
the batch is linear in it, the weights are summed in the order of the voters, and the first of equal sums wins. A test holds
it to `convolutions.workspace`, call by call.

Not modelled: benchmark mode, and calls for which nobody votes; `workspaces` says None, and they are asked one by one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from analyzer.libraries.cudnn.convolutions import (
    DEFAULT,
    Line,
    Neighbour,
    Settings,
    bytes_of,
    carried_form,
    dtypes_of,
    kind_of,
    measured_form,
    neighbours,
    votes_of,
)
from analyzer.libraries.cudnn.ladders import asked_first
from analyzer.libraries.cudnn.table import FIRST, VOTERS, Convolution, Integers, Measurements, measurements

_BLOCK_BYTES = 512
Distances = npt.NDArray[np.float64]
# What was said of a call so far, by batch.
_KNOWN: dict[tuple[Convolution, str, Settings], dict[int, int]] = {}


def workspaces(like: Convolution, batches: Integers, device: str, settings: Settings) -> Integers | None:
    """What the plan that runs takes at each of `batches`, in bytes; `like`: the call at whatever batch. None: ask one by one."""
    if settings.benchmark:
        return None
    like = replace(like, x_shape=(1, *like.x_shape[1:]))
    known = _KNOWN.setdefault((like, device, settings), {})
    missing = [batch for batch in batches.tolist() if batch not in known]
    if missing:
        found = _figures(like, np.array(missing, np.int64), device, settings.figure(like.dtype))
        if found is None:
            return None
        first = asked_first(like, device) if settings == DEFAULT else {}
        known |= {
            batch: first.get(batch, nbytes) for batch, nbytes in zip(missing, found.tolist(), strict=True)
        }
    return np.array([known[batch] for batch in batches.tolist()], np.int64)


def _figures(like: Convolution, batches: Integers, device: str, figure: str) -> Integers | None:
    """What was asked, and where it was not, what the vote says."""
    table = measurements(device)
    family = table.family_row(like)
    asked: dict[int, int] = {}
    if family is not None:
        for dtype in reversed(dtypes_of(like)):
            known, sizes = table.batches(like, family, dtype, figure)
            asked |= dict(zip(known.tolist(), sizes.tolist(), strict=True))
    found = np.array([asked.get(batch, -1) for batch in batches.tolist()], np.int64)
    unasked = np.flatnonzero(found < 0)
    if unasked.size:
        voted = _voted(like, batches[unasked], device, figure)
        if voted is None:
            return None
        found[unasked] = voted
    return found


def _voted(like: Convolution, batches: Integers, device: str, figure: str) -> Integers | None:
    table = measurements(device)
    near = neighbours(table, like, dtypes_of(like), False, figure) or neighbours(
        table, like, dtypes_of(like), True, figure
    )
    own = None if figure == FIRST else _figures(like, batches, device, FIRST)
    if not near or (figure != FIRST and own is None):
        return None
    distances, places = _distances(near, batches)
    farthest = np.sort(distances, axis=0)[min(VOTERS, len(distances)) - 1]
    distances = np.where(distances > farthest, np.inf, distances)
    guesses = _guesses(like, batches, near, places, np.isfinite(distances), own, table)
    # Nearest first, the smaller guess among equals; those beyond the farthest voter come last.
    order = np.lexsort((guesses, distances), axis=0)[:VOTERS]
    distances = np.take_along_axis(distances, order, axis=0)
    guesses = np.take_along_axis(guesses, order, axis=0)
    blocks = -(-guesses // _BLOCK_BYTES)
    weights = 1 / (distances + 0.2)
    sums = np.zeros_like(weights)
    for place in range(len(weights)):
        sums += np.where(blocks == blocks[place], weights[place], 0.0)
    winner = sums.argmax(axis=0)
    voted: Integers = guesses[winner, np.arange(len(batches))]
    return voted


def _distances(near: tuple[Neighbour, ...], batches: Integers) -> tuple[Distances, Integers]:
    """How far each that may vote is, a row for each and a column a batch, and which of its neighbour's batches votes."""
    distances: list[Distances] = []
    places: list[Integers] = []
    for neighbour in near:
        steps = np.abs(np.log2(neighbour.batches[:, None] / batches[None, :]))
        votes = votes_of(neighbour.distance)
        nearest = (
            steps.argmin(axis=0)[None, :] if votes == 1 else np.argsort(steps, axis=0, kind="stable")[:votes]
        )
        places.append(nearest)
        distances.append(neighbour.distance + 0.5 * np.take_along_axis(steps, nearest, axis=0))
    return np.concatenate(distances), np.concatenate(places)


def _guesses(
    like: Convolution,
    batches: Integers,
    near: tuple[Neighbour, ...],
    places: Integers,
    voting: npt.NDArray[np.bool_],
    own: Integers | None,
    table: Measurements,
) -> Integers:
    """What each of those `voting` says, in rows and columns as `_distances` has them; 0 for the others."""
    two, kind = replace(like, x_shape=(2, *like.x_shape[1:])), kind_of(like)
    guesses = np.zeros(places.shape, np.int64)
    row = 0
    for neighbour in near:
        constant, linear = np.zeros((2, len(neighbour.batches)), np.int64)
        rows = slice(row, row + min(votes_of(neighbour.distance), len(neighbour.batches)))
        row = rows.stop
        lines: list[tuple[int, Line]] = []
        for place in np.unique(places[rows][voting[rows]]).tolist():
            line = neighbour.lines[place]
            if line is not None:
                lines.append((place, line))
                continue
            batch, nbytes = int(neighbour.batches[place]), int(neighbour.sizes[place])
            other, form = measured_form(table, neighbour.row, batch, nbytes, kind)
            form = carried_form(form, other, like)
            first = bytes_of(like, form)
            linear[place] = bytes_of(two, form) - first
            constant[place] = first - linear[place]
        found = constant[places[rows]] + linear[places[rows]] * batches
        for place, line in lines:
            found = np.where(places[rows] == place, line.at(batches), found)
        if own is not None:
            found = np.where(np.array(neighbour.as_first, np.bool_)[places[rows]], own, found)
        guesses[rows] = found
    return guesses
