"""Square roots and polar decompositions beside what PyTorch 2.15's own host code asked for under the emulated runtime: the first release that
has them, of which the tests' own torch knows no schema."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch import Give, Take, kernel_allocations
from tests.runtimes.pytorch.scratch.handwritten import H200, call, tensor, words

DEVICE = replace(H200, releases={**H200.releases, "torch": (2, 15)})
# By operator, its argument, type and shape.
RECORDED = {
    (
        "aten::linalg_matrix_sqrth",
        "self",
        "float32",
        (40, 40),
    ): "+6400 +160 +4 +404684 -404684 +1 +1 -1 -1 -4 +160 +160 -160 +6400 +6400 +33554432 -33554432 -6400 +6400 +6400 -6400 -6400 -160 -160 -6400",
    (
        "aten::linalg_matrix_sqrth",
        "self",
        "complex64",
        (40, 40),
    ): "+12800 +160 +4 +809240 -809240 +1 +1 -1 -1 -4 +160 +160 -160 +12800 +12800 +12800 +33554432 -33554432 -12800 -12800 +12800 +12800 -12800 +12800 -12800 -12800 -160 -160 -12800",
    (
        "aten::linalg_polar",
        "A",
        "float32",
        (40, 40),
    ): "+6400 +6400 +6400 +6400 +160 +4 +6400 +33536 -33536 -6400 +1 +1 -1 -1 -4 +6400 +6400 +33554432 -33554432 -6400 +6400 +6400 -6400 -6400 +6400 +33554432 -33554432 -6400 -6400 -6400 -160 -6400",
    (
        "aten::linalg_polar",
        "A",
        "float64",
        (3, 20, 12),
    ): "+5760 +3456 +5760 +3456 +288 +12 +5760 +9600 +7936 -7936 -9600 -5760 +1 -1 -12 +3456 +3456 +33554432 -33554432 -3456 +3456 +3456 -3456 -3456 +5760 +33554432 -33554432 -5760 -3456 -5760 -288 -3456",
    (
        "aten::linalg_polar",
        "A",
        "complex64",
        (3, 20, 12),
    ): "+5760 +3456 +5760 +3456 +144 +12 +5760 +9600 +7936 -7936 -9600 -5760 +1 -1 -12 +3456 +3456 -3456 +3456 +33554432 -33554432 -3456 +3456 +3456 -3456 +3456 -3456 -3456 +3456 +5760 +33554432 -33554432 -3456 -5760 -3456 -5760 -144 -3456",
    (
        "aten::linalg_polar",
        "A",
        "float32",
        (64, 40),
    ): "+10240 +6400 +10240 +6400 +160 +4 +10240 +3146112 -3146112 -10240 +1 +1 -1 -1 -4 +6400 +6400 +33554432 -33554432 -6400 +6400 +6400 -6400 -6400 +10240 +33554432 -33554432 -10240 -6400 -10240 -160 -6400",
    (
        "aten::linalg_polar",
        "A",
        "complex64",
        (64, 40),
    ): "+20480 +12800 +20480 +12800 +160 +4 +20480 +6292224 -6292224 -20480 +1 +1 -1 -1 -4 +12800 +12800 -12800 +12800 +33554432 -33554432 -12800 +12800 +12800 -12800 +12800 -12800 -12800 +12800 +20480 +33554432 -33554432 -12800 -20480 -12800 -20480 -160 -12800",
}


@pytest.mark.parametrize("call", RECORDED, ids=str)
def test_every_request_in_order(call: tuple[str, str, str, tuple[int, ...]]) -> None:
    name, argument, dtype, shape = call
    matrix = tensor(*shape, dtype=dtype)
    square = tensor(*shape[:-2], shape[-1], shape[-1], dtype=dtype)
    results = (matrix, square) if name.endswith("polar") else (square,)
    operator = Operator(0, name, (matrix,), results, {}, names=(argument,))
    held: dict[int, int] = {}
    told = []
    for step in kernel_allocations(operator, DEVICE).steps:
        if isinstance(step, Give):
            told.append(-held[step.token])
            continue
        if isinstance(step, Take):
            nbytes = held[step.token] = step.nbytes
        else:
            result = results[step.index]
            nbytes = result.element_count * (8 if dtype in ("float64", "complex64") else 4)
        told.append(nbytes)
    kept = sum(size > 0 for size in told)
    assert kept - len(results) == sum(size < 0 for size in told)
    assert " ".join(f"{size:+}" for size in told) == RECORDED[call]
    assert kernel_allocations(operator, DEVICE).known


@pytest.mark.parametrize(("rows", "whose"), [(203, "cuBLAS"), (204, "cuSOLVER")])
def test_four_matrices_of_complex_numbers_and_whose_kernel_factorizes_them(rows: int, whose: str) -> None:
    """Of 4 x 5,200 x 2 elements at most cuBLAS's, which takes an address of each and asks cuSOLVER nothing
    (`get_lu_factor_solver_backend`, torch 2.15)."""
    matrix = tensor(4, rows, rows, dtype="complex128")
    pivots, infos = tensor(4, rows, dtype="int32"), tensor(4, dtype="int32")
    call_of = call("aten::linalg_lu_factor_ex", (matrix, True, False), (matrix, pivots, infos))
    assert ("+32" in words(call_of, DEVICE).split()) == (whose == "cuBLAS")


def test_columns_of_tall_matrices_are_divided_further() -> None:
    """From 1,024 rows on two products more begin the first block, whose 32 columns are divided to 8: each takes
    cuBLAS's workspace and gives it back (`lu_batched_blas3_kernel`, LURecBlas3Kernel.cu)."""
    steps = []
    for rows in (1023, 1024):
        matrix = tensor(4, rows, rows)
        pivots, infos = tensor(4, rows, dtype="int32"), tensor(4, dtype="int32")
        call_of = call("aten::linalg_lu_factor_ex", (matrix, True, False), (matrix, pivots, infos))
        steps.append(len(words(call_of, DEVICE).split()))
    assert steps[1] - steps[0] == 2 * 2
