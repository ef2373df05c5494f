"""Operators without a kernel of their own: what the ones they are made of take, beside the result.

1. `isinf` compares magnitudes with infinity; `ldexp` of whole numbers multiplies by powers of two that are made first; `mvlgamma` sums
   logarithms of the gamma function over as many terms as are asked for.
2. `isin` compares every element with every one that is looked for, where those are few; else it sorts both together.
3. A number to the power of a tensor: the number becomes a tensor on the device.
4. `repeat_interleave` by a tensor sums up the counts, and asks whether any is negative, unless it is told how many results there are.

Source: `aten/src/ATen/native/TensorCompare.cpp` (`isinf`, `isin_default_kernel_gpu`, `isin_sorting`), `BinaryOps.cpp` (`ldexp`), `UnaryOps.cpp`
(`mvlgamma`), `Pow.cpp` (`pow_Scalar_out`), `Repeat.h` (`repeat_interleave_common`); orders and sizes as recorded (H200, torch 2.11, `tests/data/h200/operators_masks.json.gz`).

Not modelled: `isin` that sorts, to the byte.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, dtype_bytes
from analyzer.runtimes.pytorch.scratch.cub import radix_sort_bytes, scan_bytes
from analyzer.runtimes.pytorch.scratch.layout import (
    bytes_of,
    contiguous_copy_bytes,
)
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, reduce
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, rule

_INDEX_BYTES = 8
_NUMBER_BYTES, _COMPLEX_BYTES = 8, 16  # a Python number as a tensor: float64 or int64, complex128


@rule("aten::isinf")
def isinf(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Magnitudes are made, then compared with infinity. Whole numbers: the result alone."""
    source = operator.tensor("self")
    if source is not None and "float" in source.dtype:
        script.temporary(bytes_of(source))
    script.outputs()


@rule("aten::ldexp")
def ldexp(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Whole numbers are multiplied by powers of two that are made first. Others: the result alone."""
    source, result = operator.tensor("self"), operator.outputs[0]
    if source is not None and result is not None and "float" not in source.dtype:
        script.temporary(bytes_of(result))
        script.release(script.temporary(_INDEX_BYTES))
    script.outputs()


@rule("aten::mvlgamma")
def mvlgamma(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The terms of all elements, added to a row of halves; then their sum."""
    result, terms = operator.outputs[0], operator.integer("p", default=1)
    if result is None:
        return
    halves = script.temporary(terms * dtype_bytes(result.dtype))
    script.temporary(terms * bytes_of(result))
    script.release(halves)
    script.outputs()


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
    """Every element beside every one looked for, one byte each, and whether any is equal. Where those are many: both in one row, sorted
    with their positions and compared with their neighbours, which is bounded.
    """
    source, wanted = operator.tensor("elements"), operator.tensor("test_elements")
    script.outputs()
    if source is None or wanted is None or source.element_count == 0:
        return
    count, tests = source.element_count, wanted.element_count
    if tests < 10 * count**0.145:
        script.temporary(count * tests)
        script.temporary(count)
        pairs = replace(source, shape=(count, tests), stride=(tests, 1), offset=0, dtype="bool")
        reduce(script, device, pairs, frozenset({1}), ("bool",), kernel=ReductionKernel(1))
        return
    width, together = dtype_bytes(source.dtype), count + tests
    script.temporary(2 * together * (width + _INDEX_BYTES) + 3 * together, Basis.BOUNDED)
    script.temporary(radix_sort_bytes(device, together, 8 * width, width, _INDEX_BYTES), Basis.BOUNDED)


@rule("aten::repeat_interleave.Tensor", name="repeat-interleave")
def repeat_interleave(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The counts' running sum, and whether all are not negative, unless the number of results is told."""
    repeats = operator.tensor("repeats")
    if repeats is None or repeats.element_count == 0:
        return
    count = repeats.element_count
    script.temporary(contiguous_copy_bytes(repeats))
    script.temporary(count * _INDEX_BYTES)
    copy = script.temporary(contiguous_copy_bytes(repeats))
    script.release(script.temporary(scan_bytes(device, count, _INDEX_BYTES)))
    script.release(copy)
    if operator.argument("output_size") is None:
        signs = script.temporary(count)
        every = script.temporary(1)
        flags = replace(repeats, shape=(count,), stride=(1,), offset=0, dtype="bool")
        reduce(script, device, flags, frozenset({0}), ("bool",), kernel=ReductionKernel(1))
        script.release(every)
        script.release(signs)
    script.outputs()
