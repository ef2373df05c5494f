"""Reductions on sizes worked out by hand: the iterated loop, blocks a result, staging, and who converts what."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from analyzer.graph import TensorMeta
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, Staging, reduced_dims, staging
from analyzer.runtimes.pytorch.scratch.tensor_iterator import IteratedLoop, pointwise_strides, reduction_loop
from tests.runtimes.pytorch.scratch.handwritten import H200, call, channels_last, spread, tensor, words
from tests.schemas import called

FLOAT = ReductionKernel(4)


def along(count: int, results: int = 1, width: int = 4) -> IteratedLoop:
    """Rows reduced along their fast dimension."""
    if results == 1:
        return IteratedLoop((count,), ((0,), (width,)), 1)
    return IteratedLoop((count, results), ((0, 4), (width, width * count)), 1)


def across(count: int, results: int, width: int = 4) -> IteratedLoop:
    """Columns reduced across rows: neighbours are different results."""
    return IteratedLoop((count, results), ((0, 4), (width * results, width)), 1)


@pytest.mark.parametrize(
    ("loop", "kernel", "expected"),
    [
        # One result, 512 threads, 4 a load: 255 x 512 values leave 255 a thread, 256 x 512 are split by 16 values each.
        (along(512 * 255), FLOAT, (0, 0)),
        (along(512 * 256), FLOAT, (4 * 16, 4)),
        (along(512 * 255 + 1), FLOAT, (4 * 16, 4)),
        (along(512 * 1600), FLOAT, (4 * 100, 4)),
        # At most what the GPU has room for, 132 x 4 blocks; but no thread adds more than 256 values.
        (along(512 * 16 * 600), FLOAT, (4 * 528, 4)),
        (along(512 * 256 * 600), FLOAT, (4 * 600, 4)),
        # 8 results: blocks of 64 x 8 threads, 8 columns of blocks.
        (along(64 * 8 * 256, 8), FLOAT, (4 * 8 * 16, 4 * 8)),
        # Across: 64 results, 4 a load, 16 lanes x 8 warps; every lane keeps 4 results of its own.
        (across(8 * 256, 64), FLOAT, (4 * 64 * 16 * 16 * 4, 4)),
        (across(8 * 255, 64), FLOAT, (0, 0)),
        # 66 results are 2 a load: 33 of them, 32 lanes x 8 warps, 2 columns.
        (across(8 * 256, 66), FLOAT, (4 * 66 * 16 * 32 * 2, 8)),
        (across(16 * 256, 67), FLOAT, (4 * 67 * 16 * 32, 12)),
        # Complex numbers of 16 bytes: 256 threads.
        (along(256 * 256, width=16), ReductionKernel(16), (16 * 16, 4)),
        (along(256 * 255, width=16), ReductionKernel(16), (0, 0)),
        (IteratedLoop((), ((), ()), 1), FLOAT, (0, 0)),
    ],
)
def test_staging(loop: IteratedLoop, kernel: ReductionKernel, expected: tuple[int, int]) -> None:
    width = max((stride for stride in loop.strides[-1][:1] if loop.shape and len(loop.shape) == 1), default=4)
    assert staging(loop, width, 0, kernel, H200) == Staging(*expected)


def test_staging_depends_on_the_gpu() -> None:
    small = dataclasses.replace(H200, sm_count=5)
    assert staging(along(512 * 16 * 600), 4, 0, FLOAT, small).buffer_bytes == 4 * 38  # 9,600 values, 256 each
    assert staging(along(512 * 1600), 4, 0, FLOAT, small).buffer_bytes == 4 * 20  # 5 x 4 blocks have room
    few = dataclasses.replace(H200, sm_count=1, max_threads_per_sm=512)
    assert staging(along(512 * 256), 4, 0, FLOAT, few) == Staging(0, 0)  # one block, 256 values


def test_an_offset_breaks_vectors_of_results() -> None:
    """At element 1, results are loaded one by one: 32 lanes x 16 warps, 256 values, 16 blocks; at 2 by two: 32 lanes x
    8 warps, 512 values, 32 blocks; at a multiple of 4 by four: 16 lanes."""
    loop = across(16 * 256, 64)
    lanes = {
        offset: staging(loop, 4, offset, FLOAT, H200).buffer_bytes // (4 * 64 * 16) for offset in (0, 1, 2, 4)
    }
    assert lanes == {0: 2 * 16 * 4, 1: 32, 2: 2 * 32 * 2, 4: 2 * 16 * 4}


def test_dimensions_of_a_reduction() -> None:
    source = tensor(2, 3, 4)
    assert reduced_dims(source, None) == reduced_dims(source, ()) == {0, 1, 2}
    assert reduced_dims(source, (-1, 0)) == {0, 2}
    assert reduced_dims(tensor(), (0,)) == reduced_dims(tensor(), (-1,)) == frozenset()


@pytest.mark.parametrize(
    ("source", "reduced", "shape", "strides"),
    [
        (tensor(6, 5), {1}, (5, 6), ((0, 4), (4, 20))),
        (tensor(6, 5), {0}, (6, 5), ((0, 4), (20, 4))),
        (tensor(6, 5), {0, 1}, (30,), ((0,), (4,))),
        (tensor(6, 5), set(), (30,), ((4,), (4,))),
        (tensor(6, 1, 5), {2}, (5, 6), ((0, 4), (4, 20))),
        (tensor(6, 5, stride=(10, 2)), {0, 1}, (30,), ((0,), (8,))),
        (tensor(6, 5, stride=(12, 2)), {0, 1}, (5, 6), ((0, 0), (8, 48))),
        (channels_last(2, 3, 4, 5), {0, 2, 3}, (40, 3), ((0, 4), (12, 4))),
        (channels_last(2, 3, 4, 5), {1}, (3, 40), ((0, 4), (4, 12))),
        (tensor(6, 5, stride=(0, 1)), {0}, (6, 5), ((0, 4), (0, 4))),
    ],
)
def test_reduction_loops(
    source: TensorMeta, reduced: set[int], shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> None:
    loop = reduction_loop(source, frozenset(reduced), ("float32",))
    assert (loop.shape, loop.strides, loop.result_count) == (shape, strides, 1)


def test_a_kept_dimension_of_one_is_not_marked_as_reduced() -> None:
    source = tensor(6, 1)
    assert reduction_loop(source, frozenset({1}), ("float32",), keepdim=True).strides == ((4,), (4,))
    several = reduction_loop(tensor(6, 5), frozenset({1}), ("float32", "int64"))
    assert (several.strides, several.result_count) == (((0, 4), (0, 8), (4, 20)), 2)
    empty = reduction_loop(tensor(0, 5), frozenset({1}), ("float32",))
    assert empty.element_count == empty.output_element_count == 0
    nothing = reduction_loop(tensor(5, 0), frozenset({1}), ("float32",))
    assert nothing.element_count == nothing.output_element_count == 0  # as `num_output_elements` counts


@pytest.mark.parametrize(
    ("sources", "shape", "strides"),
    [
        ((tensor(2, 3), tensor(2, 3)), (2, 3), (3, 1)),
        ((tensor(2, 3, stride=(1, 2)),), (2, 3), (1, 2)),
        ((tensor(2, 3, stride=(1, 2)), tensor(2, 3)), (2, 3), (1, 2)),  # the first decides
        ((tensor(2, 1), tensor(3)), (2, 3), (3, 1)),
        ((tensor(3), tensor(2, 3, stride=(1, 2))), (2, 3), (1, 2)),
        ((tensor(2, 2), tensor(1, 2)), (2, 2), (2, 1)),
        ((tensor(4, 1, stride=(1, 4)), tensor(1, 5)), (4, 5), (5, 1)),
        ((tensor(2, 3, 4, stride=(1, 8, 2)),), (2, 3, 4), (1, 8, 2)),
        ((tensor(2, 3, stride=(0, 0)), tensor(2, 3, stride=(1, 2))), (2, 3), (1, 2)),
        ((tensor(3, 2, stride=(1, 1)),), (3, 2), (2, 1)),  # equal strides: the smaller extent first
        ((tensor(2, 3, stride=(1, 1)),), (2, 3), (1, 2)),
        ((tensor(2, 0, 3),), (2, 0, 3), (3, 3, 1)),
        # What is broadcast decides nothing, wherever its one element lies.
        ((tensor(1, 3), tensor(2, 3)), (2, 3), (3, 1)),
        ((tensor(1, 2, stride=(1, 4)), tensor(2, 2)), (2, 2), (2, 1)),
    ],
)
def test_pointwise_results(
    sources: tuple[TensorMeta, ...], shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    assert pointwise_strides(sources) == (shape, strides)


def test_loops_are_split_where_32_bits_end() -> None:
    """The last byte reached must be at most 2^31 - 1; the longest dimension in bytes is halved, front first."""
    assert IteratedLoop((2**31 - 1,), ((1,),), 1).fits_32bit()
    assert not IteratedLoop((2**31,), ((1,),), 1).fits_32bit()
    assert not IteratedLoop((2**31,), ((0,),), 1).fits_32bit()
    assert [part.shape for part in IteratedLoop((2**31 + 1,), ((1,),), 1).parts()] == [(2**30,), (2**30 + 1,)]
    wide = IteratedLoop((3, 2**30), ((2**30, 1), (0, 0)), 2)
    assert [part.shape for part in wide.parts()] == [(1, 2**30), (1, 2**30), (1, 2**30)]
    assert all(part.strides == wide.strides and part.result_count == 2 for part in wide.parts())
    backwards = IteratedLoop((2**29, 2), ((-8, 1),), 1)
    assert backwards.fits_32bit()
    tall = IteratedLoop((2, 2**29), ((4, 8),), 1)
    assert [part.shape for part in tall.parts()] == [(2, 2**28), (2, 2**28)]


ROWS, ONE = tensor(2048, 768), tensor(768)
BUFFER = f"+{4 * 768 * 32 * 32 * 4} +24 -24 -{4 * 768 * 32 * 32 * 4}"  # see `test_bias_gradient_by_hand`


def reduced(name: str, *arguments: Any, out: tuple[TensorMeta | None, ...] = (ONE,), **keywords: Any) -> str:
    return words(call(name, arguments, out, **keywords))


@pytest.mark.parametrize("name", ["sum.dim_IntList", "mean.dim", "prod.dim_int", "amax", "amin"])
def test_reductions_over_rows_are_staged(name: str) -> None:
    assert reduced(f"aten::{name}", ROWS, (0,)) == f"=0 {BUFFER}"
    assert reduced(f"aten::{name}", ROWS, (0,), True) == f"=0 {BUFFER}"
    assert reduced(f"aten::{name}", ROWS, (1,)) == "=0"
    assert reduced(f"aten::{name}", ROWS, dim=(0,)) == f"=0 {BUFFER}"
    assert reduced(f"aten::{name}", tensor(0, 768), (0,)) == "=0"


def test_norms_name_their_dimensions_one_later() -> None:
    for name in ("aten::linalg_vector_norm", "aten::norm.ScalarOpt_dim"):
        assert reduced(name, ROWS, 2, (0,)) == f"=0 {BUFFER}"
        assert reduced(name, ROWS, 0, (1,)) == "=0"


LONG = 512 * 1024


@pytest.mark.parametrize("name", ["aten::sum", "aten::mean", "aten::prod"])
def test_halves_accumulate_in_four_bytes(name: str) -> None:
    """512 threads add 1,024 values each: 64 blocks of 16 values a thread."""
    half = (tensor(dtype="float16"),)
    assert reduced(name, tensor(1000, dtype="float16"), out=half) == "=0"
    assert reduced(name, tensor(LONG, dtype="float16"), out=half) == "=0 +256 +4 -4 -256"


def test_integers_are_converted_before_their_sum() -> None:
    flags = tensor(1000, dtype="bool")
    assert reduced("aten::sum", flags, out=(tensor(dtype="int64"),)) == "=0 +8000 -8000"
    assert reduced("aten::mean", tensor(1000, dtype="float16"), out=(tensor(),)) == "=0"
    assert (
        reduced("aten::sum", tensor(1000, dtype="float16"), out=(tensor(dtype="float64"),))
        == "=0 +8000 -8000"
    )
    assert reduced("aten::sum", tensor(1000), out=(tensor(dtype="float16"),)) == "=0 +2000 -2000"
    assert reduced("aten::sum", tensor(1000, dtype="complex64"), out=(tensor(),)) == "=0"
    assert reduced("aten::sum", ROWS, (0,), out=(None,)) == "=0"


def test_moments_keep_sixteen_bytes_a_result() -> None:
    """2 results a load would need even strides; the accumulator is (mean, squares, count, count)."""
    buffer = 16 * 768 * 32 * 32 * 4
    staged = f"=0 +{buffer} +24 -24 -{buffer}"
    for name in ("aten::var.dim", "aten::std.dim"):
        assert reduced(name, ROWS, (0,), True, True) == reduced(name, ROWS, (0,)) == staged
        assert reduced(name, ROWS, (1,)) == "=0"
    assert reduced("aten::var.correction", ROWS, (0,), correction=1, keepdim=True) == staged
    assert reduced("aten::var.correction", ROWS, 0) == staged
    assert reduced("aten::var_mean.correction", ROWS, (0,), out=(ONE, ONE)) == staged.replace("=0", "=0 =1")
    whole = reduced("aten::var", tensor(LONG), True)
    assert whole == reduced("aten::var", tensor(LONG)) == "=0 +1024 +4 -4 -1024"
    double = tensor(LONG, dtype="float64")
    assert reduced("aten::var", double) == "=0 +2048 +4 -4 -2048"
    assert reduced("aten::var.dim", ROWS, (0,), out=(None,)) == "=0"


def test_logic_accumulates_in_the_inputs_type() -> None:
    long, flag = tensor(LONG), tensor(dtype="bool")
    assert reduced("aten::all", long, out=(flag,)) == "=0 +256 +4 -4 -256"
    assert reduced("aten::any", tensor(LONG, dtype="int64"), out=(flag,)) == "=0 +512 +4 -4 -512"
    assert reduced("aten::any.dim", ROWS, 0, out=(tensor(768, dtype="bool"),)) == f"=0 {BUFFER}"
    assert reduced("aten::any.dim", ROWS, 1, out=(tensor(2048, dtype="bool"),)) == "=0"
    assert reduced("aten::all", long, out=(None,)) == "=0 +256 +4 -4 -256"


def test_extremes_with_their_places_keep_sixteen_bytes() -> None:
    pairs = 16 * 768 * 32 * 32 * 4
    out = (ONE, tensor(768, dtype="int64"))
    for name in ("aten::max.dim", "aten::min.dim"):
        assert reduced(name, ROWS, 0, out=out) == f"=0 =1 +{pairs} +24 -24 -{pairs}"
        assert reduced(name, ROWS, 1, out=out) == "=0 =1"
    assert reduced("aten::max.other", ROWS, ROWS, out=(ROWS,)) == "=0"
    assert reduced("aten::max", tensor(LONG)) == "=0 +256 +4 -4 -256"
    place = (tensor(768, dtype="int64"),)
    assert reduced("aten::argmax", ROWS, 0, out=place) == f"=0 +{pairs} +24 -24 -{pairs}"
    long = tensor(2, LONG // 2)
    assert reduced("aten::argmin", long, out=place) == "=0 +1024 +4 -4 -1024"
    assert reduced("aten::argmax", spread(tensor(10, 10)), out=place) == "=0 +400 -400"
    both = 8 * 768 * 32 * 32 * 4
    assert reduced("aten::aminmax", ROWS, dim=0, out=(ONE, ONE)) == f"=0 =1 +{both} +24 -24 -{both}"
    assert reduced("aten::aminmax", tensor(LONG), out=(ONE, ONE)) == "=0 =1 +512 +4 -4 -512"


def test_counts_histograms_and_magnitudes() -> None:
    n = LONG
    count = (tensor(dtype="int64"),)
    name = "aten::count_nonzero.dim_IntList"
    assert reduced(name, tensor(100), (), out=count) == "+100 =0 +800 -800 -100"
    assert reduced(name, tensor(n), (0,), out=count) == f"+{n} =0 +{8 * n} +512 +4 -4 -512 -{8 * n} -{n}"
    bins = (tensor(100),)
    assert reduced("aten::histc", tensor(100), out=bins) == "=0 +4 -4 +4 -4"
    assert reduced("aten::histc", tensor(n), out=bins) == "=0 +4 +256 +4 -4 -256 -4 +4 +256 +4 -4 -256 -4"
    limited = [call("aten::histc", (tensor(n), 100, *limits), bins) for limits in ((0, 7), (3, 3))]
    assert words(limited[0]) == "=0"
    assert words(limited[1]) == "=0 +4 +256 +4 -4 -256 -4 +4 +256 +4 -4 -256 -4"
    assert words(call("aten::histc", (tensor(n), 100), bins, max=7)) == "=0"
    assert reduced("aten::abs", tensor(100)) == "=0"
    assert reduced("aten::abs", tensor(100, dtype="complex64")) == "=0 +800 -800"


def test_loops_in_parts_keep_halves_in_a_buffer() -> None:
    """2^31 halves in one row: two parts of 2^30, each with its own staging, and one result kept in float32."""
    huge = tensor(1 << 31, dtype="float16")
    part = f"+{4 * 8192} +4 -4 -{4 * 8192}"  # 2^21 values a thread: 8,192 blocks of 256 values
    assert reduced("aten::sum", huge, out=(tensor(dtype="float16"),)) == f"=0 +4 {part} {part} -4"
    whole = reduced("aten::sum", huge, out=(tensor(),))
    assert whole == f"=0 {part} {part}"


def test_a_reduction_of_no_elements() -> None:
    assert words(called(0, "aten::sum", (tensor(0),), (tensor(),))) == "=0"
