"""`linalg_matrix_exp`: the most it holds at once, as torch 2.11 itself holds it, emulated so that its norm wants the highest degree."""

from __future__ import annotations

import itertools

import pytest

from analyzer.devices import load
from tests.runtimes.pytorch.scratch.handwritten import call, tensor, words

# Allocated at the peak besides what was there before, with cuBLAS's workspace taken earlier (`torch.linalg.matrix_exp`, H100).
EMULATED = [((512, 512), "float32", 13_634_560), ((7, 256, 256), "float32", 20_187_136)]


def most(shape: tuple[int, ...], dtype: str) -> int:
    """The most bytes that the steps hold, a workspace aside."""
    steps = words(
        call("aten::linalg_matrix_exp", (tensor(*shape, dtype=dtype),), (tensor(*shape, dtype=dtype),)),
        load("h100"),
    )
    sizes = [step.replace("?", "").partition(":")[0] for step in steps.split()]
    result = 1
    for size in shape:
        result *= size
    width = {"float32": 4, "bfloat16": 2, "complex128": 16}[dtype]
    taken = [
        result * width if size == "=0" else int(size)
        for size in sizes
        if size == "=0" or size.lstrip("+-").isdigit()
    ]
    return max(itertools.accumulate(taken, initial=0))


@pytest.mark.parametrize(("shape", "dtype", "emulated"), EMULATED)
def test_the_peak_is_that_of_the_highest_degree(shape: tuple[int, ...], dtype: str, emulated: int) -> None:
    assert 0 <= emulated - most(shape, dtype) < 4096


@pytest.mark.parametrize("dtype", ["bfloat16", "complex128"])
def test_every_type_has_one(dtype: str) -> None:
    width = {"bfloat16": 2, "complex128": 16}[dtype]
    assert most((64, 64), dtype) >= 13 * 64 * 64 * width


def test_single_numbers_are_computed_at_once() -> None:
    assert (
        words(call("aten::linalg_matrix_exp", (tensor(5, 1, 1),), (tensor(5, 1, 1),)), load("h100")) == "=0"
    )
