"""Operators without a kernel of their own: what the ones they are made of take, beside the result.

1. `isin` compares every element with every one that is looked for, where those are few; else it sorts both
   together.
2. A number to the power of a tensor: the number becomes a tensor on the device.
3. `repeat_interleave` by a tensor sums up the counts, and asks whether any is negative, unless it is told how
   many results there are: of each count until torch 2.11, of the smallest in 2.15 (the releases in between
   were not asked).

Source: `aten/src/ATen/native/TensorCompare.cpp` (`isin_default_kernel_gpu`, `isin_sorting`), `Pow.cpp`
(`pow_Scalar_out`), `Repeat.h` (`repeat_interleave_common`); orders and sizes as recorded (H200, torch 2.11,
`tests/data/h200/operators_masks.json.gz`).

Not modelled: `isin` that sorts, to the byte.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, dtype_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.cub import radix_sort_bytes, scan_bytes
from analyzer.runtimes.pytorch.scratch.layout import (
    bytes_of,
    contiguous_copy_bytes,
    dense,
)
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, reduce
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, present, rule

_INDEX_BYTES = 8
_SMALLEST_COUNT = Span((2, 15))
_NUMBER_BYTES, _COMPLEX_BYTES = 8, 16  # a Python number as a tensor: float64 or int64, complex128


@rule(
    "aten::pow.Scalar", "aten::pow.Scalar_out", name="power-of-number", replace=True
)  # every other `pow` is inert
def power_of_number(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The number on the device, beside the result, unless it is 1: then the result is filled."""
    script.outputs()
    base = operator.argument("self")
    if base != 1:
        script.release(script.temporary(_COMPLEX_BYTES if isinstance(base, complex) else _NUMBER_BYTES))


@rule("aten::isin", sure=(Basis.EXACT, Basis.BOUNDED))
def isin(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Every element beside every one looked for, one byte each, and whether any is equal. Where those are
    many: both in one row, sorted with their positions and compared with their neighbours, which is bounded.
    """
    source, wanted = filled(operator, "elements"), present(operator, "test_elements")
    script.outputs()
    count, tests = source.element_count, wanted.element_count
    if tests < 10 * count**0.145:
        script.temporaries(count * tests, count)
        pairs = dense(source, (count, tests), "bool")
        reduce(script, device, pairs, frozenset({1}), ("bool",), kernel=ReductionKernel(1))
        return
    width, together = dtype_bytes(source.dtype), count + tests
    script.temporary(2 * together * (width + _INDEX_BYTES) + 3 * together, Basis.BOUNDED)
    script.temporary(radix_sort_bytes(device, together, 8 * width, width, _INDEX_BYTES), Basis.BOUNDED)


@rule("aten::repeat_interleave.Tensor", name="repeat-interleave")
def repeat_interleave(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The counts' running sum, and whether all are not negative, unless the number of results is told."""
    repeats = filled(operator, "repeats")
    count = repeats.element_count
    script.copies(repeats)
    script.temporary(count * _INDEX_BYTES)
    # Sums are 64-bit numbers, which others become before.
    widened = repeats.dtype != "int64"
    copy = script.temporary(count * _INDEX_BYTES if widened else contiguous_copy_bytes(repeats))
    script.release(script.temporary(scan_bytes(device, count)))
    script.release(copy)
    if operator.argument("output_size") is None:
        counts = dense(repeats, (count,))
        smallest = script.torch_release in _SMALLEST_COUNT
        signs = script.temporary(0 if smallest else count)
        kind = counts.dtype if smallest else "bool"
        found = script.temporary(dtype_bytes(kind))
        kernel = ReductionKernel(dtype_bytes(kind))
        reduce(script, device, replace(counts, dtype=kind), frozenset({0}), (kind,), kernel=kernel)
        script.release(found, signs)
    script.outputs()


@rule("aten::glu_backward_jvp")
def glu_backward_jvp(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Products of halves, at most twelve at a time, before the result.

    Source: `aten/src/ATen/native/GatedLinearUnit.cpp` (`glu_backward_jvp`), as PyTorch's own host code asks
    (torch 2.11).
    """
    half = present(operator, "grad_glu")
    held: list[int] = []
    for taken, given_back in ((4, 1), (3, 2), (8, 7)):
        held += [script.temporary(bytes_of(half)) for _ in range(taken)]
        for _ in range(given_back):
            script.release(held.pop())
    script.outputs()
