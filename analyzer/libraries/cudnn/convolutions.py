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
   strides, dilated, grouped), near in the logarithms of channels, positions and batch. A measured batch of the same
   convolution that lies on one straight line with two others speaks by that line (`Line`) instead of its form. A trial's
   workspace that is what the neighbour's Fourier engine takes votes for what the call's own takes (`fourier.py`); one that
   no form explains grows as input and output do.
4. **Settings** (`torch.backends.cudnn`): TF32 off and deterministic mode have answers of their own (`Settings.figure`).
   Where they were not asked, a neighbour whose answer is that of the default settings votes for the call's own.
5. **Benchmark mode** takes, the first time a convolution is seen, one workspace as large as the largest of all its plans
   (`trial`), then runs the fastest of the first ten (`workspace`): what was measured; else, for NCHW, what the nearest calls that
   were timed vote for; else cuDNN's first; between nothing and the largest of those ten. Of calls timed twice 82 % had the same
   winner. Left out, such votes are right in 75, 79, 66 % of calls at an unseen batch size (float32; forward, data, weight) and
   79, 78, 67 % (float16), cuDNN's first in 66, 75, 60 and 66, 62, 49 % (`python -m benchmarks cudnn votes --winners --calls 250`).
   For NHWC, of which few were timed, the first is as good a guess.
6. Where a plan's workspace finds no room, PyTorch asks for those of the plans after it: `ladders.py`.
7. Figures of rules 2, 3 and 5 carry the range the voters span.
8. A GPU has the table of its compute capability, and where nobody may vote there, what the H200 has to say; one without a table
   has that of the nearest (`table.measurements`). `Workspace.source` says so. Left out of another GPU's table, a vote in it is
   right in 64 % of calls (A100, RTX 3090, RTX 5090; T4: 53 %), the H200's own answer in 52 % (T4: 29 %).

Left out and voted on (`python -m benchmarks cudnn votes --calls 100`; float32 NCHW; forward, data, weight gradient), right in the
allocator's blocks: 86, 90, 76 % of calls at an unseen batch size; 81, 86, 64 % of convolutions unseen altogether, the true
figure within the range in 98, 97, 92 % (a few votes for small tensors are many times too high). 16-bit dtypes fare better. Trials above
16 MB within 5 %, at an unseen batch size and of a convolution unseen altogether: float32 NCHW 78, 93, 90 and 75, 91, 86 %; float16
NCHW 58, 65, 62 and 54, 63, 57 %; float16 NHWC 88, 88, 63 and 82, 86, 50 %.

How the data are made: `analyzer/runs/cudnn.py` (same calls as PyTorch makes, nothing run), as `analyze calibrate` does. Checked
against 77,576 calls executed through PyTorch: all but one agree (there PyTorch ran out of memory and took a second plan);
and 9,000 executed in benchmark mode: the trials of all that had any are as predicted, and no winner took more than the
largest of the ten first plans (63 % took what cuDNN's first choice takes).
Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`run_single_conv`, `get_plans_from_find`, `generate_and_filter_plans`).

Not modelled: both TF32 off and deterministic (taken as TF32 off); fewer trials where even the largest workspace finds no
room (PyTorch then tries with half of it, and so on).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from analyzer.libraries.cudnn.fourier import fourier_bytes
from analyzer.libraries.cudnn.table import (
    DETERMINISTIC,
    DETERMINISTIC_TRIAL,
    ELEMENT_BYTES,
    FASTEST,
    FIRST,
    MODELLED_ON,
    STRICT,
    STRICT_TRIAL,
    TIMED,
    TRIAL,
    VOTERS,
    Convolution,
    Integers,
    Measurements,
    convolution_of,
    measurements,
)

_SIBLING = {"bfloat16": "float16", "float16": "bfloat16"}
_ALIGNMENT_BYTES = 16
_REST_BYTES = 2048
_PARTIAL_MIN_BYTES = 8192
_TRIALS = (TRIAL, STRICT_TRIAL, DETERMINISTIC_TRIAL)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Bytes of workspace, the range they are believed to lie in, and how they are known.

    source: "measured" (what cuDNN was asked for this GPU, or for one of its compute capability), "inferred" (from the other
    16-bit dtype or the nearest calls that were asked) or "unknown", and the GPU they come from if it is another one.
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


@lru_cache(maxsize=4096)
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


@dataclass(frozen=True, slots=True)
class Settings:
    """`torch.backends.cudnn`'s, at the time of the call; float32 alone knows TF32."""

    benchmark: bool = False
    deterministic: bool = False
    allow_tf32: bool = True

    def figure(self, dtype: str, *, trial: bool = False) -> str:
        """Which of the table's figures tells what is taken, for a call or for benchmark mode's trials."""
        if not self.allow_tf32 and dtype == "float32":
            return STRICT_TRIAL if trial else STRICT
        if self.deterministic:
            return DETERMINISTIC_TRIAL if trial else DETERMINISTIC
        return TRIAL if trial else FIRST


DEFAULT = Settings()
_BENCHMARK = Settings(benchmark=True)


def workspace(call: Convolution, device: str, settings: Settings = DEFAULT) -> Workspace:
    """What the plan that runs takes for one call, by the rules of the module docstring."""
    figure = settings.figure(call.dtype)
    if not settings.benchmark:
        return _figure(call, device, figure)
    if settings == _BENCHMARK:
        fastest = _asked(call, device, FASTEST)
        if fastest is not None:
            return fastest
        if measurements(device).name == MODELLED_ON and not call.channels_last:
            figure = FASTEST
    found, highest = _figure(call, device, figure), _asked(call, device, TIMED)
    high = found.high_bytes if highest is None else highest.high_bytes
    return replace(
        found,
        nbytes=min(found.nbytes, high),
        low_bytes=0,
        high_bytes=max(found.high_bytes, high),
        source=found.source.replace("measured", "inferred"),
    )


def trial(call: Convolution, device: str, settings: Settings) -> Workspace:
    """What benchmark mode takes while it tries a call's plans: the largest of their workspaces."""
    return _figure(call, device, settings.figure(call.dtype, trial=True))


def dtypes_of(call: Convolution) -> tuple[str, ...]:
    """The call's type, and the one whose measurements stand in."""
    sibling = _SIBLING.get(call.dtype)
    return (call.dtype,) if sibling is None else (call.dtype, sibling)


@lru_cache(maxsize=65536)
def _figure(call: Convolution, device: str, figure: str) -> Workspace:
    return _asked(call, device, figure) or _by_vote(call, device, figure)


@lru_cache(maxsize=65536)
def _asked(call: Convolution, device: str, figure: str) -> Workspace | None:
    """What cuDNN was asked, of this type or the other 16-bit one."""
    table = measurements(device)
    family = table.family_row(call)
    if family is not None:
        for place, dtype in enumerate(dtypes_of(call)):
            batches, sizes = table.batches(call, family, dtype, figure)
            exact = np.flatnonzero(batches == call.x_shape[0])
            if exact.size:
                nbytes = int(sizes[exact[0]])
                return Workspace(
                    nbytes, nbytes, nbytes, ("measured", "inferred")[place] + _origin(table, device)
                )
    return None


def _origin(table: Measurements, device: str) -> str:
    return "" if table.name == device else f" (transferred from {table.name})"


def _by_vote(call: Convolution, device: str, figure: str) -> Workspace:
    """The nearest measured calls vote, each with its form and a weight that falls with distance.

    For another figure than the first plan's, a neighbour whose plan is that of the default settings votes for the call's.
    """
    table = measurements(device)
    origin = _origin(table, device)
    like = replace(call, x_shape=(1, *call.x_shape[1:]))
    near = neighbours(table, like, dtypes_of(call), False, figure) or neighbours(
        table, like, dtypes_of(call), True, figure
    )
    own = None if figure == FIRST else _figure(call, device, FIRST)
    if not near and table.name != MODELLED_ON:
        found = _figure(call, MODELLED_ON, figure)
        source = found.source.replace("measured", "inferred")
        return replace(found, source=f"{source} (transferred from {MODELLED_ON})")
    if not near:
        x, y, w, _ = _parts(call, True)
        return Workspace(0 if own is None else own.nbytes, 0, x + y + w, "unknown" + origin)
    voters = _voters(call, table, near, figure, None if own is None else own.nbytes)
    votes: dict[int, float] = {}
    for distance, guess in voters:
        votes[-(-guess // 512)] = votes.get(-(-guess // 512), 0.0) + 1 / (distance + 0.2)
    winner = max(votes, key=lambda blocks: votes[blocks])
    nbytes = next(guess for _, guess in voters if -(-guess // 512) == winner)
    values = [guess for _, guess in voters]
    return Workspace(nbytes, min(values), max(values), "inferred" + origin)


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
    lines: tuple[Line | None, ...]
    as_fourier: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Three measured batches next to each other whose workspaces lie on one straight line: two of its points."""

    batch: int
    nbytes: int
    other_batch: int
    other_bytes: int

    def at(self, batch: Any) -> Any:
        """Bytes at a batch, or at each of an array of them."""
        rise, run = self.other_bytes - self.nbytes, self.other_batch - self.batch
        found = self.nbytes + rise * (batch - self.batch) // run
        return max(found, 0) if isinstance(batch, int) else np.maximum(found, 0)


def lines_of(batches: Integers, sizes: Integers) -> tuple[Line | None, ...]:
    """For each of ascending batches the line it lies on with two batches next to it, best with one on either side."""
    steps, rises = np.diff(batches), np.diff(sizes)
    begins = np.flatnonzero(rises[:-1] * steps[1:] == rises[1:] * steps[:-1]).tolist()
    known = {
        at: Line(int(batches[at]), int(sizes[at]), int(batches[at + 2]), int(sizes[at + 2])) for at in begins
    }
    return tuple(
        known.get(place - 1) or known.get(place - 2) or known.get(place) for place in range(len(batches))
    )


@lru_cache(maxsize=65536)
def neighbours(
    table: Measurements, like: Convolution, dtypes: tuple[str, ...], loosely: bool, figure: str
) -> tuple[Neighbour, ...]:
    """Convolutions that may vote on the call `like`, whatever its batch: nearest first, until they have votes enough."""
    found: list[Neighbour] = []
    votes = 0
    for distance, row in table.nearest(like, loosely=loosely):
        for dtype in dtypes:
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
                votes += min(votes_of(distance), batches.size)
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


def votes_of(distance: float) -> int:
    """How many batches of a measured convolution vote: of the very same one more."""
    return 3 if distance == 0 else 1


def _voters(
    call: Convolution, table: Measurements, near: Sequence[Neighbour], figure: str, first_bytes: int | None
) -> list[tuple[float, int]]:
    """Distances and guesses of the nearest measured calls, nearest first, the smaller guess among equals."""
    batch = call.x_shape[0]
    candidates: list[tuple[float, Neighbour, int]] = []
    # All at once: of most neighbours only the nearest batch votes.
    every = np.abs(np.log2(np.concatenate([neighbour.batches for neighbour in near]) / batch))
    end = 0
    for neighbour in near:
        begin, end = end, end + len(neighbour.batches)
        steps, votes = every[begin:end], votes_of(neighbour.distance)
        places = [int(steps.argmin())] if votes == 1 else np.argsort(steps, kind="stable")[:votes].tolist()
        for place in places:
            candidates.append((neighbour.distance + 0.5 * float(steps[place]), neighbour, place))
    farthest = sorted(distance for distance, _, _ in candidates)[:VOTERS][-1]
    guesses = []
    own_fourier = fourier_bytes(call) if figure in _TRIALS else None
    for distance, neighbour, place in candidates:
        if distance > farthest:
            continue
        if own_fourier is not None and neighbour.as_fourier[place]:
            guesses.append((distance, max(own_fourier, first_bytes or 0)))
            continue
        if first_bytes is not None and neighbour.as_first[place]:
            guesses.append((distance, first_bytes))
            continue
        line = neighbour.lines[place]
        if line is not None:
            guesses.append((distance, line.at(batch)))
            continue
        other, form = measured_form(
            table, neighbour.row, int(neighbour.batches[place]), int(neighbour.sizes[place]), kind_of(call)
        )
        guesses.append((distance, _guess(call, other, form, figure)))
    return sorted(guesses)[:VOTERS]


def _guess(call: Convolution, other: Convolution, form: Form, figure: str) -> int:
    """What a measured call's form gives for this one; of a trial it may explain little: it grows as input and output do."""
    if form.rest_bytes < _REST_BYTES or figure not in _TRIALS:
        return bytes_of(call, carried_form(form, other, call))
    ours, theirs = _parts(call, False), _parts(other, False)
    return bytes_of(other, form) * (ours[0] + ours[1]) // (theirs[0] + theirs[1])


def kind_of(call: Convolution) -> Convolution:
    """Of a call what a row of the family table does not say: operation, dtype and layout."""
    return Convolution(call.operation, call.dtype, call.channels_last, (1, 1), (1, 1), (), (), ())


@lru_cache(maxsize=65536)
def measured_form(
    table: Measurements, row: int, batch: int, nbytes: int, kind: Convolution
) -> tuple[Convolution, Form]:
    """A measured call and its form."""
    other = convolution_of(table.families[row], batch, kind)
    return other, form_of(other, nbytes)


def carried_form(form: Form, origin: Convolution, call: Convolution) -> Form:
    """The form at another convolution: splits fill the GPU, so partial sums keep their bytes rather than their count."""
    if form.partials == 0 or form.partials_per_image:
        return form
    ours, theirs = _parts(call, form.padded)[3], _parts(origin, form.padded)[3]
    return replace(form, partials=round(form.partials * theirs / ours))
