"""The workspace cuDNN takes for a convolution: looked up where it was asked of cuDNN on the GPU, inferred elsewhere.

cuDNN picks an engine by heuristics nobody publishes, but what an engine takes has a plain structure. Where it works on
NHWC data and is given NCHW, it copies tensors; where it splits the reduction, it keeps partial sums of the filter. So

    workspace = a * X + b * Y + c * W + j * P + r

X, Y, W: bytes of input, output and filter (channels padded to 16 bytes where the engine wants that), a, b, c in {0, 1};
P: the filter in float32, j a count (or the batch size: one partial sum per image); r: a few hundred bytes of alignment
and semaphores. The tuple (a, b, c, j, r) is the call's *form*. Rules:

1. A measured call is what was measured.
2. A 16-bit call measured only in the other 16-bit dtype is taken to be equal (90 % of pairs are).
3. Otherwise the nearest measured calls vote, each with its form and a weight that falls with distance: the same
   convolution at other batch sizes, and others of the same operation, dtype, layout and class (dimensions, filter,
   strides, dilated, grouped), near in the logarithms of channels, positions and batch.
4. Figures of rules 2 and 3 carry the range the voters span. A device without measurements of its own takes the
   H200's, and `Workspace.source` says so.

Left out and asked for again (700 calls, float32 NCHW; forward, data, weight gradient), to the byte: 85, 88, 74 % of
calls at an unseen batch size; 77, 85, 68 % of convolutions unseen altogether, mean error 5, 4, 17 % of the call's own
tensors, the true figure within the range in 97, 98, 95 %. 16-bit dtypes fare better.

How the data are made: `analyzer/verify/cudnn.py` (same calls as PyTorch makes, nothing run), as `analyze calibrate` does. Checked
against 77,576 calls executed through PyTorch: all but one agree (there PyTorch ran out of memory and took a second plan).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

OPERATIONS = ("forward", "data", "weight")
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_SIBLING = {"bfloat16": "float16", "float16": "bfloat16"}
_ALIGNMENT_BYTES = 16
_REST_BYTES = 2048
_PARTIAL_MIN_BYTES = 8192
_VOTERS = 6

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Convolution:
    """One cuDNN convolution: x * w -> y; for "data" and "weight" the same shapes, other results.

    operation: "forward", "data" (gradient of x) or "weight" (gradient of w).
    x_shape, w_shape: (N, C, *spatial), (K, C/groups, *filter); padding, stride, dilation per spatial dimension.
    channels_last: all three tensors lie in NHWC order.
    """

    operation: str
    dtype: str
    channels_last: bool
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def groups(self) -> int:
        """C divided by the filter's channels."""
        return self.x_shape[1] // self.w_shape[1]

    @property
    def y_shape(self) -> tuple[int, ...]:
        """(N, K, *spatial out)."""
        spatial = tuple(
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, pad, stride, dilation in zip(
                self.x_shape[2:], self.w_shape[2:], self.padding, self.stride, self.dilation, strict=True
            )
        )
        return (self.x_shape[0], self.w_shape[0], *spatial)

    @property
    def family(self) -> tuple[int, ...]:
        """Everything but operation, dtype, layout and batch: C, spatial, K, C/groups, filter, padding, stride, dilation.

        Always 18 numbers: two spatial dimensions are written as three, the first being 0.
        """

        def three(values: Sequence[int]) -> tuple[int, ...]:
            return (*([0] * (3 - len(values))), *values)

        parts = (self.x_shape[2:], self.w_shape[2:], self.padding, self.stride, self.dilation)
        spatial, kernel, padding, stride, dilation = (three(part) for part in parts)
        channels = self.x_shape[1]
        return (channels, *spatial, *self.w_shape[:2], *kernel, *padding, *stride, *dilation)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes of workspace, the range they are believed to lie in, and how they are known.

    source: "measured", "inferred" (rules 2, 3) or "unknown", and the device they come from if it is another one.
    """

    nbytes: int
    low_bytes: int
    high_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Form:
    """Which copies and partial sums a workspace consists of (the module docstring's a, b, c, j, r)."""

    x: int
    y: int
    w: int
    padded: bool
    partials: int
    partials_per_image: bool
    rest_bytes: int


def _parts(call: Convolution, padded: bool) -> tuple[int, int, int, int]:
    """Bytes of X, Y, W and P."""
    element = ELEMENT_BYTES[call.dtype]
    groups, multiple = call.groups, _ALIGNMENT_BYTES // element if padded else 1
    c_each = -(-call.w_shape[1] // multiple) * multiple
    k_each = -(-(call.w_shape[0] // groups) // multiple) * multiple
    batch, y_spatial = call.x_shape[0], call.y_shape[2:]
    filter_count = k_each * groups * c_each * math.prod(call.w_shape[2:])
    x = batch * c_each * groups * math.prod(call.x_shape[2:]) * element
    y = batch * k_each * groups * math.prod(y_spatial) * element
    return x, y, filter_count * element, filter_count * 4


_COPIES = ((0, 0, 0), (1, 1, 1), (1, 0, 1), (0, 1, 1), (1, 1, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))


def form_of(call: Convolution, nbytes: int) -> Form:
    """The simplest form that gives `nbytes` for this call; where none does, copies and whatever remains.

    >>> call = Convolution("forward", "float32", False, (32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1))
    >>> form_of(call, 25_837_584)
    Form(x=1, y=0, w=1, padded=False, partials=0, partials_per_image=False, rest_bytes=16)
    """
    batch = call.x_shape[0]
    if nbytes < _REST_BYTES:
        return Form(0, 0, 0, False, 0, False, nbytes)
    for partials, per_image in ((0, False), (batch, True), (-1, False)):
        for padded in (False, True):
            x, y, w, partial = _parts(call, padded)
            for a, b, c in _COPIES:
                left = nbytes - a * x - b * y - c * w
                if left < 0:
                    continue
                count = partials
                if partials < 0:
                    if partial < _PARTIAL_MIN_BYTES:
                        continue
                    count = left // partial
                left -= count * partial
                if 0 <= left < _REST_BYTES:
                    return Form(a, b, c, padded, 1 if per_image else count, per_image, left)
    x, y, w, _ = _parts(call, False)
    fits = [(nbytes - a * x - b * y - c * w, (a, b, c)) for a, b, c in _COPIES]
    left, (a, b, c) = min(entry for entry in fits if entry[0] >= 0)
    return Form(a, b, c, False, 0, False, left)


def bytes_of(call: Convolution, form: Form) -> int:
    """The workspace of a call that has this form."""
    x, y, w, partial = _parts(call, form.padded)
    count = form.partials * (call.x_shape[0] if form.partials_per_image else 1)
    return form.x * x + form.y * y + form.w * w + count * partial + form.rest_bytes


class Measurements:
    """The table of one device (`profiles/NAME.convolutions.npz`, or the .npz file a calibrated profile names).

    Members: `about` (JSON: GPU, versions, date, method), `family` (int32 [families, 18], as `Convolution.family`), and
    for each dtype and layout measured, e.g. "float32.nchw": `.family` (row of the family table), `.batch`, and the
    workspaces `.forward`, `.data`, `.weight` (bytes; -1: cuDNN has no plan, -2: not asked), sorted by family, then batch.
    """

    def __init__(self, name: str) -> None:
        own = resources.files("analyzer.devices").joinpath("profiles", f"{name}.convolutions.npz")
        path = Path(name) if name.endswith(".npz") else own
        with path.open("rb") as file:
            self._arrays = dict(np.load(file))  # the whole file: under 3 MB
        self.name = name
        self.about: dict[str, str] = json.loads(str(self._arrays["about"]))
        self.families: Integers = self._arrays["family"].astype(np.int64)
        self._row = {tuple(family): row for row, family in enumerate(self.families.tolist())}
        self._features = _features(self.families)
        self._classes = _classes(self.families)

    def family_row(self, call: Convolution) -> int | None:
        """Where the call's family is in the table."""
        return self._row.get(call.family)

    def batches(self, call: Convolution, family: int, dtype: str) -> tuple[Integers, Integers]:
        """Measured batch sizes of a family, ascending, and the workspaces at them."""
        prefix = f"{dtype}.{'nhwc' if call.channels_last else 'nchw'}"
        if f"{prefix}.family" not in self._arrays:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows = self._arrays[f"{prefix}.family"]
        start, stop = np.searchsorted(rows, [family, family + 1])
        sizes = self._arrays[f"{prefix}.{call.operation}"][start:stop].astype(np.int64)
        known = sizes >= 0
        return self._arrays[f"{prefix}.batch"][start:stop].astype(np.int64)[known], sizes[known]

    def nearest(self, call: Convolution, *, loosely: bool = False) -> list[tuple[float, int]]:
        """(distance, family) of the nearest families, nearest first: of the call's class, or of its dimensions only."""
        family = np.array([call.family], dtype=np.int64)
        columns = slice(1) if loosely else slice(None)
        same = np.flatnonzero((self._classes[:, columns] == _classes(family)[:, columns]).all(axis=1))
        distance = np.abs(self._features[same] - _features(family)).sum(axis=1)
        order = np.argsort(distance, kind="stable")[: 40 * _VOTERS]
        return [(float(distance[place]), int(same[place])) for place in order]


def _features(families: Integers) -> npt.NDArray[np.float64]:
    """Log channels and positions, and whether channels are multiples of 4 and 8: what engines ask about."""
    channels, k, c_each = families[:, 0], families[:, 4], families[:, 5]
    groups = np.maximum(channels // np.maximum(c_each, 1), 1)
    k_each = k // groups
    positions = np.maximum(families[:, 1:4], 1).prod(axis=1)
    columns = [np.log2(c_each), np.log2(np.maximum(k_each, 1)), np.log2(groups), np.log2(positions)]
    columns += [0.5 * (each % multiple == 0) for each in (c_each, k_each) for multiple in (4, 8)]
    columns += [1.0 * (each < 8) for each in (c_each, k_each)]
    columns += [0.25 * np.abs(families[:, 9:12]).sum(axis=1)]
    return np.stack(columns, axis=1)


def _classes(families: Integers) -> Integers:
    """Columns that must agree between neighbours: dimensions, filter, strides, dilation, grouping."""
    groups = np.maximum(families[:, 0] // np.maximum(families[:, 5], 1), 1)
    depthwise = (groups > 1) & (groups == families[:, 0])
    kinds = (groups > 1).astype(np.int64) + depthwise
    spatial = (families[:, 1] > 0).astype(np.int64) + (families[:, 2] == 1) * 2
    return np.column_stack([spatial, families[:, 6:9], families[:, 12:15], families[:, 15:18] > 1, kinds])


@lru_cache(maxsize=4)
def measurements(device: str) -> Measurements:
    """A device's table, or the H200's when it has none."""
    try:
        return Measurements(device)
    except FileNotFoundError:
        return Measurements("h200")


@lru_cache(maxsize=65536)
def workspace(call: Convolution, device: str) -> Workspace:
    """What cuDNN takes for one call, by the rules of the module docstring."""
    table = measurements(device)
    origin = "" if table.name == device else f" (transferred from {table.name})"
    batch = call.x_shape[0]
    family = table.family_row(call)
    dtypes = [dtype for dtype in (call.dtype, _SIBLING.get(call.dtype)) if dtype is not None]
    if family is not None:
        for place, dtype in enumerate(dtypes):
            batches, sizes = table.batches(call, family, dtype)
            exact = np.flatnonzero(batches == batch)
            if exact.size:
                nbytes = int(sizes[exact[0]])
                return Workspace(nbytes, nbytes, nbytes, ("measured", "inferred")[place] + origin)
    return _by_vote(call, table, dtypes, origin)


def _by_vote(call: Convolution, table: Measurements, dtypes: Sequence[str], origin: str) -> Workspace:
    """Rule 3."""
    guesses = _voters(call, table, dtypes, loosely=False) or _voters(call, table, dtypes, loosely=True)
    if not guesses:
        x, y, w, _ = _parts(call, True)
        return Workspace(0, 0, x + y + w, "unknown" + origin)
    voters = sorted(guesses)[:_VOTERS]
    votes: dict[int, float] = {}
    for distance, guess in voters:
        votes[-(-guess // 512)] = votes.get(-(-guess // 512), 0.0) + 1 / (distance + 0.2)
    winner = max(votes, key=lambda blocks: votes[blocks])
    nbytes = next(guess for _, guess in voters if -(-guess // 512) == winner)
    values = [guess for _, guess in voters]
    return Workspace(nbytes, min(values), max(values), "inferred" + origin)


def _voters(
    call: Convolution, table: Measurements, dtypes: Sequence[str], *, loosely: bool
) -> list[tuple[float, int]]:
    """Distances and guesses of the nearest measured calls."""
    batch = call.x_shape[0]
    guesses: list[tuple[float, int]] = []
    for distance, row in table.nearest(call, loosely=loosely):
        for dtype in dtypes:
            batches, sizes = table.batches(call, row, dtype)
            steps = np.abs(np.log2(batches / batch))
            for place in np.argsort(steps, kind="stable")[: 3 if distance == 0 else 1]:
                other = _call_of(table.families[row], int(batches[place]), call)
                guess = bytes_of(call, _carried(form_of(other, int(sizes[place])), other, call))
                guesses.append((distance + 0.5 * float(steps[place]), guess))
            if batches.size:
                break
        if len(guesses) >= 2 * _VOTERS:
            break
    return guesses


def _carried(form: Form, origin: Convolution, call: Convolution) -> Form:
    """The form at another convolution: splits fill the GPU, so partial sums keep their bytes rather than their count."""
    if form.partials == 0 or form.partials_per_image:
        return form
    ours, theirs = _parts(call, form.padded)[3], _parts(origin, form.padded)[3]
    return replace(form, partials=round(form.partials * theirs / ours))


def _call_of(family: Integers, batch: int, like: Convolution) -> Convolution:
    """The convolution a row of the family table stands for."""
    channels, depth, *rest = (int(value) for value in family)
    skip = 0 if depth else 1
    spatial = (depth, rest[0], rest[1])[skip:]
    k, c_each = rest[2], rest[3]
    kernel, padding, stride, dilation = (tuple(rest[4 + 3 * i + skip : 7 + 3 * i]) for i in range(4))
    return Convolution(
        like.operation,
        like.dtype,
        like.channels_last,
        (batch, channels, *spatial),
        (k, c_each, *kernel),
        padding,
        stride,
        dilation,
    )
