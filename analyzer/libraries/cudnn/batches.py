"""The workspaces of one convolution at many batch sizes at once: what `convolutions.py` and `ladders.py` say of each.

A test holds it to `convolutions.workspace`, call by call.

Not modelled: benchmark mode, and calls for which nobody votes; `workspaces` says None, and they are asked one by one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analyzer.libraries.cudnn.convolutions import DEFAULT, ConvolutionSettings, answered
from analyzer.libraries.cudnn.ladders import asked_first
from analyzer.libraries.cudnn.table import FIRST, Convolution, Integers, measurements
from analyzer.libraries.cudnn.votes import dtypes_of, voted

# What was said of a call so far, by batch.
_KNOWN: dict[tuple[Convolution, str, ConvolutionSettings], dict[int, int]] = {}


def workspaces(
    like: Convolution, batches: Integers, device: str, settings: ConvolutionSettings
) -> Integers | None:
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
        missing = batches[unasked]
        calls = [replace(like, x_shape=(batch, *like.x_shape[1:])) for batch in missing.tolist()]
        said_itself = answered(calls, device, figure)
        if all(said_itself):
            found[unasked] = [workspace.nbytes for workspace in said_itself if workspace]
            return found
        firsts = None if figure == FIRST else _figures(like, missing, device, FIRST)
        said = None if firsts is None and figure != FIRST else voted(like, missing, table, figure, firsts)
        if said is None:
            return None
        found[unasked] = said.nbytes
    return found
