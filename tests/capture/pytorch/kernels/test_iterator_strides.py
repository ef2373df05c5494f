"""Strides of elementwise results, beside real tensors: CUDA's kernels take them from the same class as the CPU's."""

from __future__ import annotations

import itertools
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


SHAPES = [
    ((1, 64, 4, 4), (64, 1, 256, 64)),
    ((1, 4, 14, 6), (336, 6, 24, 1)),
    ((2, 1, 3, 5), (15, 15, 1, 3)),
    ((1, 3, 2, 4, 1), (24, 8, 4, 1, 1)),
    ((3, 1, 1, 4), (4, 1, 4, 1)),
]
VALUES = {"number": 1.0, "float": 1.0, "int": 1, "bool": False}


def operators() -> list[Any]:
    """Return all operators of `aten` that `as_laid` is for."""
    schemas = torch._C._jit_get_all_schemas()
    names = sorted({s.name.removeprefix("aten::") for s in schemas if s.name.startswith("aten::")})
    packets = (getattr(aten, name, None) for name in names)
    every = (getattr(p, o) for p in packets if hasattr(p, "overloads") for o in p.overloads())
    return [one for one in every if as_laid(one, one) is not None]


def arguments(
    operator: Any, shape: tuple[int, ...], strides: tuple[int, ...], device: str
) -> list[Any] | None:
    """Return what an operator is called with, None where that needs more than tensors and numbers."""
    needed = [a for a in operator._schema.arguments if not a.kwarg_only and not a.has_default_value()]
    if any(str(a.type) not in ("Tensor", *VALUES) for a in needed):
        return None
    return [
        torch.empty_strided(shape, strides, device=device).fill_(1)
        if str(a.type) == "Tensor"
        else VALUES[str(a.type)]
        for a in needed
    ]


def test_each_elementwise_operator_beside_the_cpus() -> None:
    compared = 0
    for operator in operators():
        laid = as_laid(operator, operator)
        assert laid is not None
        formats: list[dict[str, Any]] = [{}]
        if any(a.name == "memory_format" for a in operator._schema.arguments):
            formats.append({"memory_format": torch.contiguous_format})
        for (shape, strides), keywords in itertools.product(SHAPES, formats):
            given = arguments(operator, shape, strides, "cpu")
            if given is None:
                continue
            try:
                real = operator(*given, **keywords)
            except (RuntimeError, NotImplementedError):  # of other types, or without a kernel for the CPU
                continue
            meta = laid(*(arguments(operator, shape, strides, "meta") or ()), **keywords)
            assert meta.stride() == real.stride(), (operator, shape, strides, keywords)
            compared += 1
    assert compared > 900
