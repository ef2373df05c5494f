"""Values that decide sizes: integers and truth values, and numbers as far as the budget goes, computed beside
on the CPU.

Tensors on the device have no values, yet Python asks for some (`if mask.all():`, `range(lengths.max())`). An
operator whose every input is known also runs on ordinary CPU memory.

1. A tensor is known while its engine's store holds its value (`store.py`).
2. An operator with an unknown input makes unknown results, and makes what it writes to unknown, unless that
   is all it would read.
3. Where a result's size depends on values (`nonzero`, boolean indices, `masked_select`), it is known with
   them: also how many different values there are (`unique`), and up to which they go (`bincount`). How many
   elements are not zero may be known without them (`counts.py`).
4. Uninitialised results are unknown, and so are those of operators a CPU does not have, and random numbers,
   unless the engine has a generator for them.
5. One known operand may decide: true "or" anything is true, and zero "and" anything zero. That ends a
   generation at its longest length, whatever the tokens are. Of a tensor whose elements are all the same (the
   graph each node of a single graph belongs to), so is everything that is taken, wherever from. Of a tensor
   that integers are made like (`new_zeros`), nothing but its type and shape matters; one of a few integers
   that is left empty (`new_empty`) is written in parts, all of which may be known: it is zeros until then.
6. The numbers of a whole program are followed, as a CPU computes them, while that is little work
   (`budget.py`). A tensor that is left empty is zeros until it is written.
7. A value computed from a stand-in is one, too; an operand that is none decides before it.

Not modelled: values beyond the budget.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from . import branches
from .budget import LIMIT, SCATTERED_ELEMENTS, Budget, is_number
from .calls import DispatchedCall, places
from .counts import (
    CHOOSING,
    COMPARING,
    DRAWING,
    DRAWING_NORMAL,
    EQUAL,
    JOINING,
    ROWS_WITH_ANY,
    SORTING,
    WRITING,
    ZEROS,
    KnownCounts,
)
from .distinct import distinct
from .loaded import Loaded
from .origins import MEETING, NO_END
from .sizes import is_mask
from .store import Store
from .zeroing import most_left

aten = torch.ops.aten
_SMALL_EMPTY = 1 << 12
_MOSTLY_ZEROS = 4  # times as many elements as are not zero
# Logical operators, and the operand that decides their result.
_ABSORBING = {
    aten.bitwise_or.Tensor: True,
    aten.logical_or.default: True,
    aten.bitwise_and.Tensor: False,
    aten.logical_and.default: False,
    aten.mul.Tensor: False,
}
_ANY = aten.any.default
_TAKING = (aten.index.Tensor, aten.index_select.default, aten.gather.default)
# Tensors made like another one, whose values do not matter, and their own value, or the argument that says
# it.
_LIKE = {
    aten.new_zeros.default: 0,
    aten.zeros_like.default: 0,
    aten.new_ones.default: 1,
    aten.ones_like.default: 1,
    aten.new_full.default: "fill_value",
    aten.full_like.default: "fill_value",
}
_EMPTY_LIKE = (aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default)
_LEFT_EMPTY = frozenset((aten.empty.memory_format, aten.empty_strided.default, *_EMPTY_LIKE))
# Operators that read nothing of what they write to; so do those with `out=`.
_DRAWING = "normal_ uniform_ random_ bernoulli_ exponential_ geometric_ log_normal_ cauchy_"
_WRITERS = frozenset(("copy_", "fill_", "zero_", *_DRAWING.split()))
# Operators whose result one known operand may decide, and those that need none that is known.
DECIDING = frozenset({_ANY, ROWS_WITH_ANY, *_ABSORBING, *_TAKING, *COMPARING, *EQUAL, *MEETING})
FROM_NOTHING = frozenset(
    {*SORTING, CHOOSING, aten.nonzero.default, aten._to_copy.default, aten.copy_.default, *_LEFT_EMPTY}
) | frozenset(_LIKE)


class KnownValues:
    """Known values of a process's tensors. note: tells the user what is assumed. generator: draws as the
    device; None: what is drawn is unknown."""

    def __init__(
        self,
        store: Store,
        note: Callable[[str], None],
        budget: Budget | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.store, self.budget = store, budget or Budget()
        self.counts = KnownCounts(store.key)
        # An operator is done by what stands in for it: what that leaves empty nobody has computed.
        self.standing_in = False
        self._note, self._generator = note, generator
        self._numbers: set[int] = set()  # storages of the program's numbers, or of what was made of them
        self.scattered: set[int] = set()  # storages of numbers among many zeros, larger than others may be
        self._loaded = Loaded()

    # -- what is known

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor's value on the CPU; None if it is unknown or too large."""
        most = self.most(tensor) if self.scattered else self.budget.most(tensor)
        return self.store.get(tensor) if tensor.numel() <= most else None

    def most(self, tensor: torch.Tensor) -> int:
        """Elements of the largest tensor like this one that is followed."""
        scattered = self.scattered and self.store.key(tensor) in self.scattered
        return SCATTERED_ELEMENTS if scattered else self.budget.most(tensor)

    def scatter(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor of numbers, most of which are zero, can be known although it is larger than
        others may be; its value is about to be stored."""
        if tensor.numel() <= self.budget.most(tensor):
            return True
        if not self.budget.takes_scattered([tensor]):
            return False
        self.scattered.add(self.store.key(tensor))
        return True

    def sure(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the tensor's value unless it is assumed."""
        return None if self.store.stands_in(tensor) else self.store.get(tensor)

    def note_decision(self, tensor: torch.Tensor) -> bool:
        """Record that the program decides by this value; return whether it depends on numbers."""
        if self.budget.effort is None or self.store.key(tensor) not in self._numbers:
            return False
        self.budget.effort.note_decision()
        return True

    def forget(self, key: int, nbytes: int = 0) -> None:
        """Forget a storage that died or was changed unpredictably."""
        self.store.drop(key, nbytes)
        self.renewed(key)

    def renewed(self, key: int) -> None:
        """Forget the counts of a storage that is written to, or new at a used address."""
        if key in self.counts.keys:
            self.counts.forget(key)
        self._numbers.discard(key)
        if self.scattered:
            self.scattered.discard(key)
        if self._loaded.values:
            self._loaded.forget(key)
        if self.budget.effort is not None:
            self.budget.effort.forget(key)

    def not_zero(self, tensor: torch.Tensor) -> int | None:
        """Return the number of non-zero elements, None if unknown."""
        value = self.sure(tensor)
        return self.counts.not_zero(tensor) if value is None else int(value.count_nonzero())

    def selects(self, mask: torch.Tensor, count: int) -> None:
        """Record how many elements of a mask are true: as many rows are written through it."""
        if self.not_zero(mask) is None:
            self.counts.selects(mask, count)

    def most_not_zero(self, call: DispatchedCall) -> int | None:
        """Bound a mask's non-zero elements after an operator; None if unknown."""
        func, args, kwargs = call
        if func in ZEROS:
            like: Any = kwargs.get("dtype") or getattr(args[0], "dtype", torch.float32)
            return None if like.is_floating_point or like.is_complex else 0
        if func in WRITING:
            mask, at, *_ = args
            if any(map(is_mask, at)):
                return most_left(call, self.counts, self._not_zero_at_most)
            if mask.is_floating_point() or not all(isinstance(place, torch.Tensor) for place in at):
                return None
            before = self._not_zero_at_most(mask)
            written = math.prod(torch.broadcast_shapes(*(place.shape for place in at)))
            return None if before is None else min(before + written, mask.numel())
        if func in EQUAL and self.counts.keys:
            return self.counts.most_equal(call)
        if func in JOINING and self.counts.keys:
            parts = args[0] if func is aten.cat.default else args[:2]
            masks = [part for part in parts if isinstance(part, torch.Tensor)]
            if any(self.counts.at_most(mask) is not None for mask in masks):
                counts = [self._not_zero_at_most(mask) for mask in masks]
                return None if None in counts else sum(filter(None, counts))
        return most_left(call, self.counts, self._not_zero_at_most)

    def relate(self, call: DispatchedCall, most: int | None, result: torch.Tensor) -> None:
        """Record an upper bound of the non-zero elements an operator made or wrote."""
        if call.func in DRAWING and (
            call.func is aten.rand.default or (call.argument("from", 0), call.argument("to", 1)) == (0, 1)
        ):
            self.counts.drawn(result)
        elif call.func in DRAWING_NORMAL and (
            call.func is aten.randn.default or (call.argument("mean", 0), call.argument("std", 1)) == (0, 1)
        ):
            self.counts.drawn(result, normally=True)
        elif call.func is aten.nonzero.default:
            self.counts.listed(call.argument("self"), result)
        elif most is not None and self.sure(result) is None:
            self.counts.bounded(result, most)
        self.counts.origins.note(call, result)

    def _not_zero_at_most(self, mask: torch.Tensor) -> int | None:
        value = self.sure(mask)
        return self.counts.at_most(mask) if value is None else int(value.count_nonzero())

    # -- what is computed

    def operands(
        self, func: Any, tensors: list[torch.Tensor], written: list[torch.Tensor]
    ) -> dict[int, torch.Tensor] | None:
        """Return an operator's input values by identity; None if one is unknown. Call before it runs."""
        on_host_values = {}
        unread = set() if self.store.by_storage else _overwritten(func, written)
        for tensor in tensors:
            value = self.value(tensor)
            if value is None and id(tensor) in unread and tensor.numel() <= self.budget.most(tensor):
                value = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            if value is None:
                return None
            on_host_values[id(tensor)] = value
        return on_host_values

    def follow(
        self,
        call: DispatchedCall,
        tensors: list[torch.Tensor],
        results: list[torch.Tensor],
        written: list[torch.Tensor],
        values: Mapping[int, torch.Tensor] | None,
    ) -> list[torch.Tensor] | None:
        """Run an operator on the CPU as well, if every input is known and the results are worth knowing; the
        tensors whose values are known now, None where nothing is. values: its `operands`."""
        if self.store.by_storage and torch.Tag.inplace_view in call.func.tags:
            return []  # no values change: the tensor is another view of its storage, or of another one
        computed = self._run(call, tensors, results, written, values)
        if computed is None and call.func is aten._to_copy.default:
            source = call.argument("self")
            if source.device.type == "cpu":
                self.counts.copied(source, results[0])
                if self._copies_scattered(source, results[0]):
                    return results
                if self.store.by_storage and self.budget.effort is not None:
                    self._loaded.keep(self.store.key(results[0]), source, results[0])
        return computed

    def load(self, tensor: torch.Tensor) -> None:
        """Make a copy of a large host tensor known after all: a sparse tensor consists of it, or meets it."""
        if (value := self._loaded.of(self.store.key(tensor), tensor)) is not None:
            self.store.put(tensor, value, False)

    def load_beside(self, tensors: list[torch.Tensor]) -> None:
        """Make large copies of the host's known that an operator reads beside a sparse tensor's numbers."""
        if self._loaded.values and self._meets_scattered(tensors):
            for tensor in tensors:
                self.load(tensor)

    def _meets_scattered(self, tensors: list[torch.Tensor]) -> bool:
        keys = [self.store.key(tensor) for tensor in tensors if tensor.numel()]
        return not self.scattered.isdisjoint(keys)

    def _copies_scattered(self, host: torch.Tensor, copy: torch.Tensor) -> bool:
        """Keep the value of a copy of a host matrix that is mostly zeros; return whether it is one."""
        count = self.counts.not_zero(copy) if is_number(copy) and host.dtype is copy.dtype else None
        if count is None or count * _MOSTLY_ZEROS > copy.numel() or not self.scatter(copy):
            return False
        self.store.put(copy, host.clone(), False)
        return True

    def _run(
        self,
        call: DispatchedCall,
        tensors: list[torch.Tensor],
        results: list[torch.Tensor],
        written: list[torch.Tensor],
        values: Mapping[int, torch.Tensor] | None,
    ) -> list[torch.Tensor] | None:
        """Compute results on the CPU within the budget; return the tensors now known, None if none is."""
        func = call.func
        if func in _LEFT_EMPTY:
            return results if results and self._empty(call, results[0]) else None
        if func in SORTING:
            self.counts.sorted(results[SORTING[func]], call.argument("dim", -1))
        if func is CHOOSING:
            dimension = call.argument("dim", -1)
            if results[1].dim():
                self.counts.chosen(results[1], call.argument("self").size(dimension), dimension)
        name = call.name.partition("::")[2]
        drawn = torch.Tag.nondeterministic_seeded in func.tags
        if name.startswith(("empty", "new_empty")) or (drawn and self._generator is None):
            return None
        if func.namespace == "_c10d_functional" and name != "wait_tensor":
            return None  # other ranks have a part in it
        scattered = self.scattered and values is not None and self._meets_scattered(tensors)
        if not scattered and any(result.numel() > self.budget.most(result) for result in results):
            return None
        unread = _overwritten(func, written)
        stands_in = any(self.store.stands_in(tensor) for tensor in tensors if id(tensor) not in unread)
        if values is None or stands_in:
            decided = self._decided(call, tensors, results)
            if decided or values is None:
                return results if decided else None
        numbers = drawn or self._made_of_numbers(tensors, results)
        if scattered:
            if not (func.is_view or self.budget.takes_scattered([*tensors, *results])):
                return None
            larger = (result for result in results if result.numel() > self.budget.most(result))
            self.scattered.update(map(self.store.key, larger))
        elif not self.budget.is_room([*tensors, *results]) or (
            numbers and not self._affordable(call, tensors, results)
        ):
            return None
        returned = computed(call, values, self._generator if drawn else None)
        if returned is None or len(returned) != len(results):
            return None
        changed = set(map(id, written))
        pairs = [pair for pair in zip(results, returned, strict=True) if id(pair[0]) not in changed]
        if not self.store.by_storage:  # else the values are the store's own, which have been written to
            pairs += [(tensor, values[id(tensor)]) for tensor in written]
        pairs = [(tensor, value) for tensor, value in pairs if value.shape == tensor.shape]
        for tensor, value in pairs:
            self.store.put(tensor, value, stands_in)
        if numbers:
            self._numbers.update(self.store.key(tensor) for tensor in (*results, *written))
        return [tensor for tensor, _ in pairs]

    def _made_of_numbers(self, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
        """Return whether operands or results are floating-point, or made of such values or drawn ones."""
        return self.budget.effort is not None and any(
            tensor.is_floating_point() or self.store.key(tensor) in self._numbers
            for tensor in (*tensors, *results)
        )

    def _affordable(
        self, call: DispatchedCall, tensors: list[torch.Tensor], results: list[torch.Tensor]
    ) -> bool:
        """Return whether to follow an operator among numbers; else large ones are dropped."""
        effort = self.budget.effort
        assert effort is not None
        for result in results:
            effort.keep(self.store.key(result), result)
        if effort.spend(call, tensors, results):
            return True
        if not effort.paused and self.store.by_storage:  # elsewhere other tensors may lie there now
            for key, nbytes in effort.kept.items():
                self.store.drop(key, nbytes)
        return all(tensor.numel() <= self.budget.most(tensor) for tensor in (*tensors, *results))

    def _empty(self, call: DispatchedCall, result: torch.Tensor) -> bool:
        """Make an uninitialised tensor zeros if affordable; return whether it is known now."""
        if not self.store.by_storage:
            return False
        small = call.func is aten.new_empty.default and result.numel() <= _SMALL_EMPTY
        if small and self._filled_with(result, 0):
            return True
        effort = self.budget.effort
        if effort is None or not effort.lasts or not result.is_floating_point() or self.standing_in:
            return False
        if result.numel() > effort.most or not self._affordable(call, [], [result]):
            return False
        self.store.put(result, torch.zeros(result.shape, dtype=result.dtype, device="cpu"), False)
        self._numbers.add(self.store.key(result))
        return True

    # -- what one operand decides

    def _decided(
        self, call: DispatchedCall, tensors: list[torch.Tensor], results: list[torch.Tensor]
    ) -> bool:
        """Return whether the result is known though not all operands are: one of them decides, or none
        does."""
        func = call.func
        if func in MEETING and (answer := self.counts.origins.meets(call)) is not None:
            self._note(NO_END)
            return self._filled_with(results[0], answer)
        if func in COMPARING or func in EQUAL:
            looks = self.counts.compared if func in COMPARING else self.counts.note_equal
            looks(call, results[0])
            return False
        if func in _TAKING and results:
            return self._all_the_same(tensors[0], results[0])
        if func in _LIKE:
            value = _LIKE[func]
            number = call.argument(value) if isinstance(value, str) else value
            return bool(results) and self._filled_with(results[0], number)
        if len(results) != 1:
            return False
        if func is ROWS_WITH_ANY:
            self.counts.rows_with_any(tensors[0], call.argument("dim"), results[0])
            return False
        assumed = branches.any_true() if func is _ANY else None
        if func is _ANY and assumed is None and self.counts.is_chosen(tensors[0]):
            assumed = (
                True,
                "each of what rows choose from (a mixture's experts) is taken to be chosen by one",
            )
        if assumed is not None:
            self._note(assumed[1])
            return self._filled_with(results[0], assumed[0])
        decisive = _ABSORBING.get(func)
        if decisive is None:
            return False
        for tensor in tensors:
            value = self.sure(tensor) if tensor.numel() in (1, results[0].numel()) else None
            if value is None or (decisive and value.dtype is not torch.bool):
                continue
            if bool((value.all() if decisive else ~value.any()).item()):
                return self._filled_with(results[0], int(decisive))
        return False

    def _all_the_same(self, tensor: torch.Tensor, result: torch.Tensor) -> bool:
        """Return whether elements taken of a tensor are known, because all are equal."""
        if not 0 < tensor.numel() <= LIMIT or is_number(result) or (value := self.sure(tensor)) is None:
            return False
        first = value.flatten()[0]
        return bool((value == first).all()) and self._filled_with(result, first.item())

    def _filled_with(self, result: torch.Tensor, value: Any) -> bool:
        """Store one value for all integers of a result; return whether that applies."""
        if is_number(result):
            return False
        self.store.put(result, torch.full(result.shape, value, dtype=result.dtype, device="cpu"), False)
        return True


def computed(
    call: DispatchedCall, values: Mapping[int, torch.Tensor], generator: torch.Generator | None
) -> list[torch.Tensor] | None:
    """Run the operator on the CPU and return its results; None if the CPU has no such kernel for the type."""
    func, args, kwargs = call
    named = {name: on_host(value, values) for name, value in kwargs.items() if name != "pin_memory"}
    if "device" in named or func is aten._to_copy.default:
        named["device"] = torch.device("cpu")
    try:
        if generator is None:
            result = distinct(func, *on_host(args, values), **named)
        elif "generator" in places(func):
            result = func(*on_host(args, values), **{**named, "generator": generator})
        else:  # it draws from the program's own generator, which must not notice
            before = torch.get_rng_state()
            torch.set_rng_state(generator.get_state())
            try:
                result = func(*on_host(args, values), **named)
            finally:
                generator.set_state(torch.get_rng_state())
                torch.set_rng_state(before)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    returned = result if isinstance(result, (tuple, list)) else (result,)
    return [value for value in returned if isinstance(value, torch.Tensor)]


def on_host(value: Any, values: Mapping[int, torch.Tensor]) -> Any:
    """Return an argument with known values in place of device tensors. (A nested function would be a cycle
    that keeps them.)"""
    if isinstance(value, torch.Tensor):
        return values.get(id(value), value)
    if type(value) in (list, tuple):
        return type(value)(on_host(item, values) for item in value)
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _overwritten(func: Any, written: list[torch.Tensor]) -> set[int]:
    """Identities of the tensors that an operator writes to without reading them."""
    return set(map(id, written)) if written and _only_writes(func) else set()


@functools.cache
def _only_writes(func: Any) -> bool:
    """Return whether an operator reads nothing of what it writes to."""
    base, _, overload = func.name().partition("::")[2].partition(".")
    return base in _WRITERS or "out" in overload.split("_")
