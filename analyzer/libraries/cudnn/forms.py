"""What a workspace of cuDNN's consists of: copies of tensors and partial sums.

cuDNN picks an engine by heuristics nobody publishes, but what an engine takes has a plain structure. Where it works on
NHWC data and is given NCHW, it copies tensors; where it splits the reduction, it keeps partial sums of the filter. So

    workspace = a * X + b * Y + c * W + j * P + r

X, Y, W: bytes of input, output and filter (channels padded to 16 bytes where the engine wants that), a, b, c in {0, 1};
P: the filter in float32, j a count (or the batch size: one partial sum per image); r: a few hundred bytes of alignment
and semaphores. The tuple (a, b, c, j, r) is the call's *form*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from analyzer.libraries.cudnn.table import ELEMENT_BYTES, Convolution

_ALIGNMENT_BYTES = 16
REST_BYTES = 2048
_PARTIAL_MIN_BYTES = 8192


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
def parts_of(call: Convolution, padded: bool) -> tuple[int, int, int, int]:
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
    if nbytes < REST_BYTES:
        return Form(0, 0, 0, False, 0, False, nbytes)
    for partials, per_image in ((0, False), (batch, True), (-1, False)):
        for padded in (False, True):
            x, y, w, partial = parts_of(call, padded)
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
                if 0 <= left < REST_BYTES:
                    return Form(a, b, c, padded, 1 if per_image else count, per_image, left)
    x, y, w, _ = parts_of(call, False)
    fits = [(nbytes - a * x - b * y - c * w, (a, b, c)) for a, b, c in _COPIES]
    left, (a, b, c) = min(entry for entry in fits if entry[0] >= 0)
    return Form(a, b, c, False, 0, False, left)


def bytes_of(call: Convolution, form: Form) -> int:
    """The workspace of a call that has this form."""
    x, y, w, partial = parts_of(call, form.padded)
    count = form.partials * (call.x_shape[0] if form.partials_per_image else 1)
    return form.x * x + form.y * y + form.w * w + count * partial + form.rest_bytes


def carried_form(form: Form, origin: Convolution, call: Convolution) -> Form:
    """The form at another convolution: splits fill the GPU, so partial sums keep their bytes rather than their count."""
    if form.partials == 0 or form.partials_per_image:
        return form
    ours, theirs = parts_of(call, form.padded)[3], parts_of(origin, form.padded)[3]
    return replace(form, partials=round(form.partials * theirs / ours))
