"""Values in device memory: those of small tensors are really computed, on the CPU, beside the kernels that do
nothing.

1. What a tensor holds is kept, unless it is too large (`device_contents.py`): copies from the host, and what
   is computed here.
2. An operator whose inputs are all known, and whose results are small, is run once more on the CPU; what it
   draws comes from a generator of its own.
3. An integer or truth value that depends on numbers nobody computed gets a stand-in: what a healthy run would
   most likely have. Gradients are finite, nothing is a NaN, `all` is true, `any` and comparisons are false,
   indices are 0, or in order where something is sorted. What is computed from a stand-in is one, too.
4. The size of a result that depends on data comes from known values; else it is the largest it can be.
5. A stand-in that a check reads (`assert`, an `if` that raises) is what passes it (`lines.py`). A stand-in,
   or an unknown number (which reads 1), that is brought to the host is listed with its line. One that a
   `while` waits for ends the program with its line when nothing has changed for `MOST_WAITS` reads.
6. L-BFGS stops where its loss no longer changes, and forgets a step along which the gradient does not grow:
   losses that it reads fall, every step is remembered, and a line search takes the first one it tries.
7. What the user says of a line (`--assume FILE.py:LINE=VALUE`) is what is read there, in every element, or
   how large a result is.
8. What other ranks send is as known as it is there (`native/nccl.c`).
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections import Counter
from typing import Any

import lines  # beside this file
import torch
from device_contents import MOST_ELEMENTS, RUNTIME, DeviceContents, small
from tensors import is_number, on_host, rows, tensors

MOST_WAITS = 1000
_LARGE_NORM = 100.0
_SORTS = ("sort", "argsort", "topk")
_FALSE_IF_HEALTHY = ("any", "eq", "ne", "lt", "le", "gt", "ge", "logical", "isnan", "isinf", "isin")
_WRITERS = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
"geometric_", "log_normal_", "cauchy_")  # fmt: skip
_SIZED = ("nonzero", "masked_select", "masked_scatter_backward", "index", "index_put", "index_put_",
"_index_put_impl_", "_unique", "_unique2", "unique_dim", "unique_dim_consecutive", "unique_consecutive",
"repeat_interleave", "_coalesce", "bincount")  # fmt: skip
# What a tensor is of changes, and what the memory holds does not.
_RESHAPES = ("set_", "as_strided_", "transpose_", "t_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_",
"detach_")  # fmt: skip
# Products that coalesce a sparse matrix first (aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu).
_COALESCING = ("mm", "addmm", "mv", "addmv", "bmm", "_sparse_addmm")
# They look at numbers before they go on (LinearAlgebra.cpp, BatchLinearAlgebra.cpp, DistributionTemplates.h
# of aten/src/ATen/native).
_ASKING = ("linalg_eig", "linalg_matrix_exp", "normal")


class Stuck(Exception):
    """A loop waits for a value that never comes."""


class _Operator:
    """What is looked up of an operator once."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.name = schema.name.partition("::")[2]
        returns = [result.alias_info for result in schema.returns]
        views = bool(returns) and all(info is not None and not info.is_write for info in returns)
        self.is_view = views or self.name in _RESHAPES
        self.writes = [
            i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        self.names = [argument.name for argument in schema.arguments]
        self.generator = "generator" in self.names
        self.reads = self.name in ("_local_scalar_dense", "_to_copy", "copy_", "equal")
        self.sized = self.name in _SIZED
        # What it writes to, it does not read.
        self.only_writes = self.name in _WRITERS or "out" in schema.overload_name.split("_")


def _dim(op: _Operator, args: Any, kwargs: dict[str, Any]) -> Any:
    """The argument of this name; None: there is none."""
    place = op.names.index("dim") if "dim" in op.names else len(args)
    return args[place] if place < len(args) else kwargs.get("dim")


class ProcessValues:
    """The values of one process. `reads`: "line: what" -> how often it was read; `assumed`: what was asked
    for of what is assumed."""

    def __init__(self, line: Any, assume: dict[str, Any]) -> None:
        """line: what is under way, "path:12". assume: "FILE.py:12", where the end of a path counts -> a
        number or truth value."""
        self._line = line
        self._assume = assume
        self.assumed = set[str]()
        self._operators: dict[Any, _Operator] = {}
        self._contents = DeviceContents()
        self._generator = torch.Generator()
        self._falling = itertools.count(1)
        self._waits = Counter[str]()
        self._waited: tuple[str, Any] = ("", None)
        self.reads = Counter[str]()

    def call(self, func: Any, run: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What the operator returns, its values known as far as they can be. run: runs it on the device."""
        op = self._operators.get(func)
        if op is None:
            op = self._operators[func] = _Operator(func)
        if op.is_view:
            return run(*args, **kwargs)
        given = tensors(args, kwargs)
        written = [args[i] if i < len(args) else kwargs.get(op.names[i]) for i in op.writes]
        known = (
            self._contents.known(given, written if op.only_writes else [])
            if self._worth(given, kwargs)
            else None
        )
        tainted = any(tensor.is_cuda and self._contents.stands_in(tensor) for tensor in given)
        there = any(tensor.is_cuda for tensor in given)
        sizes = self._sizes(op, args, kwargs, tainted) if op.sized and there else []
        if op.name in _ASKING and there:
            sizes = self._asked_within(op, given[0])
        if op.name in _COALESCING and there:
            sizes = [
                self._coalesced(t) for t in given if t.layout == torch.sparse_coo and not t.is_coalesced()
            ]
        RUNTIME.emulated_begin(int(not op.reads), (ctypes.c_int64 * len(sizes))(*sizes), len(sizes))
        try:
            result = run(*args, **kwargs)
        finally:
            unknown = RUNTIME.emulated_end()
        if op.reads and self._to_host(op, args, result):
            return self._read(op, args, result, known, tainted, unknown)
        if unknown and not sizes:
            self._list(f"{op.name} reads what it computed: zeros")
        outputs = written if op.writes else [result]
        self._after(op, func, args, kwargs, outputs, known, tainted)
        return result

    # -- what is computed
    # -------------------------------------------------------------------------------------------

    def _worth(self, given: list[torch.Tensor], kwargs: dict[str, Any]) -> bool:
        """Whether the device takes part, and inputs are small enough to be computed with."""
        device = kwargs.get("device")
        there = any(tensor.is_cuda for tensor in given) or (
            device is not None and torch.device(device).type == "cuda"
        )
        return there and all(map(self._contents.fits, given))

    def _after(
        self,
        op: _Operator,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        outputs: list[Any],
        known: Any,
        tainted: bool,
    ) -> None:
        """The operator's results are computed, stand in, or are not known."""
        flat = [t for t in tensors(outputs, {}) if t.is_cuda]
        if not flat:
            for result in outputs:
                if isinstance(result, tuple):
                    flat = [t for t in tensors(result, {}) if t.is_cuda]
        if not flat or any(
            type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout != torch.strided for t in flat
        ):
            return
        if op.name == "_amp_foreach_non_finite_check_and_unscale_":  # all gradients are finite
            return
        computed = None
        if known is not None and all(map(self._contents.fits, flat)):
            computed = self._computed(op, func, args, kwargs, known)
        for i, tensor in enumerate(flat):
            if computed is not None and i < len(computed) and computed[i].shape == tensor.shape:
                self._contents.spend(tensor)
                self._contents.keep(tensor, computed[i], tainted)
            elif small(tensor) and not is_number(tensor) and not op.name.startswith(("empty", "new_empty")):
                self._contents.keep(tensor, self._stand_in(op, args, tensor), True)
            else:
                self._contents.forget(tensor)

    def _computed(
        self, op: _Operator, func: Any, args: Any, kwargs: dict[str, Any], known: dict[int, torch.Tensor]
    ) -> list[torch.Tensor] | None:
        """The results on the CPU; None where the CPU has no such operator."""

        if op.name.startswith(("empty", "new_empty")):
            return None
        more = {name: on_host(value, known) for name, value in kwargs.items()}
        if "device" in more or op.name == "_to_copy":
            more["device"] = torch.device("cpu")
        more.pop("pin_memory", None)
        if op.generator:
            more["generator"] = self._generator
        try:
            arguments = [on_host(value, known) for value in args]
            if op.name == "resize_":  # what was looked up lies in memory that cannot grow
                arguments[0] = arguments[0].clone()
            result = func(*arguments, **more)
        except (RuntimeError, NotImplementedError, IndexError, TypeError, ValueError):
            return None
        if op.writes:
            result = [arguments[i] if i < len(arguments) else more.get(op.names[i]) for i in op.writes]
        found: list[torch.Tensor] = tensors(result if isinstance(result, (list, tuple)) else [result], {})
        return found

    def _stand_in(self, op: _Operator, args: Any, tensor: torch.Tensor) -> torch.Tensor:
        """What a healthy run would most likely have."""
        if tensor.dtype == torch.bool:
            same = len(args) > 1 and isinstance(args[0], torch.Tensor) and args[1] is args[0]
            if op.name == "eq" and same:
                return torch.tensor(True, device="cpu")
            if (
                op.name == "ne"
                and len(args) > 1
                and not isinstance(args[1], torch.Tensor)
                and args[1] == float("inf")
            ):
                return torch.tensor(True, device="cpu")
            return torch.tensor(not op.name.startswith(_FALSE_IF_HEALTHY), device="cpu")
        if op.name in _SORTS and tensor.dim():
            dim = next((a for a in args[2:3] if isinstance(a, int) and not isinstance(a, bool)), -1)
            shape = [1] * tensor.dim()
            shape[dim] = tensor.shape[dim]
            return torch.arange(tensor.shape[dim], device="cpu").view(shape).to(tensor.dtype)
        return torch.zeros((), dtype=tensor.dtype, device="cpu")

    # -- sizes that depend on data
    # -----------------------------------------------------------------------------------

    def _sizes(self, op: _Operator, args: Any, kwargs: dict[str, Any], tainted: bool) -> list[int]:
        """What the operator will ask the device for: how many elements its result has."""
        if op.name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            asked = [t for t in args[1] if t is not None and t.dtype in (torch.bool, torch.uint8)]
        elif op.name in ("masked_select", "masked_scatter_backward"):
            asked = [args[1]]
        elif op.name == "_coalesce":
            return [self._coalesced(args[0])]
        elif op.name == "bincount":
            return self._extremes(args[0], tainted)
        elif op.name == "repeat_interleave":
            return [] if kwargs.get("output_size") is not None else self._repeated(args[0], tainted)
        else:
            asked = [args[0]]
        said = self._said()
        if said is None and "index_put" in op.name and len(asked) == len(args[1]) == 1:
            said = rows(args[0], asked[0], args[2])
            if said is not None:
                self._contents.counts[asked[0].data_ptr()] = asked[0].numel(), said
        if said is not None:
            return [int(said)] * (4 if "unique" in op.name else len(asked))
        sizes = []
        for tensor in asked:
            value = self._contents.value(tensor) if tensor.is_cuda else tensor
            elements, count = self._contents.counts.get(tensor.data_ptr(), (-1, 0))
            unknown = value is None or tainted or self._contents.stands_in(tensor)
            if unknown and elements == tensor.numel() and "unique" not in op.name:
                sizes.append(count)
                continue
            if unknown:
                self._list(
                    f"the size of {op.name}'s result depends on data: taken to be the largest,"
                    f" {tensor.numel():,}"
                )
            if value is None and "unique" in op.name and (dim := _dim(op, args, kwargs)) is not None:
                sizes += [tensor.shape[dim]] * 4
            elif value is None:
                sizes.append(tensor.numel())
            elif "unique" in op.name:
                sizes += [self._distinct(op, _dim(op, args, kwargs), value)] * 4
            else:
                count = int((value != 0).sum())
                sizes.append(tensor.numel() if self._contents.stands_in(tensor) else count)
        if op.name == "masked_select":  # the mask is repeated where it is smaller than what it selects from
            every = torch.broadcast_shapes(args[0].shape, args[1].shape).numel()
            sizes = [size * every // max(args[1].numel(), 1) for size in sizes]
        return sizes

    def _asked_within(self, op: _Operator, matrices: torch.Tensor) -> list[int]:
        """What a kernel reads of its own: that no number is infinite, no deviation negative; of an
        exponential that all matrices need the highest degree, are scaled alike and squared once, before which
        the norm of one alone is read: a large one."""
        if op.name != "linalg_matrix_exp":
            return [1]
        self._list("the degree of matrix_exp depends on norms: taken to be the highest")
        count, wide = matrices.shape[:-2].numel(), matrices.dtype in (torch.float64, torch.complex128)
        norm = int.from_bytes(struct.pack("<d" if wide else "<f", _LARGE_NORM), "little")
        return [1, count, 1] if count > 1 else [norm, 1, 1, 1]

    def _extremes(self, tensor: torch.Tensor, tainted: bool) -> list[int]:
        """The least, of which a type without a sign has none to be asked for, and the largest of these; both
        0 where that is not known."""
        value, said = self._contents.value(tensor), self._said()
        if said is not None:
            ends = [0, int(said) - 1]
        elif value is None or tainted or self._contents.stands_in(tensor) or not value.numel():
            self._list("the size of bincount's result depends on data: taken to be what its minlength says")
            ends = [0, 0]
        else:
            ends = [int(value.min()), int(value.max())]
        return ends[tensor.dtype == torch.uint8 :]

    def _repeated(self, counts: torch.Tensor, tainted: bool) -> list[int]:
        """The sum of the counts, and that none is negative, which is asked next."""
        value, said = self._contents.value(counts), self._said()
        if said is not None:
            return [int(said), 1]
        if value is None or tainted or self._contents.stands_in(counts):
            self._list(
                "the size of repeat_interleave's result depends on data, and nothing bounds it: taken to be"
                f" one of each, {counts.numel():,}; memory may be more"
            )
            return [counts.numel(), 1]
        return [int(value.sum()), int(bool((value >= 0).all()))]

    def _coalesced(self, tensor: torch.Tensor) -> int:
        """How many places a sparse tensor has entries at."""
        indices = tensor._indices()
        said, value = self._said(), self._contents.value(indices)
        if said is not None:
            return int(said)
        if value is None or self._contents.stands_in(indices):
            self._list(
                "how many places a sparse tensor has entries at depends on data: as many as entries,"
                f" {indices.shape[1]:,}"
            )
            return int(indices.shape[1])
        return int(torch.unique(value, dim=1).shape[1])

    def _distinct(self, op: _Operator, dim: int | None, value: torch.Tensor) -> int:
        """How many different values, or slices along a dimension, there are, or runs of them."""
        found = (torch.unique_consecutive if "consecutive" in op.name else torch.unique)(value, dim=dim)
        return int(found.numel() if dim is None else found.shape[dim])

    # -- what the host reads
    # -----------------------------------------------------------------------------------------

    @staticmethod
    def _to_host(op: _Operator, args: Any, result: Any) -> bool:
        source = args[1] if op.name == "copy_" else args[0]
        there = not (isinstance(result, torch.Tensor) and result.is_cuda)
        return isinstance(source, torch.Tensor) and source.is_cuda and there

    def _read(self, op: _Operator, args: Any, result: Any, known: Any, tainted: bool, unknown: int) -> Any:
        """What the host gets to see of device memory."""
        source = args[1] if op.name == "copy_" else args[0]
        said = self._said()
        if said is not None:
            return self._tell(op, source, result, said)
        value = None if known is None else known.get(id(source))
        if value is None:
            value = self._contents.value(source)
        numeric = is_number(source)
        if op.name == "equal":
            return self._equal(source, args[1], tainted)
        falls = (value is None or tainted) and numeric and source.numel() == 1 and lines.minimizes()
        if value is None and (unknown or source.numel() > MOST_ELEMENTS):
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
            found = value.reshape(-1)[0].item()
            if not tainted:
                return found
            if falls and isinstance(found, float):
                return 1 / next(self._falling)
            line = lines.reading() if isinstance(found, bool) else ""
            if lines.takes_a_step(line):
                return True
            self._wait(found)
            passes = lines.passes(line)
            return found if passes is None else passes
        result.copy_(value.expand(result.shape) if value.dim() else value)
        return result

    def _equal(self, first: torch.Tensor, second: torch.Tensor, tainted: bool) -> bool:
        """Whether two tensors hold the same; where that is not known, only if the program asserts it or they
        are the same memory."""
        if tainted:
            self._list("a stand-in")
        one, other = (self._contents.held(t) if t.is_cuda else t for t in (first, second))
        if one is not None and other is not None:
            return torch.equal(one, other)
        if first.data_ptr() == second.data_ptr() and first.stride() == second.stride():
            return first.shape == second.shape
        asserted: bool = lines.asserts(self._line())
        self._list(f"torch.equal compares what is not computed: {'equal' if asserted else 'not equal'}")
        return asserted

    def _said(self) -> Any:
        """What the user says of the line under way; None: nothing."""
        if not self._assume:
            return None
        path, _, number = self._line().rpartition(":")
        for place, value in self._assume.items():
            file, _, line = place.rpartition(":")
            if line == number and (path == file or path.endswith(f"/{file}")):
                self.assumed.add(place)
                return value
        return None

    def _tell(self, op: _Operator, source: torch.Tensor, result: Any, said: Any) -> Any:
        """The operator's result where all that is read is `said`."""
        if op.name == "equal":
            return bool(said)
        value = torch.tensor(said, device="cpu").to(source.dtype)
        if op.name == "_local_scalar_dense":
            self._wait(value.item())
            return value.item()
        result.fill_(value)
        return result

    def _list(self, what: str) -> None:
        self.reads[f"{self._line()}: {what}"] += 1

    def _wait(self, found: Any) -> None:
        """Raises Stuck where a loop waits for this value, and it has been the same for long."""
        line = self._line()
        if self._waited != (line, found):
            self._waited = (line, found)
            self._waits[line] = 0
        self._waits[line] += 1
        if self._waits[line] >= MOST_WAITS and lines.decides_a_loop(line):
            raise Stuck(
                f"{line}: the loop waits for a value that is not computed; it has been {found} for"
                f" {MOST_WAITS:,} reads"
            )
