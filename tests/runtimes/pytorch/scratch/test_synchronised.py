"""`SyncBatchNorm`'s operators, on sizes worked out by hand (`test_normalization.py` has the staging)."""

from __future__ import annotations

import pytest

from analyzer.graph import TensorMeta
from analyzer.runtimes.pytorch.scratch import is_known
from tests.runtimes.pytorch.scratch.handwritten import call, channels_last, spread, tensor, words

C = tensor(64)
PLAIN, LAST, VOLUME = tensor(32, 64, 8, 8), channels_last(32, 64, 8, 8), channels_last(4, 64, 4, 4, 4)
COPY = 32 * 64 * 64 * 4


@pytest.mark.parametrize(
    ("source", "allocations"),
    [
        (PLAIN, "=0 =1"),
        (LAST, "=0 =1 +8192 +8 -8 -8192"),  # 4 values a channel and block of rows: 4 x 64 x 8 floats
        (tensor(2048, 64), "=0 =1 +8192 +8 -8 -8192"),
        (
            VOLUME,
            "=0 =1",
        ),  # the kernels know channels-last of four dimensions; as three it is the tensor itself
        (spread(PLAIN), "=0 =1"),
        (tensor(32, 64, 8, 8, stride=(8192, 128, 16, 1)), f"=0 =1 +{COPY} -{COPY}"),
        (tensor(0, 64, 8, 8), "=0 =1"),
    ],
)
def test_statistics_of_a_rank(source: TensorMeta, allocations: str) -> None:
    assert words(call("aten::batch_norm_stats", (source, 1e-5), (C, C))) == allocations


def test_statistics_of_all_ranks() -> None:
    means = tensor(4, 64)
    assert is_known("aten::batch_norm_gather_stats_with_counts.default")
    one = call("aten::batch_norm_gather_stats", (PLAIN, means, means, C, C, 0.1, 1e-5, 9), (C, C))
    assert words(one) == "+32 +16 -32 =0 =1 -16"  # four ranks: whole numbers, then floats


def test_normalising() -> None:
    def told(source: TensorMeta, weight: TensorMeta | None = C, bias: TensorMeta | None = C) -> str:
        return words(call("aten::batch_norm_elemt", (source, weight, bias, C, C, 1e-5), (source,)))

    assert told(PLAIN) == told(LAST) == told(VOLUME) == told(LAST, None, None) == told(PLAIN, None) == "=0"
    assert told(VOLUME, None, None) == "=0 +4 +4 -4 -4"


def test_sums_of_the_backward_pass() -> None:
    def told(grad: TensorMeta, source: TensorMeta) -> str:
        return words(
            call("aten::batch_norm_backward_reduce", (grad, source, C, C, C, True, True, True), (C,) * 4)
        )

    assert told(PLAIN, PLAIN) == told(PLAIN, LAST) == told(LAST, PLAIN) == "=0 =1 =2 =3"
    assert told(LAST, LAST) == "=0 =1 =2 =3 +4096 +8 -8 -4096"


def test_gradient_of_the_input() -> None:
    gaps = tensor(32, 64, 8, 8, stride=(8192, 128, 16, 1))
    name = "aten::batch_norm_backward_elemt"
    assert words(call(name, (PLAIN, PLAIN, C, C, C, C, C, C), (PLAIN,))) == "=0"
    assert words(call(name, (LAST, gaps, C, C, C, C, C, C), (PLAIN,))) == "=0"
    assert words(call(name, (PLAIN, gaps, C, C, C, C, C, C), (PLAIN,))) == f"+{COPY} =0 -{COPY}"


@pytest.mark.parametrize(("dtype", "copies"), [("float16", ""), ("bfloat16", "+5760000 "), ("float32", "")])
def test_an_input_of_other_strides_is_reduced_as_any_tensor_is(dtype: str, copies: str) -> None:
    """As PyTorch 2.11's own host code asks: float16 is read as it is, bfloat16 from a copy."""
    source = channels_last(5, 48, 20, 20, 15, dtype=dtype)
    asked = words(call("aten::batch_norm_update_stats", (source, None, None, 0.1), (C, C)))
    assert asked.startswith(f"=0 =1 {copies}+2899968 +")
    assert ("-5760000" in asked) == bool(copies)
