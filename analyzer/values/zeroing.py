"""An upper bound of nonzero elements after an operator that writes zeros at random, or by a mask.

1. A product with a mask of a known number of elements, or its choice (`where`), has no more nonzero elements
   than the mask.
2. A tensor with zeros written through a mask (`masked_fill`, `x[mask] = 0`) has no more than the mask
   leaves.
3. Of what a dropout or a draw of truth values keeps with a probability, more are not seen in a thousand
   million runs (`counts.py`, rule 2).
4. Of normal numbers, so many are above nothing (`relu`).
5. A comparison with zero (`ne`) is true for as many as are not zero.
6. A function of each element that is zero at zero, a scale, a triangle and a sum over dimensions have no more
   nonzero elements than what they are of, a sum of two no more than both; a comparison that zero does not
   pass is true for no more.
"""

from __future__ import annotations

from typing import Any

import torch

from .calls import DispatchedCall
from .counts import KnownCounts
from .sizes import is_mask

aten = torch.ops.aten
_UNEQUAL = (aten.ne.Scalar, aten.ne.Tensor)
_MULTIPLYING = (aten.mul.Tensor, aten.mul_.Tensor)
_ADDING = (aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.sub_.Tensor)
_FILLING = (aten.masked_fill.Scalar, aten.masked_fill_.Scalar)
_FILLING_BY_TENSOR = (aten.masked_fill.Tensor, aten.masked_fill_.Tensor)
_PUTTING = (aten.index_put.default, aten.index_put_.default)
_DRAWING_FLAGS = (aten.bernoulli.p, aten.bernoulli_.float)
_RECTIFYING = (aten.relu.default, aten.relu_.default)
# Functions of each element that are zero at zero (`sin`), and what leaves out elements or adds them up.
_NAMES = """
    relu relu_ neg neg_ abs abs_ sign sgn sqrt sqrt_ square tanh tanh_ sin asin tan atan sinh asinh atanh
    expm1 log1p erf trunc round floor ceil leaky_relu leaky_relu_ gelu silu tril triu tril_ triu_
    deg2rad rad2deg positive sum
"""
_ZERO_AT_ZERO = frozenset(
    getattr(packet, overload)
    for packet in (getattr(aten, name) for name in _NAMES.split())
    for overload in packet.overloads()
)
_DIVIDING = (aten.div.Tensor, aten.div_.Tensor, aten.div.Scalar, aten.div_.Scalar)
_BETWEEN = (aten.clamp.default, aten.clamp_.default, aten.hardtanh.default)
_POWERS = (aten.pow.Tensor_Scalar, aten.pow_.Scalar)
_COMPARED = {
    aten.gt.Scalar: float.__ge__,
    aten.ge.Scalar: float.__gt__,
    aten.lt.Scalar: float.__le__,
    aten.le.Scalar: float.__lt__,
}
_HANDLED = {
    *(*_UNEQUAL, *_MULTIPLYING, *_FILLING, *_FILLING_BY_TENSOR, *_PUTTING, *_DRAWING_FLAGS, *_RECTIFYING),
    *(aten.where.self, aten.native_dropout.default),
}
# They leave zeros as they are, some for some arguments alone.
_KEEPING = _ZERO_AT_ZERO.union(
    _BETWEEN, _POWERS, _COMPARED, _ADDING, _DIVIDING, _MULTIPLYING, (aten.threshold.default,)
)


def most_left(call: DispatchedCall, counts: KnownCounts, most: Any) -> int | None:
    """Return the most elements of an operator's first result that are not zero, None if nothing is known.
    most: the same of a tensor."""
    func = call.func
    if counts.bounds and func in _KEEPING:
        if (few := _most_of_zeros(call, most)) is not None:
            return few
        if func in _ADDING:
            return _most_of_sum(call.argument("self"), call.argument("other"), most)
    if func not in _HANDLED:
        return None
    if func in _UNEQUAL and (whole := call.argument("self")).dim():
        other = call.argument("other")
        zero = most(other) == 0 and not other.dim() if isinstance(other, torch.Tensor) else other == 0
        return most(whole) if zero else None
    if func in _MULTIPLYING:
        return _most_of_product(call.argument("self"), call.argument("other"), most)
    if func is aten.where.self:
        return _most_chosen(call, counts, most)
    if (mask := _mask_of_zeros(call, most)) is not None:
        whole, least = call.argument("self"), counts.at_least(mask)
        others = whole.numel() - least if least is not None and mask.shape == whole.shape else None
        return min((count for count in (others, most(whole)) if count is not None), default=None)
    if func is aten.native_dropout.default and call.argument("train") is not False:
        return counts.seen_at_most(call.argument("input").numel(), 1 - call.argument("p"))
    if func in _DRAWING_FLAGS:
        return counts.seen_at_most(call.argument("self").numel(), call.argument("p"))
    if func in _RECTIFYING and counts.share_below(call.argument("self"), 0.0) is not None:
        share = counts.share_below(call.argument("self"), 0.0)
        return counts.seen_at_most(call.argument("self").numel(), 1 - (share or 0.0))
    return None


def _most_of_zeros(call: DispatchedCall, most: Any) -> int | None:
    """Return the most of what a function makes of zeros and other numbers, if it leaves zeros as they are;
    None otherwise, or where these are not known."""
    func, whole = call.func, call.args[0]
    if not isinstance(whole, torch.Tensor) or not whole.dim():
        return None
    keeps = func in _ZERO_AT_ZERO or (func in _MULTIPLYING and _is_number(call.argument("other")))
    if func in _DIVIDING:
        keeps = _is_number(call.argument("other"))
    elif func in _BETWEEN:
        names = ("min_val", "max_val") if func is aten.hardtanh.default else ("min", "max")
        lower, upper = (call.argument(name) for name in names)
        keeps = (lower is None or lower <= 0) and (upper is None or upper >= 0)
    elif func in _POWERS:
        keeps = call.argument("exponent") > 0
    elif func in _COMPARED:
        keeps = _COMPARED[func](float(call.argument("other")), 0.0)
    elif func is aten.threshold.default:
        keeps = call.argument("threshold") < 0 or call.argument("value") == 0
    return most(whole) if keeps else None


def _is_number(other: Any) -> bool:
    """Return whether an operand is one known number other than zero."""
    if isinstance(other, torch.Tensor):
        return not other.dim() and other.device.type == "cpu" and bool(other != 0)
    return bool(other != 0)


def _most_of_sum(one: Any, other: Any, most: Any) -> int | None:
    """Return the most of a sum of two tensors of one shape."""
    if not isinstance(other, torch.Tensor) or one.shape != other.shape or not one.dim():
        return None
    counts = most(one), most(other)
    return None if None in counts else sum(counts)


def _most_of_product(one: Any, other: Any, most: Any) -> int | None:
    """Return the most of a product, which has the shape of both factors or of the one that is known."""
    if not isinstance(other, torch.Tensor):
        return None
    shape = torch.broadcast_shapes(one.shape, other.shape)
    known = [most(factor) for factor in (one, other) if factor.shape == shape and factor.dim()]
    return min((count for count in known if count is not None), default=None)


def _most_chosen(call: DispatchedCall, counts: KnownCounts, most: Any) -> int | None:
    """Return the most of what a mask chooses, where the one or the other is zero."""
    mask, one, other = (call.argument(name) for name in ("condition", "self", "other"))
    if mask.shape != torch.broadcast_shapes(one.shape, other.shape):
        return None
    if most(other) == 0:
        return counts.at_most(mask)
    least = counts.at_least(mask) if most(one) == 0 else None
    return None if least is None else mask.numel() - least


def _mask_of_zeros(call: DispatchedCall, most: Any) -> torch.Tensor | None:
    """Return the mask through which zeros are written, None if nothing or something else is."""
    func = call.func
    if func in _FILLING and call.argument("value") == 0:
        return call.argument("mask")  # type: ignore[no-any-return]
    if func in _FILLING_BY_TENSOR and most(call.argument("value")) == 0:
        return call.argument("mask")  # type: ignore[no-any-return]
    if func not in _PUTTING or call.argument("accumulate"):
        return None
    places = call.argument("indices")
    masks = [place for place in places if is_mask(place)]
    zeros = len(masks) == len(places) == 1 and most(call.argument("values")) == 0
    return masks[0] if zeros else None
