"""Strides of elementwise results, beside real tensors: CUDA's kernels take them from the same class as the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.capture.pytorch.kernels.layouts import as_laid, iterator_strides

aten = torch.ops.aten
NUMBER = torch.tensor(2.0)
UNARY = [aten.neg.default, aten.relu.default, aten.silu.default, aten.gelu.default, aten.sigmoid.default]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.maximum.default]


@st.composite
def tensors(draw: Any, shape: tuple[int, ...] | None = None) -> torch.Tensor:
    """A dense tensor with its dimensions in any order, those of size 1 with strides as views leave them."""
    if shape is None:
        shape = tuple(draw(st.lists(st.sampled_from((1, 1, 2, 3)), min_size=3, max_size=5)))
    strides, step = [0] * len(shape), 1
    for dim in draw(st.permutations(range(len(shape)))):
        strides[dim] = step if shape[dim] > 1 else draw(st.sampled_from((1, step, shape[-1])))
        step *= shape[dim]
    return torch.empty_strided(shape, strides)


@st.composite
def pairs(draw: Any) -> tuple[torch.Tensor, torch.Tensor]:
    first = draw(tensors())
    return first, draw(tensors(tuple(draw(st.sampled_from((size, 1))) for size in first.shape)))


@given(tensors())
@settings(max_examples=60, deadline=None)
def test_one_operand(x: torch.Tensor) -> None:
    for operator in UNARY:
        assert operator(x).stride() == iterator_strides(x.shape, [x]), operator


@given(pairs())
@settings(max_examples=60, deadline=None)
def test_two_operands_and_a_number_beside_one(both: tuple[torch.Tensor, torch.Tensor]) -> None:
    for operator in BINARY:
        real = operator(*both)
        assert real.stride() == iterator_strides(real.shape, both), operator
    assert (both[0] / 2.0).stride() == iterator_strides(both[0].shape, [both[0], NUMBER])


@pytest.mark.parametrize(
    ("operator", "call"),
    [
        (aten.div.Tensor, lambda f, x: f(x, 2.0)),
        (aten.add.Tensor, lambda f, x: f(x, x)),
        (aten.empty_like.default, lambda f, x: f(x)),
        (aten.clamp.default, lambda f, x: f(x, 0, 1)),
    ],
)
def test_an_images_batch_of_one_is_laid_as_on_cuda(operator: Any, call: Callable[..., Any]) -> None:
    """The decoder of an image after its attention: (64, 1, 1024, 64) is channels-last to nobody
    (`is_channels_last_strides_2d_s4`), and PyTorch's functions for meta tensors would make it so."""
    shape, strides = (1, 64, 16, 16), (64, 1, 1024, 64)
    real = call(operator, torch.empty_strided(shape, strides))
    laid = as_laid(operator, operator)
    assert laid is not None
    assert call(laid, torch.empty_strided(shape, strides, device="meta")).stride() == real.stride()
