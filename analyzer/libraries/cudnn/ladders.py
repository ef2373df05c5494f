"""What PyTorch asks for where a convolution's workspace finds no room: the workspaces of cuDNN's next plans, in order.

PyTorch goes through cuDNN's plans, the heuristics' list and then the fallback list, catches the allocator's out-of-memory
error for each, and keeps the first that ran (`aten/src/ATen/native/cudnn/Conv_v8.cpp`: `run_single_conv`, `try_configs`). A
plan that takes as much as one refused, or more, finds no room either: what counts is the descending **ladder** of workspaces.
Rules:

0. A call the tables do not have is asked of cuDNN itself where a library is within reach (`asked.py`): the rest is for where none is.
1. A call that was asked has the ladder that was found. All 19,169 that were asked end in a plan that takes nothing.
2. A call the table of first plans was asked with all its plans for (`table.AFTER`) has what that kept: the first three steps
   and the last. Of 4,839 calls that both were asked, 4,412 have the same ladder and the others that much of it.
3. A call asked at other batch sizes has the ladder of the nearest of them (in the logarithm of the batch), each step
   carried over by its form (`convolutions.py`). Left out and inferred so: the steps after the first are right to the
   byte for 81 % of the calls that have any.
4. A call whose family nobody asked is taken to go on with half of what was refused, and again half, down to nothing: it
   holds on to memory wherever it finds some, which is what a largest batch must reckon with.

Source: asked of cuDNN 9.19 on an H200, 22 November 2026, torch 2.11.0+cu130 (`benchmarks/cudnn/ladders.py`, which asks
as `runs/cudnn.py` does): 1,156 calls asked twice gave the same answer. Largest batches found by trial rest on them (ResNet-18
and VGG-16 in `tests/data/h200/fit.json`): with the ladders every trial's peak there is right to the byte.

5. Another GPU has the ladders of its own table (rules 2 and 3); a call whose family that was not asked goes on as on the H200,
   with what is less than its first.

Not modelled: plans that build and then fail when they run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np

from analyzer.libraries.cudnn.asked import library
from analyzer.libraries.cudnn.convolutions import ConvolutionSettings, Workspace, workspace
from analyzer.libraries.cudnn.forms import bytes_of, form_of
from analyzer.libraries.cudnn.table import (
    AFTER,
    FIRST,
    MODELLED_ON,
    NOT_ASKED,
    OPERATIONS,
    Convolution,
    Measurements,
    measurements,
)

DTYPES = ("float32", "bfloat16", "float16")
_LEAST_BYTES = 512
# Everything about a call but its batch.
Kind = tuple[int, int, bool, tuple[int, ...]]
Ladders = dict[Kind, dict[int, tuple[int, ...]]]


@lru_cache(maxsize=65536)
def ladder(call: Convolution, first_bytes: int, device: str = MODELLED_ON) -> tuple[int, ...]:
    """Workspaces in bytes that are asked for one after the other until one finds room.

    first_bytes: what the first plan takes, for a call that was not asked here. device: as `table.measurements` takes it.

    >>> call = Convolution("forward", "float32", False, (64, 999, 5, 5), (7, 999, 2, 2), (0, 0), (1, 1), (1, 1))
    >>> ladder(call, 3000)
    (3000, 1500, 750, 0)
    """
    like, table = replace(call, x_shape=(1, *call.x_shape[1:])), measurements(device)
    own = _asked(like, table)
    if (
        call.x_shape[0] not in own
        and (asking := library(device)) is not None
        and (steps := asking.ladder(call))
    ):
        return steps
    known = own or _asked(like, measurements(MODELLED_ON))
    batch = call.x_shape[0]
    if not known:
        return (first_bytes, *_halves(first_bytes))
    nearest = min(known, key=lambda other: (abs(math.log2(other / batch)), other))
    if own and nearest == batch:
        return known[batch]
    other = replace(call, x_shape=(nearest, *call.x_shape[1:]))
    carried = [bytes_of(call, form_of(other, nbytes)) if nbytes else 0 for nbytes in known[nearest]]
    return _descending((first_bytes, *carried))


def steps(call: Convolution, device: str, settings: ConvolutionSettings) -> tuple[Workspace, tuple[int, ...]]:
    """What the plan that runs takes, and the workspaces in bytes that are asked for one after the other until one finds
    room. Far from all measured calls the first is a bound."""
    found = workspace(call, device, settings)
    nbytes = found.high_bytes if found.source.startswith("unknown") else found.nbytes
    first, *following = ladder(call, nbytes, device)
    if settings == ConvolutionSettings():
        nbytes = first  # of a call that was asked with all its plans, what the first really takes
    return found, (nbytes, *[size for size in following if size < nbytes])


def was_asked(call: Convolution, device: str = MODELLED_ON) -> bool:
    """Whether every step of the call's ladder is what cuDNN answered to that very call."""
    return call.x_shape[0] in _every_step(call, measurements(device))


def asked_first(call: Convolution, device: str = MODELLED_ON) -> dict[int, int]:
    """What the first plan of a call takes in bytes, by the batches at which it was asked with all its plans."""
    return {batch: steps[0] for batch, steps in _every_step(call, measurements(device)).items()}


@lru_cache(maxsize=65536)
def _asked(like: Convolution, table: Measurements) -> dict[int, tuple[int, ...]]:
    """The ladders of a call, whatever its batch, at the batches at which it was asked with all its plans."""
    family = table.family_row(like)
    found: dict[int, tuple[int, ...]] = {}
    if family is not None:
        kept = [
            table.batches(like, family, like.dtype, figure, known_only=False) for figure in (FIRST, *AFTER)
        ]
        for batch, *steps in zip(kept[0][0].tolist(), *(sizes.tolist() for _, sizes in kept), strict=False):
            if steps[0] >= 0 and steps[1] != NOT_ASKED:
                found[batch] = tuple(size for size in steps if size >= 0)
    return found | _every_step(like, table)


def _every_step(call: Convolution, table: Measurements) -> dict[int, tuple[int, ...]]:
    """The whole ladders that were asked for the H200, by batch; nobody asked for others'."""
    return ladders().get(_kind(call), {}) if table.name == MODELLED_ON else {}


@lru_cache(maxsize=1)
def ladders() -> Ladders:
    """Everything that was asked: what call, at which batches, and its ladder there."""
    with resources.files("analyzer.devices").joinpath("profiles", "h200.ladders.npz").open("rb") as file:
        arrays = dict(np.load(file))
    families = [tuple(family) for family in arrays["family"].tolist()]
    ends = np.cumsum(arrays["count"]).tolist()
    sizes = arrays["nbytes"].tolist()
    found: Ladders = {}
    begin = 0
    for (operation, dtype, channels_last, family, batch), end in zip(
        arrays["call"].tolist(), ends, strict=True
    ):
        kind = (operation, dtype, bool(channels_last), families[family])
        found.setdefault(kind, {})[batch] = tuple(sizes[begin:end])
        begin = end
    return found


def write(path: Path, asked: Iterable[tuple[Convolution, Iterable[int]]], about: str) -> None:
    """Write a table that `ladders` reads: each call with the workspaces of its plans in PyTorch's order."""
    families: dict[tuple[int, ...], int] = {}
    calls: list[tuple[int, ...]] = []
    counts: list[int] = []
    sizes: list[int] = []
    for call, plans in asked:
        operation, dtype, channels_last, family = _kind(call)
        number = families.setdefault(family, len(families))
        calls.append((operation, dtype, channels_last, number, call.x_shape[0]))
        steps = _descending(plans)
        counts.append(len(steps))
        sizes += steps
    np.savez_compressed(
        path,
        allow_pickle=False,
        family=np.array(list(families), np.int32),
        call=np.array(calls, np.int32),
        count=np.array(counts, np.int8),
        nbytes=np.array(sizes, np.int64),
        about=np.array(about),
    )


def _kind(call: Convolution) -> Kind:
    dtype = DTYPES.index(call.dtype) if call.dtype in DTYPES else -1
    return OPERATIONS.index(call.operation), dtype, call.channels_last, call.family


def _descending(sizes: Iterable[int]) -> tuple[int, ...]:
    """Those that are less than all before them."""
    found: list[int] = []
    for nbytes in sizes:
        if not found or nbytes < found[-1]:
            found.append(nbytes)
    return tuple(found)


def _halves(nbytes: int) -> tuple[int, ...]:
    found = []
    while nbytes // 2 >= _LEAST_BYTES:
        nbytes //= 2
        found.append(nbytes)
    return (*found, 0)
