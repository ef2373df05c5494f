"""Pooling, padding and resizing: what is copied in which memory format."""

from __future__ import annotations

import pytest

from analyzer.graph import TensorMeta
from tests.runtimes.pytorch.scratch.handwritten import call, channels_last, spread, tensor, words

SHAPE = (2, 3, 8, 8)
N = 2 * 3 * 8 * 8 * 4
PLAIN, LAST, GAPS = tensor(*SHAPE), channels_last(*SHAPE), spread(tensor(*SHAPE))
MANY = channels_last(2, 32, 8, 8)
LAST_GAPS = spread(channels_last(*SHAPE))
SMALL = tensor(2, 3, 4, 4)
COPY = f"=0 +{N} -{N}"
SMALL_BYTES = 2 * 3 * 4 * 4 * 4


@pytest.mark.parametrize("name", ["aten::max_pool2d_with_indices", "aten::avg_pool2d"])
@pytest.mark.parametrize(
    ("source", "expected"), [(PLAIN, "=0"), (LAST, "=0"), (GAPS, COPY), (LAST_GAPS, COPY), (None, "=0")]
)
def test_either_format(name: str, source: TensorMeta | None, expected: str) -> None:
    assert words(call(name, (source, (2, 2)), (SMALL,))) == expected


def test_the_nearest_of_a_volume_is_looked_up_in_contiguous_tensors_alone() -> None:
    both = f"=0 +{SMALL_BYTES} +{N} -{N} -{SMALL_BYTES}"
    for source, result, expected in (
        (PLAIN, SMALL, "=0"),
        (GAPS, SMALL, COPY),
        (LAST, channels_last(2, 3, 4, 4), both),
    ):
        assert words(call("aten::upsample_nearest3d", (source, (2, 2)), (result,))) == expected


@pytest.mark.parametrize(
    ("source", "expected"), [(PLAIN, "=0"), (LAST, "=0"), (GAPS, "=0"), (LAST_GAPS, COPY), (None, "=0")]
)
def test_bilinear_kernels_read_any_strides_but_channels_last_ones(
    source: TensorMeta | None, expected: str
) -> None:
    assert words(call("aten::upsample_bilinear2d", (source, (4, 4), False), (SMALL,))) == expected


@pytest.mark.parametrize(
    ("grad", "source", "copies"),
    [
        (PLAIN, PLAIN, 0),
        (LAST, LAST, 0),
        (LAST, PLAIN, 1),
        (PLAIN, LAST, 1),
        (GAPS, GAPS, 2),
        (GAPS, LAST, 1),
    ],
)
def test_backward_in_the_inputs_format(grad: TensorMeta, source: TensorMeta, copies: int) -> None:
    """The gradient and the input; max pooling's indices (8 bytes each) too."""
    taken = "".join(f" +{N}" for _ in range(copies))
    given = "".join(f" -{N}" for _ in range(copies))
    assert words(call("aten::avg_pool2d_backward", (grad, source), (PLAIN,))) == f"=0{taken}{given}"
    last = source in (LAST, LAST_GAPS)
    right, wrong = channels_last(2, 3, 4, 4, dtype="int64"), tensor(2, 3, 4, 4, dtype="int64")
    if not last:
        right, wrong = wrong, right
    rest = ((2, 2), (2, 2), (0, 0), (1, 1), False)
    name = "aten::max_pool2d_with_indices_backward"
    assert words(call(name, (grad, source, *rest, right), (PLAIN,))) == f"=0{taken}{given}"
    indices = 2 * 3 * 4 * 4 * 8
    assert words(call(name, (grad, source, *rest, wrong), (PLAIN,))) == (
        f"=0{taken} +{indices} -{indices}{given}"
    )
    assert words(call(name, (grad, source), (PLAIN,))) == f"=0{taken}{given}"


def test_backward_of_what_is_no_tensor() -> None:
    for arguments in ((None, GAPS), (GAPS, None)):
        for name in ("aten::avg_pool2d_backward", "aten::_adaptive_avg_pool2d_backward"):
            assert words(call(name, arguments, (PLAIN,))) == "=0"


def test_adaptive_average() -> None:
    name = "aten::_adaptive_avg_pool2d"
    assert words(call(name, (PLAIN,), (SMALL,))) == words(call(name, (LAST,), (SMALL,))) == "=0"
    assert words(call(name, (GAPS,), (SMALL,))) == f"+{N} =0 -{N}"
    assert words(call(name, (None,), (SMALL,))) == "=0"
    assert words(call(name, (spread(tensor(3, 8, 8)),), (tensor(3, 4, 4),))) == "=0"  # one image
    backward = f"{name}_backward"
    assert words(call(backward, (LAST, LAST), (LAST,))) == "=0"
    assert words(call(backward, (PLAIN, LAST), (LAST,))) == "=0"
    assert words(call(backward, (LAST, PLAIN), (PLAIN,))) == COPY


@pytest.mark.parametrize(
    ("grad", "expected"),
    [(PLAIN, "=0"), (LAST, COPY), (GAPS, COPY), (LAST_GAPS, COPY), (MANY, "=0"), (None, "=0")],
)
def test_resizing_backward_in_the_gradients_format(grad: TensorMeta | None, expected: str) -> None:
    """Three channels that are innermost are resized contiguous; 32 as they lie."""
    name = "aten::upsample_bilinear2d_backward"
    assert words(call(name, (grad, (8, 8), (2, 3, 4, 4), False), (SMALL,))) == expected


def test_a_result_that_lies_otherwise_is_resized_beside() -> None:
    result, few = channels_last(2, 3, 4, 4), f"=0 +{SMALL_BYTES} +{N} -{N} -{SMALL_BYTES}"
    for name in ("aten::upsample_nearest2d", "aten::_upsample_nearest_exact2d"):
        assert words(call(name, (LAST, (4, 4)), (result,))) == few
        assert words(call(name, (GAPS, (4, 4)), (SMALL,))) == COPY


def test_strided_results_are_computed_beside() -> None:
    name, result = "aten::adaptive_max_pool2d", channels_last(2, 3, 4, 4)
    indices = channels_last(2, 3, 4, 4, dtype="int64")
    out, places = 2 * 3 * 4 * 4 * 4, 2 * 3 * 4 * 4 * 8
    assert words(call(name, (PLAIN,), (SMALL, tensor(2, 3, 4, 4, dtype="int64")))) == "=0 =1"
    assert words(call(name, (GAPS,), (result, indices))) == (
        f"=0 =1 +{out} +{places} +{N} -{N} -{places} -{out}"
    )
    assert words(call(f"{name}_backward", (result, GAPS, indices), (LAST,))) == (
        f"=0 +{out} +{places} +{N} -{N} -{places} -{out}"
    )


def test_contiguous_only() -> None:
    for name in ("aten::reflection_pad2d", "aten::avg_pool3d"):
        assert words(call(name, (PLAIN,), (SMALL,))) == "=0"
        assert words(call(name, (LAST,), (SMALL,))) == COPY
    # Overlapping patches: the result keeps memory as large as the input; others: taken twice.
    assert words(call("aten::col2im", (PLAIN,), (SMALL,))) == f"=0:{N}"
    assert words(call("aten::col2im", (LAST,), (SMALL,))) == f"=0:{N} +{N} -{N}"
    assert words(call("aten::col2im", (SMALL,), (PLAIN,))) == f"+{SMALL_BYTES} =0 -{SMALL_BYTES}"
    assert words(call("aten::im2col", (PLAIN,), (SMALL,))) == f"+{N} =0 -{N}"
    assert words(call("aten::im2col", (LAST,), (SMALL,))) == f"+{N} +{N} =0 -{N} -{N}"
    assert words(call("aten::im2col", (None,), (SMALL,))) == "=0"
