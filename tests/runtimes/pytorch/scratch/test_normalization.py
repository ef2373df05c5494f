"""Batch, layer, group and RMS normalisation on sizes worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from analyzer.graph import TensorMeta
from analyzer.runtimes.pytorch.scratch import kernel_allocations
from analyzer.runtimes.pytorch.scratch.normalization import channels_last_staging
from tests.runtimes.pytorch.scratch.handwritten import H200, call, channels_last, spread, tensor, words

ROWS, W = tensor(30, 16), tensor(16)
N, COPY = 30 * 16 * 4, "+1920 -1920"


@pytest.mark.parametrize("name", ["aten::native_layer_norm", "aten::_fused_rms_norm"])
def test_rows_forward(name: str) -> None:
    out = (ROWS, tensor(30), tensor(30))
    assert words(call(name, (ROWS, (16,), W), out)) == "=0 =1 =2"
    assert words(call(name, (spread(ROWS), (16,), W), out)) == f"+{N} =0 =1 =2 -{N}"
    assert words(call(name, (ROWS, (16,), spread(W)), out)) == "+64 =0 =1 =2 -64"


def test_a_bias_is_copied_like_a_weight() -> None:
    half, out = spread(tensor(16, dtype="float16")), (ROWS, tensor(30), tensor(30))
    assert words(call("aten::native_layer_norm", (ROWS, (16,), None, half), out)) == "+32 =0 =1 =2 -32"


def layer(mask: tuple[bool, ...] = (True, True, True), **given: Any) -> str:
    arguments = (
        given.get("grad", ROWS), given.get("source", ROWS), (16,), tensor(30), tensor(30),
        given.get("weight", W), given.get("bias", W), mask,
    )  # fmt: skip
    results = tuple(result if wanted else None for result, wanted in zip((ROWS, W, W), mask, strict=True))
    return words(call("aten::native_layer_norm_backward", arguments, results))


def test_rows_backward_copies_before_and_behind_the_results() -> None:
    assert layer() == layer(weight=None, bias=None) == "=0 =1 =2"
    assert layer(source=spread(ROWS)) == f"+{N} =0 =1 =2 -{N}"
    assert layer(grad=spread(ROWS)) == f"=0 =1 =2 +{N} -{N}"
    assert layer(weight=spread(W)) == "+64 =0 =1 =2 -64"
    assert layer(bias=spread(tensor(16, dtype="float16"))) == "+32 =0 =1 =2 -32"
    assert layer(grad=None) == layer(source=None) == "=0 =1 =2"


def test_rms_norm_backward() -> None:
    def rms(mask: tuple[bool, ...] | None = None, weight: TensorMeta = W, rows: int = 30) -> str:
        source = tensor(rows, 16)
        arguments: tuple[Any, ...] = (source, source, (16,), tensor(rows), weight)
        return words(
            call(
                "aten::_fused_rms_norm_backward",
                arguments if mask is None else (*arguments, mask),
                (source, W),
            )
        )

    assert rms() == "=0 =1"
    assert rms(weight=spread(W)) == "+64 =0 =1 -64"
    partial = 2049 * 16 * 4  # 65,537 rows in blocks of 32
    assert rms(rows=65537).startswith(f"=0 +64 +{partial} =1 ")
    assert rms(rows=65536) == "=0 =1"
    assert rms((True, False), rows=65537) == "=0 =1"


def test_many_rows_are_summed_in_parts() -> None:
    """65,537 rows of 16: 2,049 blocks of 32 rows. The gradients first allocated go when the sums have been made."""
    source = tensor(65537, 16)
    partial = 2049 * 16 * 4
    arguments = (source, source, (16,), tensor(65537), tensor(65537), W, W, (True, True, True))
    operator = call("aten::native_layer_norm_backward", arguments, (source, W, W))
    assert words(operator) == f"=0 +64 +64 +{partial} +{partial} =1 -64 =2 -64 -{partial} -{partial}"
    only = dataclasses.replace(
        operator, arguments=(*arguments[:-1], (False, True, False)), outputs=(None, W, None)
    )
    assert words(only) == f"+64 +{partial} =1 -64 -{partial} =0 =2"
    none = dataclasses.replace(operator, arguments=(*arguments[:-1], (True, False, False)))
    assert words(none) == "=0 =1 =2"
    grad = spread(source)
    copied = dataclasses.replace(operator, arguments=(grad, *arguments[1:]))
    copy = 65537 * 16 * 4
    assert words(copied) == (
        f"=0 +64 +64 +{copy} +{partial} +{partial} =1 -64 =2 -64 -{partial} -{partial} -{copy}"
    )
    without = dataclasses.replace(operator, arguments=(*arguments[:5], None, None))
    assert words(without) == "=0 =1 =2"


@pytest.mark.parametrize(
    ("rows", "columns", "blocks"),
    [
        (65537, 33, 2049),
        (1 << 21, 16, 32768),  # one column of blocks: at most 64 * 1024 / 2
        (1 << 21, 33, 16384),  # two columns share them
        (
            65537,
            32 * 66 - 1,
            496,
        ),  # 65 whole columns of 32 are fewer than 66, half of 132; 66 columns of blocks
        (65537, 32 * 66, 0),
    ],
)
def test_blocks_of_rows(rows: int, columns: int, blocks: int) -> None:
    source, weight = tensor(rows, columns), tensor(columns)
    arguments = (source, source, (columns,), None, None, weight, weight, (False, True, False))
    allocations = words(call("aten::native_layer_norm_backward", arguments, (None, weight, None)))
    assert (f"+{blocks * columns * 4} " in allocations) == (blocks > 0)
    assert (allocations == "=0 =1 =2") == (blocks == 0)


def test_group_norm() -> None:
    source, out = tensor(2, 8, 5, 5, dtype="float16"), (tensor(2, 8, 5, 5), tensor(2, 4), tensor(2, 4))
    weight = tensor(8)
    shape = (2, 8, 25, 4)
    name = "aten::native_group_norm"
    factors = "=0 =1 =2 +64 +64 -64 -64"  # 2 x 8 factors of 4 bytes, twice
    assert words(call(name, (source, weight, weight, *shape), out)) == factors
    assert words(call(name, (source, None, weight, *shape), out)) == factors
    assert words(call(name, (source, weight, None, *shape), out)) == factors
    assert words(call(name, (source, None, None, *shape), out)) == "=0 =1 =2"
    assert words(call(name, (source, weight, weight, 2, 8, 1, 4), out)) == "=0 =1 =2"
    assert words(call(name, (None, weight, weight, *shape), out)) == "=0 =1 =2"


def test_group_norm_backward() -> None:
    """Two sums a channel; for the input two factors a group and, with a weight and more than one pixel, one a channel."""
    source, weight = tensor(2, 8, 5, 5), tensor(8)
    name = "aten::native_group_norm_backward"

    def told(weight: TensorMeta | None, pixels: int, mask: tuple[bool, ...] | None) -> str:
        arguments: tuple[Any, ...] = (source, source, None, None, weight, 2, 8, pixels, 4)
        arguments = arguments if mask is None else (*arguments, mask)
        return words(call(name, arguments, (source, weight, weight)))

    start, end = "=0 =1 =2 +64 +64", "-64 -64"
    assert told(weight, 25, (True, True, True)) == f"{start} +32 +32 +64 -32 -32 -64 {end}"
    assert told(weight, 25, None) == told(weight, 25, (True, False, False))
    assert told(weight, 2, None) == told(weight, 25, None)
    assert told(weight, 1, None) == told(None, 25, None) == f"{start} +32 +32 -32 -32 {end}"
    assert told(weight, 25, (False, True, True)) == f"{start} {end}"
    assert words(call(name, (source, None), (source, weight, weight))) == "=0 =1 =2"


LAST, PLAIN = channels_last(4, 70, 8, 8), tensor(4, 70, 8, 8)
C = tensor(70)


def cudnn(source: TensorMeta | None, *training: bool) -> str:
    return words(
        call(
            "aten::cudnn_batch_norm",
            (source, C, C, C, C, *training),
            (source, C, C, tensor(0, dtype="uint8")),
        )
    )


@pytest.mark.parametrize(("dtype", "rows"), [("float32", 64), ("float16", 160), ("bfloat16", 160)])
def test_cudnns_persistent_batch_norm(dtype: str, rows: int) -> None:
    """70 channels, which 4 does not divide, are 5 tiles of 16: 8 bytes a channel and 4 a tile for each block of rows, 4 a tile
    and 1,072 bytes."""
    for height in (8, 10, 40):
        source = channels_last(4, 70, height, 8, dtype=dtype)
        blocks = -(-4 * height * 8 // rows)
        nbytes = 5 * (8 * 16 + 4) * blocks + 5 * 4 + 1072
        assert cudnn(source, True) == f"=0 =1 =2 +{nbytes}? =3 -{nbytes}?"
        assert cudnn(source) == cudnn(source, True)
        assert cudnn(source, False) == "=0 =1 =2 =3"


def test_cudnns_batch_norm_elsewhere() -> None:
    assert cudnn(PLAIN, True) == cudnn(None, True) == "=0 =1 =2 =3"
    assert cudnn(tensor(4, 70), True) == "=0 =1 =2 =3"
    assert cudnn(channels_last(4, 70, 8, 8, dtype="float64"), True) == "=0 =1 =2 =3"
    operator = call("aten::cudnn_batch_norm", (LAST, C), (LAST, C))
    assert words(operator).startswith("=0 =1 +")
    assert kernel_allocations(operator, H200).libraries == {"cudnn"}


def test_cudnns_batch_norm_backward() -> None:
    """Blocks of 96 rows: 256 rows are 3. The gradient is brought into the input's format first."""
    name = "aten::cudnn_batch_norm_backward"
    nbytes = 8 * 80 * 3 + 5 * 4 + 1056
    persistent = f"=0 =1 =2 +{nbytes}? -{nbytes}?"
    copy = 4 * 70 * 64 * 4
    out = (LAST, C, C)
    assert words(call(name, (LAST, LAST, C), out)) == persistent
    assert words(call(name, (LAST, PLAIN, C), out)) == f"+{copy} {persistent} -{copy}"
    assert words(call(name, (PLAIN, PLAIN, C), out)) == "=0 =1 =2"
    assert words(call(name, (PLAIN, LAST, C), out)) == f"+{copy} =0 =1 =2 -{copy}"
    assert words(call(name, (None, LAST), out)) == words(call(name, (LAST, None), out)) == "=0 =1 =2"
    assert kernel_allocations(call(name, (LAST, LAST, C), out), H200).libraries == {"cudnn"}


@pytest.mark.parametrize(
    ("shape", "dtype", "staged"),
    [
        # 32 wide, 16 high: 16 rows a thread and block; 4 values of 4 bytes a channel and block.
        ((32, 64, 8, 8), "float32", (4 * 64 * 8 * 4, 8)),
        ((31, 64, 8, 8), "float32", (4 * 64 * 8 * 4, 8)),
        ((28, 64, 8, 8), "float32", (0, 0)),
        ((32, 64, 8, 8), "float64", (4 * 64 * 8 * 8, 8)),
        ((32, 64, 8, 8), "float16", (4 * 64 * 8 * 4, 8)),
        ((32, 65, 8, 8), "float32", (4 * 65 * 8 * 4, 12)),
        ((1024, 64, 8, 8), "float32", (4 * 64 * 128 * 4, 8)),  # at most 128 blocks
        # 4 wide, 128 high: 2,048 rows a block.
        ((256, 4, 8, 8), "float32", (4 * 4 * 8 * 4, 4)),
        ((256, 7, 8, 8), "float32", (4 * 7 * 8 * 4, 8)),
    ],
)
def test_channels_last_staging(shape: tuple[int, ...], dtype: str, staged: tuple[int, int]) -> None:
    source = channels_last(*shape, dtype=dtype)
    assert channels_last_staging(source, 4) == staged
    if staged[0]:
        assert channels_last_staging(source, 2) == (staged[0] // 2, staged[1])
        operator = call("aten::native_batch_norm", (source, None, None, None, None, True), (source,))
        assert words(operator) == f"=0 +{staged[0]} +{staged[1]} -{staged[1]} -{staged[0]}"


def test_staging_of_few_rows_spreads_over_channels() -> None:
    """32 rows are 2 for a thread: 2 high, so 256 wide; one block of rows needs no staging."""
    assert channels_last_staging(tensor(32, 512), 4) == (0, 0)
    assert channels_last_staging(tensor(16, 512), 4) == (0, 0)
    assert channels_last_staging(tensor(8, 512), 4) == (0, 0)


def native(source: TensorMeta | None, *training: bool, name: str = "aten::native_batch_norm") -> str:
    return words(call(name, (source, None, None, None, None, *training), (C,)))


def test_native_batch_norm() -> None:
    last = channels_last(32, 64, 8, 8)
    staged = "=0 +8192 +8 -8 -8192"
    assert native(last) == native(last, True) == staged
    assert native(last, False) == native(None, True) == native(tensor(64), True) == "=0"
    assert native(tensor(0, 64), True) == "=0"
    assert native(tensor(2048, 64), True) == staged
    assert native(tensor(32, 64, 8, 8), True) == "=0"
    update = words(call("aten::_batch_norm_with_update", (last, None, None, None, None, False), (C,)))
    assert update == staged
    no_stats = "aten::_native_batch_norm_legit.no_stats"
    assert words(call(no_stats, (last, None, None, False), (C,))) == "=0"
    assert words(call(no_stats, (last, None, None, True, 0.0, 0.0), (C,))) == staged


def test_native_batch_norm_of_other_strides_converts_and_reduces() -> None:
    """bfloat16 becomes float32, float16 is read as it is; moments of 16 bytes a channel and block."""
    assert native(spread(tensor(4, 8, 5, 5, dtype="bfloat16")), True) == "=0 +3200 -3200"
    assert native(spread(tensor(4, 8, 5, 5, dtype="float16")), True) == "=0"
    assert native(spread(tensor(4, 8, 5, 5)), True) == "=0"
    # 2 results of 2^21 values: 256 x 2 threads, 4,096 values each; 16 values allow 256 blocks, 528 fit for 2 columns.
    assert native(spread(tensor(512, 2, 64, 64)), True) == f"=0 +{16 * 2 * 256} +8 -8 -{16 * 2 * 256}"
    # 64 results side by side, 4 a load: 16 lanes x 8 warps, 256 values each; 16 blocks, each lane with 4 results.
    nbytes = 16 * 64 * 16 * 16 * 4
    assert native(channels_last(32, 64, 2, 4, 8), True) == f"=0 +{nbytes} +4 -4 -{nbytes}"


def backward(source: TensorMeta | None, train: bool = True, saved: TensorMeta | None = C) -> str:
    arguments = (source, source, None, None, None, None, saved, train)
    return words(call("aten::native_batch_norm_backward", arguments, (source, C, C)))


def test_native_batch_norm_backward_of_channels_last() -> None:
    """Two sums a channel, the weights' gradients, staging of both, then the input's gradient."""
    last = channels_last(32, 64, 8, 8)
    tail = "+256 +256 =1 =2 +4096 +8 -8 -4096 =0 -256 -256"
    assert backward(last) == backward(last, saved=None) == backward(last, train=False) == tail
    assert backward(last, train=False, saved=None) == f"+256 {tail} -256"
    assert backward(last, train=False, saved=tensor(0)) == f"+256 {tail} -256"
    assert backward(tensor(32, 64, 8, 8)) == backward(None) == backward(tensor(0, 64)) == "=0 =1 =2"
    assert backward(channels_last(0, 64, 8, 8)) == "=0 =1 =2"
    assert backward(tensor(2048, 64)) == tail
    assert backward(tensor(2048, 1, 1, 1, stride=(1, 1, 1, 1))) == "=0 =1 =2"
    half = channels_last(32, 64, 8, 8, dtype="float16")
    assert backward(half) == tail
    one = call("aten::native_batch_norm_backward", (last, last, None), (last, C))
    assert words(one) == tail.replace(" =2", "")
