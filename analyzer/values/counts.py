"""How many elements of a tensor are not zero, where its values themselves are not known.

1. How many elements of a copy of a host tensor are not zero is counted when it is copied, of matrices and
   masks too large to be followed, and known until the copy is written to. So it is of a mask through which
   rows of a known number are written.
2. Of the numbers a GPU draws evenly from 0 to 1 (`rand`), or normally (`randn`), nobody knows one, but how
   many of them are below a number, or above it, is within bounds: more are not seen in a thousand million
   runs (Bernstein's inequality).
3. A mask that begins as zeros and is written to at so many places, or is joined of such masks, has no more
   elements that are not zero than that: how samplers of boxes choose theirs.
4. Elements equal to one number and those equal to another (the levels boxes are pooled from, the classes of
   labels) are not more together than there are elements: the first that are asked for are taken to be all,
   and one of each other, so that what follows from it runs. Of the places that `topk` chooses no row has one
   twice, so the first is taken to have one in each row. Where as many are chosen as there are to choose from,
   or more (the experts of tokens), each is taken to be among them if that is asked.
5. An order (`sort`, `argsort`) has every place once: what is compared with one of them is equal once in each
   row.
6. `nonzero` lists every place once: of the rows of its result, as many as a slice has elements have one
   number in one column at most, however many rows there are. So a list of all masks' changes is told apart
   mask by mask.
7. A mask whose elements were counted as so many, for want of their values, has as many where the host reads
   it afterwards: what is kept of a tensor on the device and of one on the host is as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import sizes
from .calls import DispatchedCall
from .origins import Origins

aten = torch.ops.aten
_MOST_COUNTED = 1 << 26
# Comparisons with a number, and whether they hold below it.
COMPARING = {
    aten.lt.Scalar: True,
    aten.le.Scalar: True,
    aten.gt.Scalar: False,
    aten.ge.Scalar: False,
}
# An order's places, among the results of what sorts.
SORTING = {aten.sort.default: 1, aten.sort.stable: 1}
EQUAL = (aten.eq.Scalar, aten.eq.Tensor)
CHOOSING = aten.topk.default
ROWS_WITH_ANY = aten.any.dim
# Operators whose results have at most as many elements that are not zero as their operands together.
_COPYING = (aten._to_copy.default, aten.clone.default)
JOINING = (aten.bitwise_or.Tensor, aten.logical_or.default, aten.cat.default, *_COPYING)
DRAWING = (aten.rand.default, aten.uniform_.default)
DRAWING_NORMAL = (aten.randn.default, aten.normal_.default)
ZEROS = (aten.zeros_like.default, aten.zeros.default, aten.new_zeros.default)
WRITING = (aten.index_put_.default, aten.index_put.default)
_RARE = 20  # the exponent of what is not expected: e^-20 is 2 in a thousand million


class Chosen(NamedTuple):
    """Places that `topk` chose: rows of so many each, among `choices`."""

    rows: int
    each: int
    choices: int


class KnownCounts:
    """Counts of non-zero elements by storage key; keys: storages with any known count."""

    def __init__(self, key_of: Callable[[torch.Tensor], int]) -> None:
        self._key_of = key_of
        self.keys: set[int] = set()
        self.origins = Origins(key_of, self._key)
        # Numbers drawn evenly from 0 to 1, and normally around 0; how much of such is below a number.
        self._drawn: dict[int, Callable[[float], float]] = {}
        self._orders: dict[int, int] = {}  # orders, one after the other: how many places each has
        # Results of `nonzero`: the shape of what they list, and their rows and strides.
        self._places: dict[int, tuple[torch.Size, int, tuple[int, ...]]] = {}
        # Of masks made of these: how many elements are true at most.
        self.bounds: dict[int, tuple[torch.Size, int]] = {}
        self._at_least: dict[int, tuple[torch.Size, int]] = {}  # how many are true at least
        # Of masks of what equals a number: the compared storage and the number; of each compared storage: how
        # many were taken to equal which.
        self._equal: dict[int, tuple[torch.Size, int, Any]] = {}
        self._assumed_equal: dict[int, dict[Any, int]] = {}
        self._chosen: dict[int, Chosen] = {}
        # Of masks that decided a size: how many elements were taken to be true.
        self._supposed: dict[int, tuple[torch.Size, int]] = {}
        # Of device tensors that are copies of real host tensors too large to follow: how many elements are
        # not zero.
        self._not_zero: dict[int, tuple[torch.Size, int]] = {}

    def forget(self, key: int) -> None:
        """Forget a storage that died or was changed unpredictably."""
        self.keys.discard(key)
        self._not_zero.pop(key, None)
        self._drawn.pop(key, None)
        self._orders.pop(key, None)
        self._places.pop(key, None)
        self.bounds.pop(key, None)
        self._at_least.pop(key, None)
        self._equal.pop(key, None)
        self._assumed_equal.pop(key, None)
        self._chosen.pop(key, None)
        self._supposed.pop(key, None)
        self.origins.forget(key)

    def _key(self, tensor: torch.Tensor) -> int:
        key = self._key_of(tensor)
        self.keys.add(key)
        return key

    def at_most(self, mask: torch.Tensor) -> int | None:
        """Return an upper bound of a mask's true elements, None if unknown."""
        if mask.storage_offset():
            return None
        shape, most = self.bounds.get(self._key_of(mask), (None, 0))
        if shape is not None and _is_all_of(mask, shape):
            return most
        equal = self._equal_to(mask)
        if equal is None or not mask.numel():
            return None
        compared, number = equal
        assumed = self._assumed_equal.get(compared, {})
        rows, each, _ = self._chosen.get(compared, Chosen(mask.numel(), 1, 0))
        return assumed.get(number, max(min(rows, rows * each - sum(assumed.values())), 1))

    def most_results(self, call: DispatchedCall) -> int | None:
        """Return the most results of an operator whose size data decides; None if nothing bounds them."""
        return sizes.most(call, self.at_most, self.origins.different, self.origins.end)

    def _equal_to(self, mask: torch.Tensor) -> tuple[int, Any] | None:
        """Return the compared storage and the number it is compared with; None of any other mask."""
        shape, compared, number = self._equal.get(self._key_of(mask), (None, 0, 0))
        return (compared, number) if shape == mask.shape else None

    def chosen(self, places: torch.Tensor, choices: int, dimension: int) -> None:
        """Record that `topk` chose these places of a dimension of so many; places: of at least one
        dimension."""
        if places.numel() and places.is_contiguous() and dimension % places.dim() == places.dim() - 1:
            each = places.size(-1)
            self._chosen[self._key(places)] = Chosen(places.numel() // each, each, choices)

    def is_chosen(self, mask: torch.Tensor) -> bool:
        """Return whether a mask is of where a number equals chosen places, which are no fewer than what they
        are chosen from."""
        equal = self._equal_to(mask)
        if equal is None or equal[0] not in self._chosen:
            return False
        rows, each, choices = self._chosen[equal[0]]
        return bool(0 <= equal[1] < choices <= rows * each)

    def rows_with_any(self, mask: torch.Tensor, dimension: int, rows: torch.Tensor) -> None:
        """Record which rows of a mask of chosen places have one that equals the number: one each."""
        equal = self._equal_to(mask)
        if equal is None or equal[0] not in self._chosen or dimension % mask.dim() != mask.dim() - 1:
            return
        if self._chosen[equal[0]].each == mask.size(-1):
            self._equal[self._key(rows)] = rows.shape, *equal

    def suppose(self, mask: torch.Tensor, count: int) -> None:
        """Record that this many elements of a mask were assumed true."""
        if mask.dtype is torch.bool and mask.dim() and not mask.storage_offset():
            self._supposed[self._key(mask)] = mask.shape, count
        equal = self._equal_to(mask)
        if equal is not None and equal[0] in self.keys:
            self._assumed_equal.setdefault(equal[0], {})[equal[1]] = count

    def supposed(self, mask: torch.Tensor) -> torch.Tensor | None:
        """Return a host mask with as many true elements as this one was counted with, its first ones; None
        if nothing counted it."""
        if mask.storage_offset():
            return None
        shape, count = self._supposed.get(self._key_of(mask), (None, 0))
        if shape != mask.shape:
            return None
        return (torch.arange(mask.numel(), device="cpu") < count).view(mask.shape)

    def not_zero(self, tensor: torch.Tensor) -> int | None:
        """Return the number of non-zero elements, None if unknown."""
        shape, count = self._not_zero.get(self._key_of(tensor), (None, 0))
        return count if shape == tensor.shape else None

    def selects(self, mask: torch.Tensor, count: int) -> None:
        """Record how many elements of a mask are true."""
        self._not_zero[self._key(mask)] = mask.shape, count

    def copied(self, host: torch.Tensor, copy: torch.Tensor) -> None:
        """Count the non-zero elements of a host matrix or mask copied to the device, for later queries; not
        of 8-bit floats."""
        if host.is_floating_point() and host.element_size() == 1:
            return
        if (host.dim() == 2 or host.dtype is torch.bool) and host.numel() <= _MOST_COUNTED:
            self._not_zero[self._key(copy)] = copy.shape, _not_zero(host)

    def bounded(self, mask: torch.Tensor, most: int) -> None:
        """Record an upper bound of a mask's non-zero elements."""
        if not mask.storage_offset():
            self.bounds[self._key(mask)] = mask.shape, min(most, mask.numel())

    def drawn(self, numbers: torch.Tensor, *, normally: bool = False) -> None:
        """Record that these numbers were drawn evenly from 0 to 1, or normally."""
        if not numbers.storage_offset():
            self._drawn[self._key(numbers)] = _normal_below if normally else _evenly_below

    def share_below(self, drawn: torch.Tensor, number: float) -> float | None:
        """Return the share of drawn numbers that is below this one; None of others."""
        below = self._drawn.get(self._key_of(drawn))
        return None if below is None or math.isnan(number) else below(number)

    def compared(self, call: DispatchedCall, mask: torch.Tensor) -> None:
        """Record a mask of numbers, which may have been drawn."""
        drawn, number = call.argument("self"), call.argument("other")
        below = self.share_below(drawn, float(number))
        if below is not None and drawn.numel() == mask.numel():
            share, count = below if COMPARING[call.func] else 1 - below, mask.numel()
            self.bounds[self._key(mask)] = mask.shape, _seen_at_most(count, share)
            self._at_least[self._key(mask)] = mask.shape, count - _seen_at_most(count, 1 - share)

    @staticmethod
    def seen_at_most(count: int, share: float) -> int:
        """Return the most of `count` events of a probability that are seen."""
        return _seen_at_most(count, share)

    def at_least(self, mask: torch.Tensor) -> int | None:
        """Return a lower bound of a mask's true elements, None if unknown."""
        shape, least = self._at_least.get(self._key_of(mask), (None, 0))
        return least if shape is not None and _is_all_of(mask, shape) else None

    def sorted(self, order: torch.Tensor, dimension: int) -> None:
        """Record that a sort returned this order of each row."""
        if order.dim() and order.is_contiguous() and dimension % order.dim() == order.dim() - 1:
            self._orders[self._key(order)] = order.size(-1)

    def listed(self, elements: torch.Tensor, places: torch.Tensor) -> None:
        """Record that `places` lists where `elements` are not zero."""
        if places.dim() == 2 and not places.storage_offset():
            self._places[self._key(places)] = elements.shape, places.size(0), places.stride()

    def most_equal(self, call: DispatchedCall) -> int | None:
        """Bound how many rows of a list of places have one number in one column; None if the comparison is of
        anything else."""
        column, number = call.argument("self"), call.argument("other")
        shape, rows, strides = self._places.get(self._key_of(column), (torch.Size(), 0, (0, 0)))
        several = isinstance(number, torch.Tensor) and number.numel() != 1
        if several or rows < 2 or (tuple(column.shape), column.stride()) != ((rows,), strides[:1]):
            return None
        dimension, beside = divmod(column.storage_offset(), strides[1])
        if beside or dimension >= len(shape):
            return None
        most: int = math.prod((*shape[:dimension], *shape[dimension + 1 :]))
        return min(rows, most)

    def note_equal(self, call: DispatchedCall, mask: torch.Tensor) -> None:
        """Note a mask of where an order, or several, have one place, or anything else equals a number."""
        order, place = call.argument("self"), call.argument("other")
        places = self._orders.get(self._key_of(order), 0)
        is_whole = order.dim() > 0 and order.is_contiguous() and not order.storage_offset() % max(places, 1)
        if (
            places
            and is_whole
            and order.size(-1) == places
            and (not isinstance(place, torch.Tensor) or place.numel() == 1)
        ):
            self.bounds[self._key(mask)] = mask.shape, mask.numel() // places
        elif isinstance(place, (int, float)) and order.shape == mask.shape and not order.storage_offset():
            self._equal[self._key(mask)] = mask.shape, self._key(order), place


def rows(target: torch.Tensor, mask: torch.Tensor, values: torch.Tensor) -> int | None:
    """Return how many rows are written through a mask; None where one row is written to all."""
    one_a_row = values.dim() == target.dim() - mask.dim() + 1 and values.size(0) != 1
    return values.size(0) if one_a_row else None


def _seen_at_most(count: int, share: float) -> int:
    """Return the most of `count` events of probability `share`, but for one case in e^20."""
    spread = count * share * (1 - share)
    beyond = _RARE / 3 + math.sqrt((_RARE / 3) ** 2 + 2 * _RARE * spread)
    return min(count, math.ceil(count * share + beyond))


def _is_all_of(view: torch.Tensor, shape: torch.Size) -> bool:
    """Return whether a tensor has each element of one of this shape once: itself, turned or reshaped."""
    repeats = any(size > 1 and not stride for size, stride in zip(view.shape, view.stride(), strict=True))
    return not view.storage_offset() and not repeats and view.numel() == shape.numel()


def _evenly_below(number: float) -> float:
    return min(max(number, 0.0), 1.0)


def _normal_below(number: float) -> float:
    return math.erfc(-number / math.sqrt(2)) / 2


def _not_zero(tensor: torch.Tensor) -> int:
    """Count the non-zero elements; an expanded dimension is read once."""
    repeats = 1
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor, repeats = tensor.narrow(dimension, 0, 1), repeats * size
    return int(tensor.count_nonzero()) * repeats
