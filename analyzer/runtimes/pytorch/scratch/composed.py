"""Operators without a kernel of their own, or one beside others: what these take, beside the result.

1. `repeat_interleave` by a tensor sums up the counts, and asks whether any is negative, unless it is told how
   many results there are: of each count until torch 2.11, of the smallest in 2.15 (the releases in between
   were not asked).
2. Of segments of a tensor, each reduced to one row, lengths are summed up to offsets, behind a zero; of
   offsets the lengths are taken. Segments of numbers, not of rows, are CUB's, which takes a byte. Before all
   that lengths are checked, unless `unsafe` says they need not be: the least of them, then each row's sum.

Source: `aten/src/ATen/native/TensorCompare.cpp` (`isin_default_kernel_gpu`, `isin_sorting`), `Pow.cpp`
(`pow_Scalar_out`), `Repeat.h` (`repeat_interleave_common`); orders and sizes as recorded (H200, torch 2.11,
`tests/data/h200/operators_masks.json.gz`); `Distance.cpp` (`_cdist_backward`), `cuda/DistanceKernel.cu`
(`cdist_backward_kernel_impl`, `pdist_backward_kernel_impl`), `SegmentReduce.cpp`, `cuda/SegmentReduce.cu`
(`_get_complete_sum`), as PyTorch's own host code asks under the emulated runtime (torch 2.11); checks of
lengths as recorded on an H200.

Not modelled: `isin` that sorts, to the byte.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.cub import radix_sort_bytes, scan_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, contiguous_copy_bytes, dense
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, reduce, sum_over
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
        total = script.temporary(dtype_bytes(kind))
        kernel = ReductionKernel(dtype_bytes(kind))
        reduce(script, device, replace(counts, dtype=kind), frozenset({0}), (kind,), kernel=kernel)
        script.release(total, signs)
    script.outputs()


@rule("aten::_cdist_backward", name="distance-grad")
def distance_gradient(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Copies of what is not contiguous, then for every pair of points a row of numbers, which are summed over
    the other points."""
    first, second = present(operator, "x1"), present(operator, "x2")
    distances, grad = present(operator, "cdist"), present(operator, "grad", "grad_output")
    script.copies(first, second, distances, grad)
    script.output(0)
    if 0 in (first.element_count, second.element_count, grad.element_count) or not operator.argument("p"):
        return
    *batch, points, width = first.shape
    shape = (*batch, second.shape[-2], points, width)
    buffer = dense(first, shape)
    script.temporary(bytes_of(buffer))
    sum_over(script, device, buffer, (len(batch),))


@rule("aten::_pdist_backward", name="pair-distance-grad")
def pair_distance_gradient(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """For every pair of points a row of numbers, which are summed over the other points."""
    source = filled(operator, "self")
    script.outputs()
    if not operator.argument("p"):
        return
    points, width = source.shape
    buffer = dense(source, (points - 1, points, width))
    script.temporary(bytes_of(buffer))
    sum_over(script, device, buffer, (0,))


@rule("aten::segment_reduce", "aten::_segment_reduce_backward", name="segments")
def segments(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Copies of what is not contiguous, the result, and where segments begin."""
    lengths, offsets, data = (operator.tensor(name) for name in ("lengths", "offsets", "data"))
    forward = "backward" not in operator.name
    if forward and lengths is not None and not operator.argument("unsafe"):
        _checks(lengths, device, script)
    script.copies(*(operator.tensor(name) for name in ("grad", "output", "data")))
    script.copies(operator.tensor("offsets") if lengths is None else lengths)
    script.outputs()
    if lengths is not None:
        rows = lengths.element_count // max(lengths.shape[-1], 1)
        zero = script.temporary(rows * _INDEX_BYTES)
        places = rows * (lengths.shape[-1] + 1)
        script.temporary(places * _INDEX_BYTES)
        script.release(zero)
        script.release(script.temporary(scan_bytes(device, places)))
    elif offsets is not None:
        script.temporary(bytes_of(offsets) // max(offsets.shape[-1], 1) * max(offsets.shape[-1] - 1, 0))
    if forward and data is not None and len(data.shape) == 1:
        script.release(script.temporary(1))


def _checks(lengths: TensorMeta, device: DeviceProfile, script: Script) -> None:
    """Allocate for the checks that no length is negative and that each row sums to the whole."""
    least = script.temporary(_INDEX_BYTES)
    sum_over(script, device, lengths)
    script.release(least)
    rows = lengths.element_count // max(lengths.shape[-1], 1)
    sums = script.temporary(rows * _INDEX_BYTES)
    sum_over(script, device, lengths, (len(lengths.shape) - 1,))
    script.release(script.temporary(rows), script.temporary(1))
    script.release(sums)
