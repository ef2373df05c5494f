"""Shadow values: kernels do nothing, so small tensors are computed on the CPU (`values/known.py`) and stored
by address (`device_contents.py`).

1. Random numbers of the device come from a generator of its own.
2. An integer or truth value that depends on numbers that were not computed gets a stand-in: the most likely
   value of a healthy run. Gradients are finite, nothing is a NaN, `all` is true, `any` and comparisons are
   false, indices are 0, or in order where something is sorted. A value computed from a stand-in is one, too.
3. The size of a result that depends on data comes from known values; else it is the largest it can be
   (`values/sizes.py`).
4. A stand-in that a check reads (`assert`, an `if` that raises), or a library's branch that is known
   (`values/branches.py`), is what passes it. A stand-in, or an unknown number (which reads 1), that is
   brought to the host is listed with its line. One that a `while` waits for ends the program with its line
   when nothing has changed for `MOST_WAITS` reads.
5. The user's value for a line (`--assume FILE.py:LINE=VALUE`) is read there, in every element, or is the
   size of a result.
6. Values from other ranks are known here if they are known there (`native/nccl.c`).
"""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from device_contents import RUNTIME, DeviceContents, plain  # beside this file
from tensors import tensors
from values import branches, checks, sizes  # the folder `analyzer/values`
from values.assumptions import Assumptions
from values.budget import STAND_IN_ELEMENTS, Budget, Effort, is_number
from values.calls import DispatchedCall
from values.counts import rows
from values.distinct import slices
from values.known import KnownValues

aten = torch.ops.aten
MOST_WAITS = 1000
_UNIQUE_ASKS = 4  # how often `unique` reads how many there are
_LARGE_NORM = 100.0
_SORTS = ("sort", "argsort", "topk")
_FALSE_IF_HEALTHY = ("any", "eq", "ne", "lt", "le", "gt", "ge", "logical", "isnan", "isinf", "isin")
# Operators that change a tensor's storage or shape, but no contents of memory.
_RESHAPES = "set_ as_strided_ transpose_ t_ swapaxes_ swapdims_ squeeze_ unsqueeze_ detach_"
# Products that coalesce a sparse matrix first (aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu).
_COALESCING = ("mm", "addmm", "mv", "addmv", "bmm", "_sparse_addmm")
# Conversions that coalesce what is not (`coo_to_sparse_csr`, `coo_to_sparse_csc`, TensorConversions.cpp);
# whether of the transposed tensor.
_COMPRESSING_FROM = {"_to_sparse_csr": False, "_to_sparse_csc": True}
# Blocks are made on the host, of what lies in the same order (`_compressed_to_block_compressed_cpu`,
# TensorConversions.cpp); of another layout by way of that (`coo_to_sparse_bsr`,
# `sparse_compressed_to_sparse_bsr`).
_BLOCKED_FROM = {"_to_sparse_bsr": torch.sparse_csr, "_to_sparse_bsc": torch.sparse_csc}
_COMPRESSES = {torch.sparse_csr: aten._to_sparse_csr.default, torch.sparse_csc: aten._to_sparse_csc.default}
# They look at numbers before they go on (LinearAlgebra.cpp, BatchLinearAlgebra.cpp, DistributionTemplates.h
# of aten/src/ATen/native).
_ASKING = ("linalg_eig", "linalg_matrix_exp", "normal")


class Stuck(Exception):
    """A loop waits for a value that never comes."""


class _Operator:
    """Properties of an operator, looked up once."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.name = schema.name.partition("::")[2]
        returns = [result.alias_info for result in schema.returns]
        views = bool(returns) and all(info is not None and not info.is_write for info in returns)
        self.is_view = views or self.name in _RESHAPES.split()
        self.writes = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        self.reads = self.name in ("_local_scalar_dense", "_to_copy", "copy_", "equal")


def _makes_there(kwargs: dict[str, Any]) -> bool:
    """Return whether an operator makes something on the device."""
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "cuda"


class ProcessValues:
    """The values of one process. `reads`: "line: what" -> how often it was read."""

    def __init__(self, line: Any, assume: dict[str, Any]) -> None:
        """line: what is under way, "path:12". assume: "FILE.py:12", where the end of a path counts -> a
        number or truth value."""
        self._line = line
        self.assumptions = Assumptions(assume)
        self._operators: dict[Any, _Operator] = {}
        self._contents = DeviceContents()
        self._effort = Effort()
        self._known_values = KnownValues(
            self._contents, self._list, Budget(self._effort, loads=True), torch.Generator()
        )
        self._falling = itertools.count(1)
        self._waits = Counter[str]()
        self._waited: tuple[str, Any] = ("", None)
        self.reads = Counter[str]()

    def call(self, func: Any, run: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return what the operator returns, its values known as far as they can be. run: runs it on the
        device."""
        op = self._operators.get(func)
        if op is None:
            op = self._operators[func] = _Operator(func)
        if op.is_view:
            return run(*args, **kwargs)
        if op.name in _BLOCKED_FROM and args[0].layout in (torch.sparse_coo, *_COMPRESSES):
            args = (self._compressed(args[0], _BLOCKED_FROM[op.name]), *args[1:])
        call, known_values = DispatchedCall(func, args, kwargs), self._known_values
        operands = tensors((*args, *kwargs.values()))
        written = tensors(map(call.argument, op.writes))
        on_device = any(tensor.is_cuda for tensor in operands)
        if self._effort.lasts or self._effort.paused:
            self._effort.paused = branches.generates()
        values = known_values.operands(func, operands, written) if on_device or _makes_there(kwargs) else None
        most = known_values.most_not_zero(call) if on_device else None
        sizes = self._sizes_asked(op, call, operands) if on_device else []
        blocked = on_device and op.name in _BLOCKED_FROM and args[0].layout is _BLOCKED_FROM[op.name]
        if blocked:
            self._spread(args[0], call.argument("blocksize"))
        reads = op.reads or blocked
        RUNTIME.emulated_begin(int(not reads), (ctypes.c_int64 * len(sizes))(*sizes), len(sizes))
        try:
            result = run(*args, **kwargs)
        finally:
            unknown = RUNTIME.emulated_end()
        results = tensors([result])
        to_host = op.reads and not any(tensor.is_cuda for tensor in results)
        source = args[1 if op.name == "copy_" else 0] if to_host else None
        if isinstance(source, torch.Tensor) and source.is_cuda:
            return self._read(op, source, args, result, values, unknown)
        if unknown and not sizes:
            self._list(f"{op.name} reads what it computed: zeros")
        self._settle(op, call, results, operands, written, values)
        for first in (written or results)[:1]:
            if first.is_cuda:
                known_values.relate(call, most, first)
        return result

    # -- what is computed

    def _settle(
        self,
        op: _Operator,
        call: DispatchedCall,
        results: list[torch.Tensor],
        operands: list[torch.Tensor],
        written: list[torch.Tensor],
        values: dict[int, torch.Tensor] | None,
    ) -> None:
        """Compute the operator's results, let others stand in for them, or forget them."""
        changed = set(map(id, written))
        fresh = [t for t in results if t.is_cuda and id(t) not in changed]
        flat = [*fresh, *(t for t in written if t.is_cuda)]
        if not flat or not all(map(plain, flat)):
            return
        if op.name == "_amp_foreach_non_finite_check_and_unscale_":  # all gradients are finite
            return
        for tensor in fresh:
            self._known_values.renewed(self._contents.key(tensor))
        computed = set(map(id, self._known_values.follow(call, operands, results, written, values) or ()))
        for tensor in flat:
            if id(tensor) in computed:
                continue
            if id(tensor) in changed:
                self._known_values.renewed(self._contents.key(tensor))
            empty = op.name.startswith(("empty", "new_empty"))
            if tensor.numel() <= STAND_IN_ELEMENTS and not is_number(tensor) and not empty:
                self._contents.put(tensor, self._stand_in(op, call.args, tensor), True)
            else:
                self._contents.forget(tensor)
        if op.name == "copy_" and not computed:
            self._count_copied(call.argument("self"), call.argument("src"))

    def _count_copied(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Count what is not zero of a host tensor that fills a storage: `tensor.cuda()` is such a copy."""
        whole = target.is_contiguous() and target.nbytes == target.untyped_storage().nbytes()
        if whole and source.device.type == "cpu" and source.shape == target.shape:
            self._known_values.counts.copied(source, target)

    def _stand_in(self, op: _Operator, args: Any, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a healthy run would most likely have."""
        if tensor.dtype == torch.bool:
            second: Any = args[1] if len(args) > 1 else None
            is_finite = op.name == "ne" and isinstance(second, float) and math.isinf(second)
            holds = is_finite or (op.name == "eq" and second is args[0])  # nothing is a NaN
            return torch.tensor(holds or not op.name.startswith(_FALSE_IF_HEALTHY), device="cpu")
        if op.name in _SORTS and tensor.dim():
            dim = next((a for a in args[2:3] if isinstance(a, int) and not isinstance(a, bool)), -1)
            shape = [1] * tensor.dim()
            shape[dim] = tensor.shape[dim]
            return torch.arange(tensor.shape[dim], device="cpu").view(shape).to(tensor.dtype)
        return torch.zeros((), dtype=tensor.dtype, device="cpu")

    # -- sizes that depend on data

    def _sizes_asked(self, op: _Operator, call: DispatchedCall, operands: list[torch.Tensor]) -> list[int]:
        """Return what the operator will ask the device for."""
        if op.name in _ASKING:
            return self._values_read_by(op, operands[0])
        if op.name in _COALESCING:
            sparse = (t for t in operands if t.layout == torch.sparse_coo and not t.is_coalesced())
            return [self._coalesced(t) for t in sparse]
        if op.name == "_coalesce":
            return [self._coalesced(operands[0])]
        if op.name in _COMPRESSING_FROM and operands[0].layout == torch.sparse_coo:
            # The transposed tensor of one that is coalesced is not.
            sorts = _COMPRESSING_FROM[op.name] or not operands[0].is_coalesced()
            return [self._coalesced(operands[0])] if sorts else []
        if op.name == "bincount":
            return self._extremes(operands[0])
        if op.name == "repeat_interleave":
            return [] if call.argument("output_size") is not None else self._repeated(operands[0])
        asks = _UNIQUE_ASKS if "unique" in op.name else len(sizes.masks_of(call))
        if not asks:
            return []
        size = self._size(call)
        if op.name == "_to_sparse" and (places := sizes.places_of_entries(call)) is not None:
            return [size, *[min(size, places)] * _UNIQUE_ASKS]
        return [size] * asks * (2 if call.name in sizes.COMPRESSING else 1)

    def _size(self, call: DispatchedCall) -> int:
        """Return how many results there are, or elements written to: by values, else at most."""
        values, masks, assumed = self._known_values, sizes.masks_of(call), self._assumption()
        if assumed is not None:
            return int(assumed)
        if "index_put" in call.name and len(masks) == len(call.argument("indices")) == 1:
            written = rows(call.argument("self"), masks[0], call.argument("values"))
            if written is not None:
                values.selects(masks[0], written)
                return int(written)
        unseen = call.name == "aten::masked_select" and branches.keeps_boxes()
        count: int | None = None if unseen else sizes.count(call, values.sure, values.not_zero)
        if count is not None:
            for tensor in masks or tensors(call.args):
                self._decides(tensor)
            return count
        if call.name == "aten::nonzero" and branches.divides_product():
            values.selects(call.argument("self"), 0)
            self._list("no factor of a product is taken to be zero where its gradient asks for them")
            return 0
        few = branches.counted() if call.name == "aten::nonzero" else None
        most: int | None = few[0] if few else values.counts.most_results(call)
        assert most is not None
        if few:
            self._list(few[1])
        else:
            self._list(
                f"the size of {call.name[6:]}'s result depends on data: taken to be the largest, {most:,}"
            )
        if masks:
            values.counts.suppose(masks[0], most)
        return most

    def _decides(self, tensor: torch.Tensor) -> None:
        """Note that the program, or a size, follows from this known value."""
        if tensor.is_cuda and self._known_values.note_decision(tensor):
            self._list("decided by numbers that a CPU computes, with random ones of its own")

    def _values_read_by(self, op: _Operator, matrices: torch.Tensor) -> list[int]:
        """Return what a kernel reads of its own: that no number is infinite, no deviation negative; of an
        exponential that all matrices need the highest degree, are scaled alike and squared once, before which
        the norm of one alone is read: a large one."""
        if op.name != "linalg_matrix_exp":
            return [1, 1] if op.name == "normal" else [1]  # `normal_impl` asks, then `normal_out_impl`
        self._list("the degree of matrix_exp depends on norms: taken to be the highest")
        count, wide = matrices.shape[:-2].numel(), matrices.dtype in (torch.float64, torch.complex128)
        norm = int.from_bytes(struct.pack("<d" if wide else "<f", _LARGE_NORM), "little")
        return [1, count, 1] if count > 1 else [norm, 1, 1, 1]

    def _extremes(self, tensor: torch.Tensor) -> list[int]:
        """Return the least, of which a type without a sign has none to be asked for, and the largest of
        these; both 0 where that is not known."""
        assumed, value = self._assumed_size(
            tensor, "the size of bincount's result depends on data: taken to be what its minlength says"
        )
        ends = [0, 0] if assumed is None else [0, int(assumed) - 1]
        if assumed is None and value is not None and value.numel():
            ends = [int(value.min()), int(value.max())]
        return ends[tensor.dtype == torch.uint8 :]

    def _repeated(self, counts: torch.Tensor) -> list[int]:
        """Return the sum of the counts, and that none is negative, which is asked next."""
        assumed, value = self._assumed_size(
            counts,
            "the size of repeat_interleave's result depends on data, and nothing bounds it: taken to be"
            f" one of each, {counts.numel():,}; memory may be more",
        )
        if assumed is not None or value is None:
            return [counts.numel() if assumed is None else int(assumed), 1]
        return [int(value.sum()), int(bool((value >= 0).all()))]

    def _coalesced(self, tensor: torch.Tensor) -> int:
        """Return how many places a sparse tensor has entries at."""
        indices = tensor._indices()
        entries = indices.shape[1]
        assumed, value = self._assumed_size(
            indices,
            "how many places a sparse tensor has entries at depends on data: as many as entries,"
            f" {entries:,}",
        )
        if assumed is None:
            return entries if value is None else slices(value, 1)[0].shape[1]
        return int(assumed)

    def _compressed(self, matrix: torch.Tensor, layout: torch.layout) -> torch.Tensor:
        """Return a matrix as one of this compressed layout, which it may be."""
        compress = _COMPRESSES[layout]

        def run(*args: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return compress(*args)

        return matrix if matrix.layout is layout else self.call(compress, run, (matrix,), {})

    def _spread(self, matrix: torch.Tensor, blocks: Sequence[int]) -> None:
        """Let indices that are not known lie in as many blocks as they can: each in one of its own, or one in
        every block. They are read on the host to count the blocks."""
        by_row = matrix.layout is torch.sparse_csr
        ends, places = (
            (matrix.crow_indices(), matrix.col_indices())
            if by_row
            else (matrix.ccol_indices(), matrix.row_indices())
        )
        if ends.dim() > 1 or None not in (self._contents.get(ends), self._contents.get(places)):
            return
        long, wide = blocks if by_row else reversed(blocks)
        across = matrix.shape[1 if by_row else 0] // wide
        entries = places.numel()
        rows = torch.arange(entries, device="cpu") // across % max((ends.numel() - 1) // long, 1) * long
        columns = torch.arange(entries, device="cpu") % across * wide
        order = torch.argsort(rows, stable=True)
        counts = torch.bincount(rows, minlength=ends.numel() - 1)
        self._contents.put(ends, torch.cat((counts[:0].new_zeros(1), counts.cumsum(0))).to(ends.dtype), True)
        self._contents.put(places, columns[order].to(places.dtype), True)
        self._list("how many blocks a sparse matrix has entries in depends on data: as many as it can be")

    def _assumed_size(self, tensor: torch.Tensor, otherwise: str) -> tuple[Any, torch.Tensor | None]:
        """Return what the user assumes of a size, and the value that decides it; `otherwise` is listed
        where there is neither."""
        assumed, value = self._assumption(), self._known_values.sure(tensor)
        if assumed is None and value is None:
            self._list(otherwise)
        elif assumed is None:
            self._decides(tensor)
        return assumed, value

    # -- what the host reads

    def _read(
        self, op: _Operator, source: torch.Tensor, args: Any, result: Any, values: Any, unknown: int
    ) -> Any:
        """Return what the host gets to see of a tensor on the device."""
        assumed = self._assumption()
        if assumed is not None:
            return self._tell(op, source, result, assumed)
        tainted = any(self._contents.stands_in(tensor) for tensor in tensors(args))
        if op.name == "equal":
            return self._equal(source, args[1], tainted)
        value = self._known_values.value(source) if values is None else values[id(source)]
        numeric = is_number(source)
        falls = (value is None or tainted) and numeric and source.numel() == 1 and branches.falls()
        if value is None and (counted := self._known_values.counts.supposed(source)) is not None:
            self._list(f"{source.numel():,} elements of a mask, as many true as were counted")
            value, tainted = counted, False
        elif value is None and (unknown or source.numel() > STAND_IN_ELEMENTS):
            value = torch.full((), 1.0 if numeric else 0.0, device="cpu").to(source.dtype)
            if falls:
                self._list("a loss, which is taken to fall")
            elif numeric and source.numel() == 1:
                self._list("a number: 1")
            else:
                self._list(f"{source.numel():,} values that were not computed")
            tainted = True
        elif tainted:
            self._list("a stand-in" if source.numel() == 1 else f"{source.numel():,} stand-ins")
        if value is None:
            return result
        if op.name == "_local_scalar_dense":
            return self._scalar(source, value.reshape(-1)[0].item(), tainted, falls)
        result.copy_(value.expand(result.shape) if value.dim() else value)
        return result

    def _scalar(self, source: torch.Tensor, value: Any, tainted: bool, falls: bool) -> Any:
        """Return what `item()` returns of a tensor that holds this, or for which it stands in."""
        if not tainted:
            if isinstance(value, bool):
                self._decides(source)
            return value
        if falls and isinstance(value, float):
            return 1 / next(self._falling)
        length = None if is_number(source) else branches.longest()
        if length is not None:
            return isinstance(value, bool) or length
        branch = branches.assumed() if isinstance(value, bool) else None
        if branch is not None:
            return branch[0]
        self._wait(value)
        return value

    def _equal(self, first: torch.Tensor, second: torch.Tensor, tainted: bool) -> bool:
        """Return whether two tensors hold the same; where that is not known, only if the program asserts it
        or they are the same memory."""
        if tainted:
            self._list("a stand-in")
        one, other = self._known_values.value(first), self._known_values.value(second)
        if one is not None and other is not None:
            return torch.equal(one, other)
        if first.data_ptr() == second.data_ptr() and first.stride() == second.stride():
            return first.shape == second.shape
        branch = branches.assumed()
        same = branch is not None and branch[0]
        self._list(f"torch.equal compares what is not computed: {'equal' if same else 'not equal'}")
        return same

    def _assumption(self) -> Any:
        """Return what the user assumes of the line under way, None for nothing."""
        if not self.assumptions:
            return None
        path, _, number = self._line().rpartition(":")
        return self.assumptions.at(path, int(number)) if number else None

    def _tell(self, op: _Operator, source: torch.Tensor, result: Any, value_read: Any) -> Any:
        """Return the operator's result where all that is read is `value_read`."""
        if op.name == "equal":
            return bool(value_read)
        value = torch.tensor(value_read, device="cpu").to(source.dtype)
        if op.name == "_local_scalar_dense":
            self._wait(value.item())
            return value.item()
        result.fill_(value)
        return result

    def _list(self, what: str) -> None:
        self.reads[f"{self._line()}: {what}"] += 1

    def _wait(self, result: Any) -> None:
        """Raises Stuck where a loop waits for this value, and it has been the same for long."""
        line = self._line()
        if self._waited != (line, result):
            self._waited = (line, result)
            self._waits[line] = 0
        self._waits[line] += 1
        if self._waits[line] >= MOST_WAITS and checks.decides_a_loop(line):
            raise Stuck(
                f"{line}: the loop waits for a value that is not computed; it has been {result} for"
                f" {MOST_WAITS:,} reads"
            )
