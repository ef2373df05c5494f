"""cuDNN workspaces of Conv and ConvTranspose in the CUDA provider, by algorithm search mode.

1. The provider asks cuDNN's frontend for one plan: heuristics mode B for EXHAUSTIVE (the default), A for HEURISTIC,
   the fallback list for DEFAULT. The plan's workspace is taken from the arena while the kernel runs.
   Source: `core/providers/cuda/nn/conv.cc` (`CreateCudnnFeExecutionPlan`); 1-D convolutions get a trailing axis of 1.
2. Plans were asked for 149,000 convolutions: those of 90 models at batches 1 to 64, in float32 and half precision, and random
   ones (`devices/profiles/*.onnxruntime.npz`, with provenance; `benchmarks/onnx/plans.py`). A measured shape gives its figure.
3. Any other shape takes the **form** of the nearest measured one of its kind (same search, type, layout, rank, transposed
   or not, depthwise, grouped or dense, pointwise or not; nearest in the logarithms of batch, channels, extent and
   kernel): measured workspaces are sums of copies of input (x), weights (w) and output (y), made because cuDNN's
   tensor-core kernels want NHWC, plus a rest. In the fallback list it is a table of 4 bytes a weight of one output
   channel, or nothing.
4. A device without such a table takes what cuDNN was asked for its compute capability for PyTorch (`table.py`), where it was asked for
   that convolution at that batch: PyTorch's first plan is heuristics mode A's. On the H200, where both are known, it is HEURISTIC's plan
   in 491 of 491 calls; EXHAUSTIVE's in 6,000 of 8,001 in float32 (94 % within half or a MiB, the sum within 4 %), 3,894 of 4,711
   in float16, 260 of 359 in NHWC. Any other call has the H200's. What is not HEURISTIC's own is a bound, which may be half
   off, or a MiB (`doubt`).

Not modelled: `cudnn_conv_use_max_workspace=0`, cuDNN versions other than the table's, bfloat16 (taken for float32's form).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from analyzer.devices import DeviceProfile
from analyzer.libraries.cudnn.table import Convolution as Call
from analyzer.libraries.cudnn.table import measurements, table_of_device

TOPIC = "onnxruntime"
SEARCH = {"EXHAUSTIVE": 0, "HEURISTIC": 1, "DEFAULT": 2}
_DTYPES = {"float32": (0, 4), "float16": (1, 2)}
_Array = np.ndarray[Any, Any]
# How many copies of x, w and y, and what is taken besides, in bytes.
Form: TypeAlias = tuple[tuple[int, int, int], int]
# Sums of seven squares, in another order, differ by less than this share.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class FrontendConvolution:
    """One convolution: shapes with batch (`x`, `y`), weights, and geometry; 2-D or 3-D."""

    transposed: bool
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    dtype: str = "float32"
    nhwc: bool = False

    def padded(self) -> FrontendConvolution:
        """A 1-D convolution gets a trailing axis of 1, as the provider gives it to cuDNN."""
        if len(self.x) != 3:
            return self
        return FrontendConvolution(
            self.transposed, (*self.x, 1), (*self.w, 1), (*self.y, 1), (*self.stride, 1), (*self.pad, 0),
            (*self.dilation, 1), self.groups, self.dtype, self.nhwc,
        )  # fmt: skip

    @property
    def row(self) -> tuple[int, ...]:
        """The geometry as the table writes it (see its `source`)."""
        return (
            int(self.transposed), len(self.x) - 2, self.groups, *_filled(self.x[1:], 4, 1), *_filled(self.w, 5, 1),
            *_filled(self.stride, 3, 1), *_filled(self.pad, 3, 0), *_filled(self.dilation, 3, 1), *_filled(self.y[1:], 4, 1),
        )  # fmt: skip


def _filled(sizes: tuple[int, ...], count: int, value: int) -> tuple[int, ...]:
    return (*sizes, *(value,) * (count - len(sizes)))


@dataclass(frozen=True, eq=False)
class _Table:
    """Measurements row by row, sorted by the number of their geometry; `digest` finds a geometry quickly. Tables are equal
    only to themselves, so that what follows from one can be remembered."""

    geometry: _Array
    digest: _Array
    row: _Array
    batch: _Array
    mode: _Array
    workspace: _Array

    @cached_property
    def kind(self) -> _Array:
        """What must agree for one shape to take the form of another."""
        kinds: _Array = _kind(self.geometry)[self.row]
        return kinds


def workspace(convolution: FrontendConvolution, search: str, device: DeviceProfile) -> tuple[int, str]:
    """Bytes and how they are known ("measured" or "bounded"). Search: EXHAUSTIVE, HEURISTIC or DEFAULT."""
    path, padded = device.data.get(TOPIC), convolution.padded()
    if path is None and (asked := _asked(padded, search, device)) is not None:
        return asked, "measured" if _is_first_plan(padded, search) else "bounded"
    nbytes, measured = _workspace(padded, SEARCH[search], path)
    return nbytes, "measured" if measured and path is not None else "bounded"


def workspaces(
    like: FrontendConvolution, batches: Sequence[int], search: str, device: DeviceProfile
) -> tuple[int, ...]:
    """Bytes at each of many batches, of input and output; `like`: the convolution at whatever batch."""
    one = replace(like, x=(1, *like.x[1:]), y=(1, *like.y[1:]))
    found = _workspaces(one.padded(), tuple(batches), SEARCH[search], device.data.get(TOPIC))
    if TOPIC in device.data:
        return found
    at = (replace(one, x=(batch, *one.x[1:]), y=(batch, *one.y[1:])).padded() for batch in batches)
    asked = (_asked(call, search, device) for call in at)
    return tuple(other if nbytes is None else nbytes for nbytes, other in zip(asked, found, strict=True))


def doubt(nbytes: int, basis: str, device: DeviceProfile) -> int:
    """Bytes by which a workspace may be off on a GPU whose plans nobody asked for."""
    return 0 if TOPIC in device.data or basis == "measured" else max(nbytes // 2, 1 << 20)


def _is_first_plan(convolution: FrontendConvolution, search: str) -> bool:
    """Whether what PyTorch takes was found to be what is taken here."""
    return search == "HEURISTIC" and convolution.dtype == "float32" and not convolution.nhwc


def _asked(convolution: FrontendConvolution, search: str, device: DeviceProfile) -> int | None:
    """What PyTorch takes for it on a GPU of that compute capability, if cuDNN was asked; None otherwise."""
    if (
        search == "DEFAULT"
        or convolution.transposed
        or len(convolution.x) != 4
        or convolution.dtype not in _DTYPES
    ):
        return None
    call = Call(
        "forward", convolution.dtype, convolution.nhwc, convolution.x, convolution.w, convolution.pad, convolution.stride,
        convolution.dilation,
    )  # fmt: skip
    known = measurements(table_of_device(device))
    row = known.family_row(call)
    if row is None:
        return None
    batches, sizes = known.batches(call, row, convolution.dtype)
    at = int(np.searchsorted(batches, convolution.x[0]))
    return int(sizes[at]) if at < len(batches) and batches[at] == convolution.x[0] else None


@lru_cache(maxsize=4096)
def _workspace(convolution: FrontendConvolution, mode: int, path: Path | None) -> tuple[int, bool]:
    table = _load(path)
    dtype, element = _DTYPES.get(convolution.dtype, (0, 4))
    x, w, y = (element * math.prod(shape) for shape in (convolution.x, convolution.w, convolution.y))
    if not _in_range(convolution, table):
        return x + w + y, False
    known = _measured(table, convolution.row).get((_mode(mode, dtype, convolution.nhwc), convolution.x[0]))
    if known is not None:
        return known, convolution.dtype in _DTYPES
    ((copies, rest),) = _forms(convolution, convolution.x[:1], table, mode, dtype)
    return copies[0] * x + copies[1] * w + copies[2] * y + rest, False


@lru_cache(maxsize=256)
def _workspaces(
    one: FrontendConvolution, batches: tuple[int, ...], mode: int, path: Path | None
) -> tuple[int, ...]:
    """As `_workspace` at each of the batches; one: of one sample."""
    table = _load(path)
    dtype, element = _DTYPES.get(one.dtype, (0, 4))
    x, w, y = (element * math.prod(shape) for shape in (one.x, one.w, one.y))
    if not _in_range(one, table):
        return tuple([(x + y) * batch + w for batch in batches])
    known, wanted = _measured(table, one.row), _mode(mode, dtype, one.nhwc)
    forms = _forms(one, batches, table, mode, dtype)
    return tuple(
        [
            known.get((wanted, batch), (copies[0] * x + copies[2] * y) * batch + copies[1] * w + rest)
            for batch, (copies, rest) in zip(batches, forms, strict=True)
        ]
    )


def _in_range(convolution: FrontendConvolution, table: _Table) -> bool:
    """Whether the table could hold such a geometry."""
    return max(map(abs, convolution.row)) <= int(np.iinfo(table.geometry.dtype).max)


@lru_cache(maxsize=1024)
def _measured(table: _Table, row: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Workspaces of one geometry, by (mode, batch)."""
    geometry = np.array(row, dtype=table.geometry.dtype)
    found: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(table.digest == _digest(geometry)).tolist():
        if not np.array_equal(table.geometry[at], geometry):
            continue
        first, last = np.searchsorted(table.row, np.array((at, at + 1), table.row.dtype)).tolist()
        for mode, batch, nbytes in zip(
            *(part[first:last].tolist() for part in (table.mode, table.batch, table.workspace)), strict=True
        ):
            found.setdefault((mode, batch), nbytes)
    return found


def _forms(
    convolution: FrontendConvolution, batches: Sequence[int], table: _Table, mode: int, dtype: int
) -> list[Form]:
    """At each batch the form of the nearest measured shape of the same kind.

    Tried one after another: what is wanted; this search, and EXHAUSTIVE, in float32. Without any of the kind: a copy of everything.
    """
    for tried in (_mode(mode, dtype, convolution.nhwc), _mode(mode, 0, False), _mode(0, 0, False)):
        rows = _nearest_rows(table, tried, convolution, batches)
        if rows is not None:
            forms = {row: _form_of(table, row, tried, convolution) for row in set(rows)}
            return [forms[row] for row in rows]
    return [((1, 1, 1), 0)] * len(batches)


def _form_of(table: _Table, row: int, mode: int, convolution: FrontendConvolution) -> Form:
    """The form of a measurement, for this convolution."""
    found, batch, nbytes = table.geometry[table.row[row]], int(table.batch[row]), int(table.workspace[row])
    if mode // 4 == SEARCH["DEFAULT"]:
        return (0, 0, 0), 4 * convolution.w[1] * math.prod(convolution.w[2:]) if nbytes else 0
    size = 4 if mode % 4 < 2 else 2  # of the row's type: a float32 row may stand in for a float16 call
    near = (
        size * batch * math.prod(int(v) for v in found[3:7]),
        size * math.prod(int(v) for v in found[7:12]),
        size * batch * math.prod(int(v) for v in found[21:25]),
    )
    return _form(near, nbytes)


def _nearest_rows(
    table: _Table, mode: int, convolution: FrontendConvolution, batches: Sequence[int]
) -> list[int] | None:
    """At each batch the measurement of this mode whose shape is the nearest of its kind, the first of equals; None without any."""
    geometry = np.array([convolution.row])
    kind = int(_kind(geometry)[0])
    near = _of_kind(table, mode, kind)
    if not len(near.rows):
        return None
    # Only the batch changes from call to call of one convolution, and few were measured: with each of these, how near any is.
    besides, least = _besides_batch(table, mode, kind, convolution.row)
    # As floats: a damaged file's sizes need not be those of any integer type.
    place = _place(np.repeat(geometry, len(batches), axis=0), np.array(batches, dtype=np.float64))
    apart = (near.batches[:, None] - place[:, 0]) ** 2
    farthest = (least[:, None] + apart).min(axis=0) * (1 + _ROUNDING) + _ROUNDING
    # So few are left to be compared as they should be, at each batch those that are about as near as the nearest.
    some = np.flatnonzero(besides <= (farthest - apart).max(axis=1)[near.batch] + _ROUNDING)
    close = besides[some, None] + apart[near.batch[some]] <= farthest
    distance = ((near.places[some, None] - place) ** 2).sum(axis=2)
    nearest: list[int] = near.rows[some[np.where(close, distance, np.inf).argmin(axis=0)]].tolist()
    return nearest


@dataclass(frozen=True, slots=True, eq=False)
class _Near:
    """The measurements of one mode and kind: which they are and where they lie. batches: the places of the batches measured,
    in one dimension; batch: which of these each has."""

    rows: _Array
    places: _Array
    batches: _Array
    batch: _Array


@lru_cache(maxsize=64)
def _of_kind(table: _Table, mode: int, kind: int) -> _Near:
    rows = np.flatnonzero((table.mode == mode) & (table.kind == kind))
    places = _place(table.geometry[table.row[rows]], table.batch[rows])
    return _Near(rows, places, *np.unique(places[:, 0], return_inverse=True))


@lru_cache(maxsize=256)
def _besides_batch(table: _Table, mode: int, kind: int, row: tuple[int, ...]) -> tuple[_Array, _Array]:
    """How far the measurements of a kind are from a geometry, squared, whatever the batch; and the least of each batch. Up to
    rounding."""
    near = _of_kind(table, mode, kind)
    place = _place(np.array([row]), np.ones(1))[0]
    distances: _Array = ((near.places[:, 1:] - place[1:]) ** 2).sum(axis=1)
    least = np.full(len(near.batches), np.inf)
    np.minimum.at(least, near.batch, distances)
    return distances, least


def _form(sizes: tuple[int, int, int], nbytes: int) -> Form:
    """The largest set of copies of x, w, y that fits into a measured workspace, and the rest."""
    best, least = (0, 0, 0), nbytes
    for choice in ((1, 1, 1), (1, 1, 0), (0, 1, 1), (1, 0, 1), (0, 1, 0), (1, 0, 0), (0, 0, 1)):
        rest = nbytes - sum(take * size for take, size in zip(choice, sizes, strict=True))
        if 0 <= rest < least:
            best, least = choice, rest
    return best, least


def _mode(mode: int, dtype: int, nhwc: bool) -> int:
    return 4 * mode + 2 * dtype + nhwc


def _digest(geometry: _Array) -> _Array:
    """One number a row: equal rows have equal ones."""
    weights = 31 ** np.arange(geometry.shape[-1], dtype=np.uint64)  # wraps around: it is only a digest
    digest: _Array = geometry.astype(np.uint64) @ weights
    return digest


def _kind(geometry: _Array) -> _Array:
    """What must agree, as one number a row."""
    groups, inner = geometry[:, 2], geometry[:, 8]
    kernel, pad, stride = geometry[:, 9:12], geometry[:, 15:18], geometry[:, 12:15]
    transposed = geometry[:, 0]
    inner = np.where(transposed == 1, geometry[:, 7] // groups, inner)
    depthwise = (groups > 1) & (inner == 1)
    pointwise = (kernel == 1).all(axis=1) & (pad == 0).all(axis=1)
    strided = (stride != 1).any(axis=1)
    flags = (transposed, depthwise, groups > 1, pointwise, pointwise & strided)
    kind: _Array = geometry[:, 1].astype(np.int64)
    for flag in flags:
        kind = 2 * kind + np.asarray(flag).astype(np.int64)
    return kind


def _place(geometry: _Array, batch: _Array) -> _Array:
    """Where rows lie among their kind: logarithms of what cuDNN's choice depends on."""
    groups = geometry[:, 2]
    place: _Array = np.log2(
        np.maximum(
            np.stack(
                [
                    batch, geometry[:, 3] / groups, geometry[:, 21] / groups, geometry[:, 4:7].prod(axis=1),
                    geometry[:, 9:12].prod(axis=1), geometry[:, 12:15].prod(axis=1), geometry[:, 18:21].prod(axis=1),
                ],
                axis=1,
            ),
            1,
        )
    )  # fmt: skip
    return place


@lru_cache(maxsize=4)
def _load(path: Path | None) -> _Table:
    """The table of a device, or the H200's."""
    file = (
        path
        if path is not None
        else resources.files("analyzer.devices") / "profiles" / "h200.onnxruntime.npz"
    )
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
        # Stored uncompressed and in 16 bits: unpacking takes longer than reading.
        geometry, measurement = content["geometry"].astype(np.int32), content["measurement"].astype(np.int32)
        nbytes = content["workspace"]
    measurement = measurement[order := np.argsort(measurement[:, 0], kind="stable")]
    return _Table(
        geometry, _digest(geometry), measurement[:, 0], measurement[:, 1],
        4 * measurement[:, 2] + 2 * measurement[:, 3] + measurement[:, 4], nbytes[order],
    )  # fmt: skip
