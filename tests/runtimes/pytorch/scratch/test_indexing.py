"""Embeddings, indices, rolls and running sums, told by hand."""

from __future__ import annotations

import dataclasses

import pytest

from analyzer.graph import Phase, TensorMeta
from analyzer.runtimes.pytorch.scratch.cub import radix_sort_bytes, scan_bytes, unique_bytes
from analyzer.runtimes.pytorch.scratch.layout import is_one_row
from tests.runtimes.pytorch.scratch.handwritten import H200, call, spread, tensor, words


def index(*shape: int, stride: tuple[int, ...] = ()) -> TensorMeta:
    return tensor(*shape, stride=stride, dtype="int64")


@pytest.mark.parametrize(
    ("source", "flat"),
    [
        (tensor(4, 6), True),
        (tensor(4, 6, stride=(12, 2)), True),
        (tensor(4, 6, stride=(0, 1)), False),
        (tensor(4, 6, stride=(1, 4)), False),
        (tensor(1, 6, stride=(99, 3)), True),
        (tensor(4, 1, 6, stride=(6, 5, 1)), True),
        (tensor(), True),
    ],
)
def test_flattening_in_place(source: TensorMeta, flat: bool) -> None:
    assert is_one_row(source.shape, source.stride) == flat


def test_embedding_copies_an_index_it_cannot_flatten() -> None:
    table, out = tensor(10, 8), tensor(4, 6, 8)
    assert words(call("aten::embedding", (table, index(4, 6)), (out,))) == "=0"
    assert words(call("aten::embedding", (table, index(4, 6, stride=(0, 1))), (out,))) == "+192 =0 -192"
    assert words(call("aten::embedding", (table, index(24, stride=(2,))), (out,))) == "=0"
    assert words(call("aten::embedding", (table, None), (out,))) == "=0"


def backward(
    count: int,
    weights: int,
    columns: int,
    by_frequency: bool = False,
    dtype: str = "float32",
    **changes: TensorMeta,
) -> str:
    arguments = (
        changes.get("grad", tensor(count, columns, dtype=dtype)),
        changes.get("indices", index(count)),
        *(weights, -1, by_frequency),
    )
    return words(call("aten::embedding_dense_backward", arguments, (tensor(weights, columns, dtype=dtype),)))


def test_embedding_backward_adds_few_rows_directly() -> None:
    assert backward(3072, 100, 8) == backward(0, 100, 8) == backward(0, 100, 8, True) == "=0"
    copies = backward(10, 100, 8, grad=spread(tensor(10, 8)), indices=index(10, stride=(2,)))
    assert copies == "+80 +320 =0 -320 -80"
    nothing = call("aten::embedding_dense_backward", (None, index(5000), 10), (tensor(10, 8),))
    assert (
        words(nothing) == words(dataclasses.replace(nothing, arguments=(tensor(5000, 8), None, 10))) == "=0"
    )


def sorted_rows(count: int, weights: int, by_frequency: bool) -> tuple[list[str], list[int], int]:
    """The common part: words so far, what is held, and the partial segments."""
    array, segments = count * 8, min(count, weights)
    sort, unique, scan = (
        radix_sort_bytes(H200, count, 64),
        unique_bytes(H200, count),
        scan_bytes(H200, segments),
    )
    told = [f"+{array} +{array} +{array} +{sort} -{sort} -{array}"]
    held = [array, array]
    if by_frequency:
        told.append(f"+{array}")
        held.append(array)
    told.append(f"=0 +{array} +8 +{array} +{unique} -{unique} -{array}")
    partial = count // 10 + segments
    told.append(f"+{segments * 8} +{segments * 8} +{scan} -{scan} +8 +{partial * 8}")
    return told, [*held, array, 8, segments * 8, segments * 8, 8, partial * 8], partial


@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("weights", [3000, 9000])
def test_embedding_backward_sums_segments(weights: int, by_frequency: bool) -> None:
    """Partial sums in float32, one row a partial segment of at most 10."""
    count, columns = 5000, 64
    told, held, partial = sorted_rows(count, weights, by_frequency)
    sums = partial * columns * 4
    given = " ".join(f"-{nbytes}" for nbytes in reversed([*held, sums]))
    assert backward(count, weights, columns, by_frequency, "float16") == f"{' '.join(told)} +{sums} {given}"


def test_embedding_backward_counts_no_frequencies_unless_told() -> None:
    bare = call("aten::embedding_dense_backward", (tensor(10, 8), index(10), 100), (tensor(100, 8),))
    assert words(bare) == "=0"


def test_embedding_backward_by_frequency_sorts_few_rows_too() -> None:
    told, held, partial = sorted_rows(100, 1000, True)
    sums = partial * 64 * 4
    given = " ".join(f"-{nbytes}" for nbytes in reversed([*held, sums]))
    assert backward(100, 1000, 64, True) == f"{' '.join(told)} +{sums} {given}"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_embedding_backward_adds_few_segments_atomically(dtype: str) -> None:
    """50 segments of 64 columns are 50 blocks for 132 x 4 places, and over 200 partial segments: 5,000 // 10 + 50."""
    count, weights, columns = 5000, 50, 64
    told, held, partial = sorted_rows(count, weights, False)
    extra = [partial * 8] + ([weights * columns * 4] if dtype == "float16" else [])
    taken = " ".join(f"+{nbytes}" for nbytes in extra)
    given = " ".join(f"-{nbytes}" for nbytes in reversed([*held, *extra]))
    assert backward(count, weights, columns, dtype=dtype) == f"{' '.join(told)} {taken} {given}"


@pytest.mark.parametrize(
    ("count", "weights", "columns", "atomic"),
    [
        (50_000, 527, 64, True),  # 527 blocks of 64 lanes are fewer than 528
        (50_000, 528, 64, False),
        (50_000, 527, 1025, False),  # more than 1,024 lanes: two blocks a segment
        (50_000, 263, 2048, True),
        (50_000, 264, 2048, False),
        (50_000, 527, 33, True),
        (3080, 103, 64, False),  # 308 + 103 partial segments, not above 4 x 103
        (3090, 103, 64, False),
        (3100, 103, 64, True),
    ],
)
def test_when_segments_are_added_atomically(count: int, weights: int, columns: int, atomic: bool) -> None:
    partial = count // 10 + min(count, weights)
    taken = partial * 8 if atomic else partial * columns * 4
    assert f"+{partial * 8} +{taken} -{taken} -{partial * 8}" in backward(count, weights, columns)


def test_indices_of_unlike_strides_are_made_contiguous() -> None:
    source, out = tensor(9, 9), tensor(4, 6)
    even, turned, row = index(4, 6), index(4, 6, stride=(1, 4)), index(6)
    name = "aten::index.Tensor"
    assert words(call(name, (source, (even, even)), (out,))) == "=0"
    assert words(call(name, (source, (turned, turned)), (out,))) == "=0"
    assert words(call(name, (source, (turned, None)), (out,))) == "=0"
    assert words(call(name, (source, (even, turned)), (out,))) == "+192 =0 -192"
    assert words(call(name, (source, (even, None, row)), (out,))) == "+192 =0 -192"
    column = index(4, 1)
    assert words(call(name, (source, (column, row)), (out,))) == "+192 +192 =0 -192 -192"
    assert words(call(name, (source, None), (out,))) == "=0"
    # What is broadcast along 2 rows has no stride there: unlike an index that moves.
    assert words(call(name, (source, (index(1, 6, stride=(6, 1)), index(2, 6))), (tensor(2, 6),))) == (
        "+96 =0 -96"
    )
    ones = index(1, 6, stride=(6, 1))
    assert words(call(name, (source, (ones, index(1, 6, stride=(1, 1)))), (tensor(1, 6),))) == "=0"


def put(
    indices: tuple[TensorMeta | None, ...], values: TensorMeta, phase: Phase = Phase.BACKWARD, **more: object
) -> str:
    name = str(more.get("name", "aten::index_put_"))
    arguments = (tensor(20, 30, 5), indices, values, *more.get("flags", (True,)))  # type: ignore[misc]
    return words(dataclasses.replace(call(name, arguments, (tensor(20, 30, 5),)), phase=phase))


def test_index_put_without_accumulation_is_pointwise() -> None:
    even, turned = index(4, 6), index(4, 6, stride=(1, 4))
    assert put((even, turned), tensor(4, 6, 5), flags=(False,)) == "=0 +192 -192"
    assert put((even, None), tensor(4, 6, 5), flags=()) == "=0"
    assert put((), tensor(4, 6, 5)) == put((None,), tensor(4, 6, 5)) == "=0"
    for target, values in ((None, tensor(4)), (tensor(4), None)):
        assert words(call("aten::index_put_", (target, (index(4),), values, True), (tensor(4),))) == "=0"


def test_index_put_with_accumulation_sorts() -> None:
    """24 places of 5 values each among 20 (or 20 x 30): a linear index, sorted with its positions."""
    one = index(24)
    sort = radix_sort_bytes(H200, 24, 5)
    common = f"+192 +192 +192 +{sort} -{sort} -192 -192 -192"
    assert put((one,), tensor(24, 30, 5)) == f"=0 +192 +192 -192 {common} -192"
    assert put((one, one), tensor(24, 5)) == f"=0 +192 +192 -192 +192 +192 -192 -192 {common} -192"
    values = 24 * 5 * 4
    copied = f"=0 +192 +192 -192 +192 +192 -192 -192 +{values} {common} -{values} -192"
    assert put((one, one), spread(tensor(24, 5))) == put((one, one), tensor(1, 5)) == copied


def test_index_put_sorts_by_as_many_bits_as_places() -> None:
    """5,000 indices: those among 20 have 5 bits, one pass; among 600, 10 bits, two passes and second buffers."""
    many = index(5000)
    assert f"+{radix_sort_bytes(H200, 5000, 5)} " in put((many,), tensor(5000, 30, 5))
    assert f"+{radix_sort_bytes(H200, 5000, 10)} " in put((many, many), tensor(5000, 5))
    assert radix_sort_bytes(H200, 5000, 5) < radix_sort_bytes(H200, 5000, 10)


def test_index_put_outside_autograd_checks_bounds() -> None:
    """The largest and the smallest index are found, and read back as a flag, for every index."""
    one = index(24)
    check = "+8 +1 -1 -8 +8 +1 -1 -8"
    plain = put((one,), tensor(24, 30, 5))
    assert put((one,), tensor(24, 30, 5), Phase.FORWARD) == plain.replace("=0 ", f"=0 {check} ", 1)
    unsafe = {"name": "aten::_index_put_impl_", "flags": (True, True)}
    assert put((one,), tensor(24, 30, 5), Phase.FORWARD, **unsafe) == plain
    safe = {"name": "aten::_index_put_impl_", "flags": (True, False)}
    assert put((one,), tensor(24, 30, 5), Phase.FORWARD, **safe) == plain.replace("=0 ", f"=0 {check} ", 1)
    other = {"name": "aten::index_put_", "flags": (True,)}
    assert put((one,), tensor(24, 30, 5), Phase.FORWARD, **other) == plain.replace("=0 ", f"=0 {check} ", 1)
    strided = index(24, stride=(2,))
    copied = "+8 +192 -192 +1 -1 -8"
    assert put((strided,), tensor(24, 30, 5), Phase.FORWARD).startswith(f"=0 {copied} {copied} +192")
    many = index(1 << 20)
    staged = "+8 +1024 +4 -4 -1024 +1 -1 -8"  # 128 partial results of 8 bytes
    assert put((many,), tensor(1 << 20, 30, 5), Phase.FORWARD).startswith(f"=0 {staged} {staged} +")


def test_roll_over_several_dimensions() -> None:
    source = tensor(4, 6)
    assert words(call("aten::roll", (source, (1,), (0,)), (source,))) == "=0"
    assert words(call("aten::roll", (source, (1,)), (source,))) == "=0"
    assert words(call("aten::roll", (source, (1, 1), (0, 1)), (source,))) == "+96 =0 -96"
    assert words(call("aten::roll", (spread(source), (1, 1), (0, 1)), (source,))) == "+96 +96 -96 =0 -96"
    assert words(call("aten::roll", (source, (1, 1, 1), (0, 1, 0)), (source,))) == "+96 +96 =0 -96 -96"
    assert words(call("aten::roll", (None, (1,), (0,)), (source,))) == "=0"


def test_running_sums() -> None:
    """Input brought to the result's type and made contiguous; over a whole tensor in one line, CUB's scan."""
    name, line = "aten::cumsum", tensor(2000)
    scan = scan_bytes(H200, 2000, "float32")
    assert words(call(name, (line, 0), (line,))) == f"=0 +{scan} -{scan}"
    assert words(call(name, (tensor(4, 6), 1), (tensor(4, 6),))) == "=0"
    assert words(call(name, (tensor(1, 2000), 1), (tensor(1, 2000),))) == f"=0 +{scan} -{scan}"
    assert words(call(name, (tensor(1, 2000), 0), (tensor(1, 2000),))) == "=0"
    assert words(call(name, (tensor(1, 2000),), (tensor(1, 2000),))) == "=0"
    wide = scan_bytes(H200, 2000)
    converted = call(name, (tensor(2000, dtype="bool"), 0), (index(2000),))
    assert words(converted) == f"=0 +16000 +{wide} -{wide} -16000"
    assert words(call(name, (spread(tensor(4, 6)), 1), (tensor(4, 6),))) == "=0 +96 -96"
    assert (
        words(call(name, (tensor(), 0), (tensor(),)))
        == words(call(name, (tensor(0), 0), (tensor(0),)))
        == "=0"
    )
    assert words(call(name, (None, 0), (line,))) == words(call(name, (line, 0), (None,))) == "=0"


def test_a_gpu_with_fewer_multiprocessors_fills_sooner() -> None:
    device = dataclasses.replace(H200, sm_count=10)
    arguments = (tensor(50_000, 64), index(50_000), 41, -1, False)
    operator = call("aten::embedding_dense_backward", arguments, (tensor(41, 64),))
    assert f"+{5041 * 64 * 4} " in words(operator, device)
    assert f"+{5041 * 64 * 4} " not in words(operator)
