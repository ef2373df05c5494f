"""Values of small tensors a model computes from nothing but constants: positions, masks, flags.

Meta tensors have no values, yet Python asks for some (`if mask.all():`, `range(lengths.max())`). For tensors
of modest size whose every input is known, the operator also runs on ordinary CPU memory, aliased the same
way, so that in-place changes and views stay right.

1. A storage is known while a CPU twin of it exists here.
2. An operator with an unknown input makes unknown results, and makes a known storage it writes unknown.
3. Where a result's size depends on values (`nonzero`, boolean indices, `masked_select`), it is known with
   them.
4. Random and uninitialised results are unknown, and so are those of operators a CPU does not have.
5. One known operand may decide: true "or" anything is true, and zero "and" anything zero. That ends a
   generation at its longest length, whatever the tokens are. Of a tensor whose elements are all the same (the
   graph each node of a single graph belongs to), so is everything that is taken, wherever from. Of a tensor
   that integers are made like (`new_zeros`), nothing but its type and shape matters; one of a few integers
   that is left empty (`new_empty`) is written in parts, all of which may be known: it is zeros until then.
6. A whole program brings real data with it, whose values would be followed through every layer. They are, as
   a CPU computes them, while that is little work (`effort.py`): an adaptive solver's steps are those of its
   numbers. A tensor that is left empty is zeros until it is written. Afterwards only small floating-point
   tensors are known, for schedules and counters.
7. How many different values there are (`unique`), and up to which they go (`bincount`), is known of what is
   known. How many elements are not zero may be known without them (`known_counts.py`).
8. Integers and truth values made of small ones may be larger than `LIMIT` (a mask of all pairs, or triplets,
   of labels), up to `LARGE_BYTES` each, until `LARGE_WORK` bytes of such were read and written.

Not modelled: what is larger; numbers drawn on the GPU.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._pytree import tree_map

from analyzer.capture.pytorch.recording.calls import DispatchedCall, places
from analyzer.capture.pytorch.values.effort import Effort
from analyzer.capture.pytorch.values.known_counts import (
    COMPARING,
    EQUAL,
    JOINING,
    SORTING,
    WRITING,
    ZEROS,
    KnownCounts,
)
from analyzer.capture.pytorch.values.unknown_sizes import is_mask
from analyzer.capture.pytorch.values.unknown_sizes import result as of_size

aten = torch.ops.aten
LIMIT = 1 << 20
LARGE_BYTES = 1 << 27
LARGE_WORK = 1 << 31
_UNKNOWABLE = ("empty", "rand", "bernoulli", "multinomial", "normal", "uniform", "exponential", "new_empty")
_SMALL_EMPTY = 1 << 12
# Logical operators, and the operand that decides their result.
_ABSORBING = {
    aten.bitwise_or.Tensor: True,
    aten.logical_or.default: True,
    aten.bitwise_and.Tensor: False,
    aten.logical_and.default: False,
}
_TAKING = (aten.index.Tensor, aten.index_select.default, aten.gather.default)
_COUNTING = (
    aten.unique_consecutive.default, aten._unique2.default, aten._unique.default, aten.unique_dim.default,
    aten.unique_dim_consecutive.default,
    aten.bincount.default,
)  # fmt: skip
# Tensors made like another one, whose values do not matter, and their own value, or the argument that says
# it.
_LIKE = {
    aten.new_zeros.default: 0, aten.zeros_like.default: 0, aten.new_ones.default: 1,
    aten.ones_like.default: 1,
    aten.new_full.default: "fill_value", aten.full_like.default: "fill_value",
}  # fmt: skip
_LEFT_EMPTY = frozenset(
    {aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default,
     aten.new_empty_strided.default}
)  # fmt: skip
# Operators whose result one known operand may decide, and those that need none that is known.
DECIDING = frozenset({*_ABSORBING, *_TAKING, *COMPARING, *EQUAL})
FROM_NOTHING = frozenset({*SORTING, aten._to_copy.default, aten.copy_.default, *_LEFT_EMPTY, *_LIKE})


class KnownValues:
    """CPU twins by storage key. effort: how far the numbers of a whole program are followed."""

    def __init__(self) -> None:
        self.effort: Effort | None = None
        self.standing_in = (
            False  # an operator is done by what stands in for it: what that leaves empty nobody has computed
        )
        self.counts = KnownCounts()
        self._large_left = LARGE_WORK
        self._numbers: set[int] = set()  # twins that hold numbers of the program's, or what was made of them
        self._twins: dict[int, torch.UntypedStorage] = {}

    def __bool__(self) -> bool:
        return bool(self._twins or self.counts.keys)

    def _most(self, tensor: torch.Tensor) -> int:
        """Elements of the largest tensor of this type that is followed."""
        if self.effort is not None and tensor.is_floating_point():
            return self.effort.most
        if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() <= LIMIT:
            return LIMIT
        return max(LIMIT, min(LARGE_BYTES, self._large_left) // tensor.element_size())

    def _is_room(self, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
        """Whether an operator among large tensors is followed, and its part of the work spent. Copies of the
        host's are not: what a program loads is seldom asked for its values."""
        large = [
            tensor
            for tensor in (*tensors, *results)
            if tensor.numel() > LIMIT and not tensor.is_floating_point()
        ]
        if not large:
            return True
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in large)
        if nbytes > self._large_left or any(tensor.device.type == "cpu" for tensor in large):
            return False
        self._large_left -= nbytes
        return True

    def asked(self, tensor: torch.Tensor) -> bool:
        """The program decides something by this value; whether numbers of its own have a part in it."""
        if self.effort is None or tensor.untyped_storage()._cdata not in self._numbers:
            return False
        self.effort.asked()
        return True

    def generating(self, now: bool) -> None:
        """Whether the program generates now."""
        if self.effort is not None:
            self.effort.paused = now

    def lacks(self, tensors: list[torch.Tensor]) -> bool:
        """Whether the value of any of these is unknown."""
        twins = self._twins
        return any(tensor.is_meta and tensor.untyped_storage()._cdata not in twins for tensor in tensors)

    def forget(self, key: int) -> None:
        """The storage is dead or changed by something unknown."""
        self._twins.pop(key, None)
        if key in self.counts.keys:
            self.counts.forget(key)
        self._numbers.discard(key)
        if self.effort is not None:
            self.effort.forget(key)

    def _count(self, tensor: torch.Tensor) -> int | None:
        """How many elements are not zero, if that is known."""
        twin = self.twin(tensor)
        if twin is not None:
            return int(twin.count_nonzero())
        return self.counts.not_zero(tensor)

    def selects(self, mask: torch.Tensor, count: int) -> None:
        """So many elements of a mask are true: as many rows are written where it is."""
        if self._count(mask) is None:
            self.counts.selects(mask, count)

    def resized(self, key: int, nbytes: int) -> None:
        """The storage has another size: what it held stays if it has grown, and zeros stand behind."""
        twin = self._twins.get(key)
        if twin is None or not 0 < twin.nbytes() < nbytes <= LIMIT:
            self.forget(key)
            return
        grown = torch.zeros(nbytes, dtype=torch.uint8, device="cpu")
        grown[: twin.nbytes()] = torch.empty(0, dtype=torch.uint8, device="cpu").set_(twin)
        self._twins[key] = grown.untyped_storage()

    def twin(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The tensor's value, or None."""
        if tensor.device.type != "meta":
            return tensor
        storage = self._twins.get(tensor.untyped_storage()._cdata)
        if storage is None:
            return None
        twin = torch.empty(0, dtype=tensor.dtype, device="cpu")
        return twin.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def learn(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """`tensor` (meta) has this value; strides must agree."""
        self._twins[tensor.untyped_storage()._cdata] = value.untyped_storage()

    def overwritten(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """All of `target` is about to be written with `source`: nothing unknown stays in it, if that is
        known."""
        if target.numel() <= self._most(target) and _whole(target) and self.twin(source) is not None:
            self._twins[target.untyped_storage()._cdata] = torch.empty_like(
                target, device="cpu"
            ).untyped_storage()

    def filled(self, parts: list[torch.Tensor]) -> None:
        """All of these are about to be written with known values: their storage is known, if they are all
        there is of it."""
        storage = parts[0].untyped_storage()
        nbytes = sum(part.numel() * part.element_size() for part in parts)
        one = all(part.untyped_storage()._cdata == storage._cdata for part in parts)
        if one and nbytes == storage.nbytes() and storage._cdata not in self._twins and nbytes <= LIMIT:
            self._twins[storage._cdata] = torch.UntypedStorage(nbytes)

    def sized(self, call: DispatchedCall) -> Any:
        """Where a size depends on values: the results as meta tensors of the right size, or None where that
        is not known."""
        func = call.func
        if func is aten.nonzero.default:
            source = call.argument("self")
            count = self._count(source)
            if count is None:
                return None
            return torch.empty((count, source.dim()), dtype=torch.long, device="meta")
        if func is aten.repeat_interleave.Tensor:
            twin = self.twin(call.argument("repeats"))
            return None if twin is None else torch.empty(int(twin.sum()), dtype=torch.long, device="meta")
        if func is aten.masked_select.default:
            source, twin = call.argument("self"), self.twin(call.argument("mask"))
            if twin is None:
                return None
            count = int(twin.expand(torch.broadcast_shapes(twin.shape, source.shape)).count_nonzero())
            return torch.empty(count, dtype=source.dtype, device="meta")
        if func in _COUNTING:
            return self._counting(call)
        if func is not aten.index.Tensor:
            return None
        indices: list[Any] = []
        for index in call.argument("indices"):
            if not is_mask(index):
                indices.append(index)
                continue
            count = self._count(index)
            if count is None:
                return None
            indices += [torch.empty(count, dtype=torch.long, device="meta") for _ in range(index.dim())]
        return func(call.argument("self"), indices)

    def _counting(self, call: DispatchedCall) -> Any:
        """Results with one entry for each value that is there, or for each up to the largest: it is found
        which there are."""
        func, (source, *others), kwargs = call
        twin = self.twin(source)
        if twin is None:
            return None
        found = func(
            twin, *(None if isinstance(value, torch.Tensor) else value for value in others), **kwargs
        )
        values = found[0] if isinstance(found, tuple) else found
        dim = call.argument("dim") if "dim" in places(func) else None
        return of_size(call, values.size(dim or 0))

    def follow(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        tensors: list[torch.Tensor],
        results: list[torch.Tensor],
        written: list[torch.Tensor],
    ) -> None:
        """Run `func` on the twins as well, if every input is known and the results are worth knowing."""
        name = func._schema.name.partition("::")[2]
        if torch.Tag.inplace_view in func.tags:
            return  # no values change: the tensor is another view of its storage, or of another one
        known = self._run(func, name, args, kwargs, tensors, results, written)
        if not known and func is aten._to_copy.default:
            source = DispatchedCall(func, args, kwargs).argument("self")
            if source.device.type == "cpu":
                self.counts.copied(source, results[0])
                return
        if not known and func._schema.is_mutable:  # what was written is no longer what it was
            for changed in written or results:
                self.forget(changed.untyped_storage()._cdata)

    def most_not_zero(self, func: Any, args: Any, kwargs: Any) -> int | None:
        """How many elements of a mask that is made or written to by an operator are not zero at most; None
        where what it is made of does not tell."""
        if func in ZEROS:
            like = kwargs.get("dtype") or getattr(args[0], "dtype", torch.float32)
            return None if like.is_floating_point or like.is_complex else 0
        if func in WRITING:
            mask, places, *_ = args
            if mask.is_floating_point() or not all(
                isinstance(place, torch.Tensor) and not is_mask(place) for place in places
            ):
                return None
            before = self._not_zero_at_most(mask)
            written = math.prod(torch.broadcast_shapes(*(place.shape for place in places)))
            return None if before is None else min(before + written, mask.numel())
        if func in JOINING and self.counts.keys:
            parts = args[0] if func is aten.cat.default else args[:2]
            masks = [part for part in parts if isinstance(part, torch.Tensor)]
            if any(self.counts.at_most(mask) is not None for mask in masks):
                found = [self._not_zero_at_most(mask) for mask in masks]
                return None if None in found else sum(filter(None, found))
        return None

    def _not_zero_at_most(self, mask: torch.Tensor) -> int | None:
        twin = self.twin(mask)
        return self.counts.at_most(mask) if twin is None else int(twin.count_nonzero())

    def _run(
        self,
        func: Any,
        name: str,
        args: Any,
        kwargs: Any,
        tensors: list[torch.Tensor],
        results: list[torch.Tensor],
        written: list[torch.Tensor],
    ) -> bool:
        """Whether the results could be made known."""
        if func in _LEFT_EMPTY:
            return bool(results) and self._empty(func, args, results[0])
        if func is aten.rand.default and results:
            self.counts.drawn(results[0])
        if func in SORTING:
            dim = DispatchedCall(func, args, kwargs).argument("dim", -1)
            self.counts.sorted(results[SORTING[func]], dim)
        if name.startswith(_UNKNOWABLE) or torch.Tag.nondeterministic_seeded in func.tags:
            return False
        if func.namespace == "_c10d_functional" and name != "wait_tensor":
            return False  # other ranks have a part in it
        if any(result.numel() > self._most(result) for result in results):
            return False
        twins: dict[int, torch.Tensor] = {}
        for tensor in tensors:
            twin = self.twin(tensor)
            if twin is None or tensor.numel() > self._most(tensor):
                return self._decided(func, args, tensors, results)
            twins[id(tensor)] = twin
        if not self._is_room(tensors, results):
            return False
        numbers = self._made_of_numbers(tensors, results)
        if numbers and not self._affordable(func, args, tensors, results):
            return False

        def on_cpu(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return twins[id(value)]
            return torch.device("cpu") if isinstance(value, torch.device) else value

        cpu_kwargs = {
            key: tree_map(on_cpu, value) if key != "device" else torch.device("cpu")
            for key, value in kwargs.items()
        }
        try:
            value = func(*tree_map(on_cpu, args), **cpu_kwargs)
        except RuntimeError:  # there is no such kernel on a CPU, or not for this type
            return False
        values = [
            v
            for v in (value if isinstance(value, (tuple, list)) else (value,))
            if isinstance(v, torch.Tensor)
        ]
        if len(values) != len(results):
            return False
        for result, twin in zip(results, values, strict=True):
            key = result.untyped_storage()._cdata
            if key in self._twins or twin.shape != result.shape:
                continue
            if twin.stride() != result.stride() or twin.storage_offset() != result.storage_offset():
                same = torch.empty_strided(
                    result.shape, result.stride(), dtype=result.dtype, device="cpu"
                ).copy_(twin)
                self._twins[key] = same.untyped_storage()
            else:
                self._twins[key] = twin.untyped_storage()
        if numbers:
            self._numbers.update(tensor.untyped_storage()._cdata for tensor in (*results, *written))
        return True

    def _made_of_numbers(self, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
        """Whether numbers of the program's have a part in it."""
        return self.effort is not None and any(
            tensor.is_floating_point() or tensor.untyped_storage()._cdata in self._numbers
            for tensor in (*tensors, *results)
        )

    def _affordable(
        self, func: Any, args: Any, tensors: list[torch.Tensor], results: list[torch.Tensor]
    ) -> bool:
        """Whether an operator among numbers is followed; if not, large tensors of them are forgotten for
        good."""
        assert self.effort is not None
        for result in results:
            self.effort.keep(result)
        if self.effort.spend(func, args, tensors, results):
            return True
        if not self.effort.paused:
            for key in self.effort.kept:
                self._twins.pop(key, None)
        return all(tensor.numel() <= self._most(tensor) for tensor in (*tensors, *results))

    def _empty(self, func: Any, args: Any, made: torch.Tensor) -> bool:
        """Whether what is left empty can be zeros until it is written."""
        if func is aten.new_empty.default and made.numel() <= _SMALL_EMPTY and self._filled_with(made, 0):
            return True
        if self.effort is None or not self.effort.lasts or not made.is_floating_point() or self.standing_in:
            return False
        if made.numel() > self._most(made) or not self._affordable(func, args, [], [made]):
            return False
        zeros = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device="cpu").zero_()
        self.learn(made, zeros)
        self._numbers.add(made.untyped_storage()._cdata)
        return True

    def _decided(
        self, func: Any, args: Any, tensors: list[torch.Tensor], results: list[torch.Tensor]
    ) -> bool:
        """Whether the result is known though not all operands are: one of them decides, or none does."""
        if func in COMPARING or func in EQUAL:
            call = DispatchedCall(func, args, {})
            looks = self.counts.compared if func in COMPARING else self.counts.found
            looks(func, call.argument("self"), call.argument("other"), results[0])
            return False
        if func in _TAKING and results:
            return self._all_the_same(tensors[0], results[0])
        if func in _LIKE:
            value = _LIKE[func]
            said = DispatchedCall(func, args, {}).argument(value) if isinstance(value, str) else value
            return bool(results) and self._filled_with(results[0], said)
        decisive = _ABSORBING.get(func)
        if decisive is None or len(results) != 1:
            return False
        for tensor in tensors:
            twin = self.twin(tensor) if tensor.shape == results[0].shape else None
            if twin is None or (decisive and twin.dtype is not torch.bool):
                continue
            if bool((twin.all() if decisive else ~twin.any()).item()):
                self.learn(results[0], torch.full_like(results[0], int(decisive), device="cpu"))
                return True
        return False

    def _all_the_same(self, tensor: torch.Tensor, result: torch.Tensor) -> bool:
        """Whether what is taken of a tensor is known, since its elements are all the same."""
        twin = self.twin(tensor)
        if twin is None or not twin.numel() or tensor.numel() > LIMIT:
            return False
        first = twin.flatten()[0]
        if not bool((twin == first).all()):
            return False
        return self._filled_with(result, first)

    def _filled_with(self, result: torch.Tensor, value: Any) -> bool:
        """Whether integers are known that all have one value; what is of another type shapes nothing."""
        if result.is_floating_point() or result.is_complex():
            return False
        self.learn(
            result,
            torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="cpu").fill_(value),
        )
        return True


def _whole(tensor: torch.Tensor) -> bool:
    """Whether the tensor is all there is in its storage, so that nothing unknown is left once it is
    written."""
    return (
        tensor.is_contiguous() and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    )
