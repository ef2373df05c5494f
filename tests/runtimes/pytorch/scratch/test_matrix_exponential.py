"""`linalg_matrix_exp`: the most it holds at once, as torch 2.11 itself holds it, emulated so that its norm wants the highest degree."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import analyzer
from analyzer.devices import load
from analyzer.runtimes.pytorch.scratch.script import Take, kernel_allocations
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


def test_a_single_matrix_may_need_less(tmp_path: Path) -> None:
    """Its norm decides, and kernels compute nothing here: a small one takes the matrix and ones. What is reserved is between
    bounds, and what is said is the most."""
    matrix = call("aten::linalg_matrix_exp", (tensor(512, 512),), (tensor(512, 512),))
    steps = [step for step in kernel_allocations(matrix, load("h100")).steps if isinstance(step, Take)]
    assert sum(step.nbytes for step in steps if step.assumed_less == step.nbytes) > 13 * 2**20
    script = tmp_path / "program.py"
    script.write_text("import torch\ntorch.linalg.matrix_exp(torch.randn(1024, 1024, device='cuda'))\n")
    estimate = analyzer.run(script, device="h100")
    least, most = estimate.reserved_range
    assert least < estimate.peak_reserved == most and least >= 2 * 2**22 and estimate.verdict() == "fits"


@pytest.mark.parametrize("dtype", ["bfloat16", "complex128"])
def test_every_type_has_one(dtype: str) -> None:
    width = {"bfloat16": 2, "complex128": 16}[dtype]
    assert most((64, 64), dtype) >= 13 * 64 * 64 * width


def test_single_numbers_are_computed_at_once() -> None:
    assert (
        words(call("aten::linalg_matrix_exp", (tensor(5, 1, 1),), (tensor(5, 1, 1),)), load("h100")) == "=0"
    )
