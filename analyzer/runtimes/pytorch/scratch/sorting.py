"""Sorting, the largest k, and random permutations.

`topk` copies what is not contiguous. Few long rows are shared by several thread blocks, with counts per
block and 256-bin histograms of digits (until torch 2.9 summed up within the last block of a row). A block
of 256 threads takes 4 to 64 elements a thread: as many as it needs for all blocks to run at once, at 40 of
a multiprocessor's 65,536 registers a thread. More than 4,096 values a row are then sorted as `sort` does,
into other tensors, from which they are copied back (`TensorTopK.cpp`).

Source: `aten/src/ATen/native/cuda/Sort.cpp`, `Sort.cu` (`segmented_sort_pairs_by_full_sort`), `TensorTopK.cu`
(`should_use_topk_multi_block`, `mbtopk`, `get_items_per_thread`), `Randperm.cu`, `Sorting.cpp`
(`median_impl`); orders and sizes checked with recorded requests.

Not modelled: results too large for 32-bit indices.
"""

from __future__ import annotations

import math

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.cub import (
    aliased_bytes,
    merge_sort_bytes,
    radix_sort_bytes,
    scan_by_key_bytes,
)
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, moved_last
from analyzer.runtimes.pytorch.scratch.reduction import (
    ReductionKernel,
    both_extremes,
    converted,
    reduce,
    reduced_dims,
)
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, rule

_SMALL_SORT, _SMALL_MODE = 4096, 2048
_INDEX_BYTES = 8
_HALF_BYTES = 4  # a quotient of integers is a float32
_SEGMENTS = 128  # rows from which on each is sorted for itself
# Rows at most -> elements a row must have to be shared by several thread blocks.
_SHARED_ROWS = ((20, 20000), (40, 10000), (80, 8000), (199, 5000), (799, 3000), (4000, 800))
_BLOCK_THREADS = 256
_BLOCKS_AT_ONCE = 65536 // (40 * _BLOCK_THREADS)
_LEAST_ITEMS, _MOST_ITEMS = 4, 64
# Releases of torch in which a row's last thread block sums its digits up itself, instead of a kernel with
# sums in memory, and those that keep what is wanted in place, not in two sets (their binaries' requests:
# `python -m benchmarks releases matrix`).
_COUNTS_WITHIN, _ONE_SET = Span(until=(2, 9)), Span(until=(2, 6))


def _along(tensor: TensorMeta, dim: int) -> tuple[int, int]:
    """Elements along the dimension, and its stride."""
    if not tensor.shape:
        return 1, 1
    return tensor.shape[dim], tensor.stride[dim]


@rule("aten::sort", "aten::argsort.stable")
def sort(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Up to 4,096 elements along the dimension are sorted in the results, with a temporary row of indices.
    Longer rows go through CUB: a single row with a temporary of indices; several at once by value, with
    (segment, position) pairs, then by segment; 128 and more each for itself, with second buffers of keys and
    indices. A dimension that is not the fast one is copied first.
    """
    script.outputs()
    sort_rows(script, device, filled(operator, "self"), operator.integer("dim", default=-1))


def sort_rows(script: Script, device: DeviceProfile, source: TensorMeta, dim: int) -> None:
    """Allocate for a sort along a dimension, besides its results."""
    size, stride = _along(source, dim)
    if size <= _SMALL_SORT:
        row = script.temporary(size * _INDEX_BYTES)
        script.release(row)
        return
    count, width = source.element_count, dtype_bytes(source.dtype)
    if stride != 1:
        script.temporaries(bytes_of(source), bytes_of(source), count * _INDEX_BYTES)
    if count == size:
        script.temporary(count * _INDEX_BYTES)
        script.temporary(radix_sort_bytes(device, count, 8 * width, width, _INDEX_BYTES))
        return
    script.temporary(count * _INDEX_BYTES)
    if count // size >= _SEGMENTS:
        script.temporary(aliased_bytes(count * width, count * _INDEX_BYTES))
        return
    script.temporary(count * _INDEX_BYTES)
    keys = script.temporary(count * width)
    script.release(script.temporary(radix_sort_bytes(device, count, 8 * width, width, _INDEX_BYTES)))
    script.release(keys)
    script.temporary(radix_sort_bytes(device, count, 8, _INDEX_BYTES, 0))


@rule("aten::mode", sure=(Basis.EXACT, Basis.BOUNDED))
def mode(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A copy whose rows lie along the dimension, where they do not. Rows of more than 2,048 elements are
    sorted one after the other, with their positions and CUB's temporary, which is bounded; what is made of
    the sorted ones takes as much again at most.

    Source: `aten/src/ATen/native/cuda/Sorting.cpp` (`mode_kernel_impl`), `TensorModeKernel.cu`.
    """
    source = filled(operator, "self")
    script.outputs()
    if not source.shape:
        return
    dim = operator.integer("dim", default=-1) % len(source.shape)
    size, width = source.shape[dim], dtype_bytes(source.dtype)
    script.copies(moved_last(source, dim))
    if size > _SMALL_MODE:
        script.temporary(bytes_of(source), Basis.BOUNDED)
        script.temporary(size * _INDEX_BYTES, Basis.BOUNDED)
        script.temporary(merge_sort_bytes(size, width), Basis.BOUNDED)


@rule("aten::median", "aten::nanmedian")
def median(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Of all elements: they are sorted, into a copy and with their positions, and the one in the middle is
    picked, of `nanmedian` once those that are no numbers have been counted. Along a dimension: the results
    alone.
    """
    source = filled(operator, "self")
    if len(operator.outputs) != 1:
        return
    count, width = source.element_count, dtype_bytes(source.dtype)
    script.copies(source)
    script.temporary(bytes_of(source))  # sorted
    places = script.temporary(count * _INDEX_BYTES)
    row = script.temporary(count * _INDEX_BYTES)
    if count > _SMALL_SORT:
        script.release(script.temporary(radix_sort_bytes(device, count, 8 * width, width, _INDEX_BYTES)))
    script.release(row, places)
    script.temporary(1) if operator.name == "aten::median" else _middle(script, device, count)
    script.outputs()


def _middle(script: Script, device: DeviceProfile, count: int) -> int:
    """Allocate the middle position (elements less NaNs, halved); return its token."""
    flags = TensorMeta(0, (count,), (1,), "bool", 0)
    held = [script.temporary(count), script.temporary(_INDEX_BYTES)]
    numbers, copy = converted(script, flags, "int64")
    reduce(script, device, numbers, reduced_dims(numbers, None), ("int64",), kernel=ReductionKernel(8))
    if copy is not None:
        script.release(copy)
    held += [script.temporary(_INDEX_BYTES), script.temporary(_HALF_BYTES)]
    place = script.temporary(_INDEX_BYTES)
    script.release(*held[::-1])
    return place


@rule("aten::searchsorted")
def searchsorted(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The smallest and the largest place of an order that is given are looked at first. Values, boundaries
    and order are copied where they are not contiguous.

    Source: `aten/src/ATen/native/BucketizationUtils.h` (`searchsorted_pre_check`,
    `searchsorted_maybe_trim_input_tensors`).
    """
    if (order := operator.tensor("sorter")) is not None and order.element_count:
        with script.function():
            both_extremes(script, device, order)
    _search(operator, script, operator.tensor("sorted_sequence"), order)


@rule("aten::bucketize")
def bucketize(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """As `searchsorted` in one row of boundaries."""
    _search(operator, script, operator.tensor("boundaries"))


def _search(operator: Operator, script: Script, *others: TensorMeta | None) -> None:
    """The result, and copies of what is not contiguous. Not modelled: values and boundaries of other types,
    which are converted."""
    script.outputs()
    values = filled(operator, "self")
    with script.function():
        script.copies(values, *others)


@rule("aten::topk", sure=(Basis.EXACT, Basis.MEASURED))
def topk(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """An input that is not contiguous is copied. Few long rows are shared by several thread blocks: counts a
    block, 256-bin histograms of digits, and the temporary of CUB's scan, twice. More than 4,096 values a row
    are sorted afterwards, into other tensors.
    """
    source, values = filled(operator, "self"), filled(operator, 0)
    script.outputs()
    dim = operator.integer("dim", default=-1)
    with script.function():
        script.copies(source)
        topk_temporaries(script, device, source, _along(source, dim)[0])
    if _along(values, dim)[0] > _SMALL_SORT and operator.argument("sorted") is not False:
        indices = values.element_count * _INDEX_BYTES
        with script.function():
            script.temporaries(indices, values.element_count * dtype_bytes(values.dtype))
            with script.function():
                sort_rows(script, device, values, dim)
            script.release(script.temporary(indices))  # gathered


def topk_temporaries(script: Script, device: DeviceProfile, source: TensorMeta, size: int) -> None:
    """Allocate for the largest k of rows of `size`, if thread blocks share a row."""
    rows = source.element_count // size
    least = next((elements for most, elements in _SHARED_ROWS if rows <= most), 400)
    if size < least:
        return
    items = -(-size * rows // (device.sm_count * _BLOCKS_AT_ONCE * _BLOCK_THREADS))
    blocks = rows * -(-size // (_BLOCK_THREADS * max(_LEAST_ITEMS, min(items, _MOST_ITEMS))))
    sets = 1 if script.torch_release in _ONE_SET else 2
    counted = script.torch_release in _COUNTS_WITHIN
    digits = max(4, dtype_bytes(source.dtype))
    for nbytes in (
        rows * dtype_bytes(source.dtype),
        rows * 4 if counted else 0,  # which block is the row's last
        sets * rows * 4,  # how many are wanted still
        sets * rows * digits,  # of which digits
        blocks * 512,
        0 if counted else rows * 1024,
        blocks * 4,
        blocks * 4,
    ):
        script.temporary(nbytes)
    for _ in range(2):
        script.release(script.temporary(scan_by_key_bytes(device, blocks), Basis.MEASURED))


@rule("aten::randperm")
def randperm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Random keys are sorted with the positions: as many bits as make repeated keys rare enough, so 32-bit
    keys up to about 30,000 positions, 64-bit keys above; with CUB's temporary.
    """
    count = operator.integer("n")
    script.outputs()
    script.release(script.temporary(_INDEX_BYTES))
    bits = math.ceil(math.log2(max(2.0, count - (6 * count * count + 1) / (12 * math.log(0.9)))))
    width = 4 if bits <= 32 else 8
    script.temporaries(count * _INDEX_BYTES, count * width, count * width)
    script.temporary(radix_sort_bytes(device, count, bits, width, _INDEX_BYTES))
