"""Different rows of a known tensor are those PyTorch's own kernels find, without an operator for each row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from analyzer.values.distinct import distinct
from tests.capture.pytorch.captures import traced

aten = torch.ops.aten
TYPES = (torch.int64, torch.uint8, torch.bool, torch.float32, torch.float16, torch.bfloat16)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data(), st.sampled_from(TYPES), st.integers(0, 99)
)
def test_rows_are_pytorchs(shape: list[int], data: st.DataObject, dtype: torch.dtype, seed: int) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    value = torch.randint(0, 3, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (aten.unique_dim.default, (dim, True, True, True)),
        (aten.unique_dim_consecutive.default, (dim, True, True)),
        (aten.unique_consecutive.default, (True, True, dim)),
    ]
    for func, args in calls:
        for own, found in zip(func(value, *args), distinct(func, value, *args), strict=True):
            assert own.dtype == found.dtype and torch.equal(own, found)


@pytest.mark.parametrize("args", [(True, True), (True, True, None)])
def test_a_whole_tensor_is_left_to_pytorch(args: tuple[Any, ...]) -> None:
    value = torch.tensor([[1, 1], [2, 1]])
    found = distinct(aten.unique_consecutive.default, value, *args)
    assert [result.tolist() for result in found] == [[1, 2, 1], [[0, 0], [1, 2]], [2, 1, 1]]


def test_the_rows_of_a_program_decide_its_sizes() -> None:
    seen = []

    def program() -> None:
        rows = torch.arange(600, device="cuda").reshape(-1, 3) // 30
        seen.extend([rows.unique(dim=0).shape, torch.unique_consecutive(rows, dim=0).shape])

    traced(program)
    assert seen == [(20, 3), (20, 3)]


def test_many_rows_take_no_operator_each() -> None:
    value = torch.arange(30_000).reshape(-1, 3)
    with torch.autograd.profiler.profile() as seen:
        distinct(aten.unique_dim_consecutive.default, value, 0, True, True)
    assert sum(event.count for event in seen.key_averages()) < 100
