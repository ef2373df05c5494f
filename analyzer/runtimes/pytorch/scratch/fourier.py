"""Fourier transforms by cuFFT: copies of the input, intermediate results, and the plan's workspace.

1. PyTorch folds the dimensions that are not transformed into one, in the order of their strides; where they
   do not fold, or cuFFT cannot follow the strides, the input is copied. Copy and workspace last as long as
   the plan runs.
2. A plan has three dimensions at most; more are transformed in parts, which take turns in two buffers.
3. Real transforms whose dimensions start with (0, 1), or of more than three, do the last dimension alone and
   the others after it (before it, to real numbers): an intermediate result besides.
4. The plan's own workspace is `analyzer.libraries.cufft`'s; where nothing like it was recorded, a note says
   so.

Source: `aten/src/ATen/native/cuda/SpectralOps.cpp` (`_exec_fft`, `_fft_c2r_cufft`,
`use_optimized_cufft_path`), `CuFFTPlanCache.h` (`as_cufft_embed`); 1,707 transforms recorded (H200,
`tests/data/h200/fft.jsonl.gz`).

Not modelled: bfloat16, which newer versions of PyTorch transform; results of both sides (`onesided` false) of
several dimensions done in parts. Both are named by the note.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, contiguous_strides, nbytes_of
from analyzer.libraries.cufft import FourierPlan, is_recorded, workspace_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, contiguous_like
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, rule

_TRANSFORMS = ("aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r")
_REAL_BYTES = {"float16": 2, "float32": 4, "float64": 8, "complex32": 2, "complex64": 4, "complex128": 8}
_COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
_WHOLE = frozenset(_COMPLEX.values())
_MOST_DIMS = 3
_NAMED = 3


class _Transform:
    """Writes one operator's plans in order. unlike: lengths unlike any recorded plan's."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.unlike: list[tuple[int, ...]] = []

    def run(
        self, source: TensorMeta, shape: tuple[int, ...], dims: tuple[int, ...], dtype: str
    ) -> TensorMeta:
        """Run one plan over `dims`, in their order; return its result of `shape` as it lies in memory."""
        rest = [dim for dim in range(len(shape)) if dim not in dims]
        rest.sort(key=lambda dim: -source.stride[dim])
        real = not {source.dtype, dtype} <= _WHOLE
        both_sides = real and dtype in _WHOLE and shape[dims[-1]] == source.shape[dims[-1]] > 1
        copied = _must_copy(source, rest, dims)
        plan = FourierPlan(
            lengths=tuple(max(source.shape[dim], shape[dim]) for dim in dims),
            batch=math.prod(source.shape[dim] for dim in rest),
            real=real,
            real_bytes=_REAL_BYTES[source.dtype],
            strided=(source.stride[dims[-1]] != 1 and not copied) or both_sides,
            to_real=dtype not in _WHOLE,
        )
        recorded = is_recorded(plan)
        if not recorded:
            self.unlike.append(plan.lengths)
        copy = self.script.temporary(bytes_of(source) if copied else 0)
        workspace = self.script.temporary(
            workspace_bytes(plan), Basis.MEASURED if recorded else Basis.BOUNDED
        )
        self.script.release(workspace)
        self.script.release(copy)
        order = [*rest, *dims]
        return TensorMeta(0, shape, _strides_in(order, shape), dtype)

    def complex_parts(
        self, source: TensorMeta, dims: tuple[int, ...], second: Callable[[], object] | None = None
    ) -> TensorMeta:
        """Transform over all of `dims`, three at a time, innermost first.

        The first part writes into a buffer that is there, the second into the other, and so on in turns.
        """
        remaining = list(dims)
        while remaining:
            remaining.sort(key=lambda dim: -source.stride[dim])
            part, remaining = remaining[-_MOST_DIMS:], remaining[:-_MOST_DIMS]
            source = self.run(source, source.shape, tuple(part), source.dtype)
            if remaining and second is not None:
                second()
                second = None
        return source


@rule("aten::_fft_c2c", name="complex-transform", sure=(Basis.EXACT, Basis.MEASURED, Basis.BOUNDED))
def complex_to_complex(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result, and the plan's copy and workspace; of more than three dimensions a second buffer for the
    parts."""
    _tell(operator, script)


@rule("aten::_fft_r2c", name="real-transform", sure=(Basis.EXACT, Basis.MEASURED, Basis.BOUNDED))
def real_to_complex(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result, and the plan's copy and workspace; done in parts, a second buffer after the last
    dimension."""
    _tell(operator, script)


@rule("aten::_fft_c2r", name="inverse-real-transform", sure=(Basis.EXACT, Basis.MEASURED, Basis.BOUNDED))
def complex_to_real(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result, then a contiguous copy of the input, which the transform may overwrite, and the plan's
    workspace."""
    _tell(operator, script)


def _tell(operator: Operator, script: Script) -> list[tuple[int, ...]]:
    """Allocate what the operator does; return the transform lengths unlike any recorded."""
    source = operator.inputs[0]
    dims = tuple(dim % max(len(source.shape), 1) for dim in operator.integers("dim") or ())
    if not dims or not source.element_count:
        return []
    if source.dtype not in _REAL_BYTES:
        return [tuple(source.shape[dim] for dim in dims)]
    transform = _Transform(script)
    if operator.name.startswith("aten::_fft_c2c"):
        _complex(transform, source, dims)
    elif operator.name.startswith("aten::_fft_r2c"):
        _from_real(transform, source, dims, bool(operator.argument("onesided", default=True)))
    else:
        last = operator.integer("last_dim_size", default=2 * source.shape[dims[-1]] - 2)
        _to_real(transform, source, dims, last)
    return transform.unlike


def _complex(transform: _Transform, source: TensorMeta, dims: tuple[int, ...]) -> None:
    """Transform complex numbers; the result is the first buffer after an odd number of parts."""
    first, second = _buffers(transform.script, _parts(dims), bytes_of(source))
    first()
    transform.complex_parts(source, dims, second)


def _from_real(transform: _Transform, source: TensorMeta, dims: tuple[int, ...], onesided: bool) -> None:
    dtype, last = _COMPLEX[source.dtype], dims[-1]
    half = _with_dim(source.shape, last, source.shape[last] // 2 + 1)
    shape = half if onesided else source.shape
    if _at_once(dims):
        transform.script.output(0)
        _run_aligned(transform, source, shape, dims, dtype)
        return
    if not onesided:
        transform.unlike.append(tuple(source.shape[dim] for dim in dims))
    first, second = _buffers(transform.script, 1 + _parts(dims[:-1]), nbytes_of(math.prod(shape), dtype))
    first()
    between = _run_aligned(transform, source, half, (last,), dtype)
    second()
    transform.complex_parts(between, dims[:-1])


def _parts(dims: tuple[int, ...]) -> int:
    return -(-len(dims) // _MOST_DIMS)


def _buffers(script: Script, turns: int, nbytes: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return functions that take the two buffers the plans alternate; one is the result."""
    result, other = partial(script.output, 0), partial(script.temporary, nbytes)
    return (result, other) if turns % 2 else (other, result)


def _run_aligned(
    transform: _Transform, source: TensorMeta, shape: tuple[int, ...], dims: tuple[int, ...], dtype: str
) -> TensorMeta:
    """Run on real numbers, copied first unless aligned as complex ones."""
    if source.offset % 2:
        transform.script.temporary(bytes_of(source))
        order = [*(dim for dim in range(len(shape)) if dim != dims[-1]), dims[-1]]
        source = replace(source, stride=_strides_in(order, source.shape), offset=0)
    return transform.run(source, shape, dims, dtype)


def _to_real(transform: _Transform, source: TensorMeta, dims: tuple[int, ...], last_size: int) -> None:
    script = transform.script
    shape = _with_dim(source.shape, dims[-1], last_size)
    dtype = next(
        (real for real, complex_type in _COMPLEX.items() if complex_type == source.dtype), source.dtype
    )
    script.output(0)
    script.temporary(bytes_of(source))
    if _at_once(dims):
        transform.run(contiguous_like(source), shape, dims, dtype)
        return
    between = transform.complex_parts(source, dims[:-1], partial(script.temporary, bytes_of(source)))
    transform.run(between, shape, dims[-1:], dtype)


def _at_once(dims: tuple[int, ...]) -> bool:
    """Return whether PyTorch gives a real transform to cuFFT as a whole (`use_optimized_cufft_path`)."""
    return len(dims) <= _MOST_DIMS and dims[:2] != (0, 1)


def _must_copy(source: TensorMeta, rest: list[int], dims: tuple[int, ...]) -> bool:
    """Return whether the batch dimensions do not fold into one (`as_cufft_embed`).

    It follows where each stride is a multiple of the next one inside; none is 0; and, in half precision, the
    last is 1.
    """
    size, stride = source.shape, source.stride
    folded = [dim for dim in rest if size[dim] != 1]
    if any(stride[outer] != stride[inner] * size[inner] for outer, inner in pairwise(folded)):
        return True
    last = stride[dims[-1]]
    if last <= 0 or (folded and stride[folded[-1]] == 0) or (_REAL_BYTES[source.dtype] == 2 and last != 1):
        return True
    for dim in reversed(dims[:-1]):
        if size[dim] != 1:
            if stride[dim] <= 0 or stride[dim] % last:
                return True
            last = stride[dim]
    return False


def _strides_in(order: list[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides of a dense tensor with this order of dimensions, the innermost last."""
    strides = contiguous_strides(tuple(shape[dim] for dim in order))
    return tuple(strides[order.index(dim)] for dim in range(len(shape)))


def _with_dim(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def transforms(operators: Iterable[Operator]) -> list[Operator]:
    """Return those of the operators that are Fourier transforms."""
    return [operator for operator in operators if operator.name.startswith(_TRANSFORMS)]


def notes_on_transforms(operators: Iterable[Operator]) -> Iterator[str]:
    """Yield notes on transforms unlike any recorded, with their sizes."""
    notes = dict.fromkeys(
        sizes
        for operator in transforms(operators)
        for sizes in _tell(operator, Script(len(operator.outputs)))
    )
    if notes:
        others = ["x".join(map(str, sizes)) for sizes in notes]
        named = ", ".join(others[:_NAMED]) + (", ..." if len(others) > _NAMED else "")
        yield (
            f"Fourier transforms of {named}: what cuFFT takes for them was not measured and is carried over"
            " from others: memory may be more"
        )
