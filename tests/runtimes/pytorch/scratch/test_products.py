"""Matrix products, and the fused transformer operators made of them: who takes which workspace, and what is copied."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from analyzer.graph import TensorMeta
from analyzer.runtimes.pytorch.scratch import kernel_allocations
from tests.runtimes.pytorch.scratch.handwritten import H200, call, spread, tensor, words

CUBLAS = f"cublas+{32 << 20}"
LT = f"cublaslt+{1 << 20}"


@pytest.mark.parametrize(
    ("operand", "copied"),
    [
        (tensor(50, 64), False),
        (tensor(50, 64, stride=(1, 50)), False),
        (tensor(50, 64, stride=(65, 1)), False),
        (tensor(50, 64, stride=(1, 51)), False),
        (tensor(50, 64, stride=(63, 1)), True),
        (tensor(50, 64, stride=(1, 49)), True),
        (tensor(50, 64, stride=(2, 100)), True),
        (tensor(50, 64, stride=(128, 2)), True),
    ],
)
def test_a_matrix_blas_cannot_read_is_copied(operand: TensorMeta, copied: bool) -> None:
    copy = f" +{50 * 64 * 4}" if copied else ""
    gives = f" -{50 * 64 * 4}" if copied else ""
    left = call("aten::mm", (operand, tensor(64, 30)), (tensor(50, 30),))
    assert words(left) == f"=0{copy} {CUBLAS}{gives}"
    right = call("aten::mm", (tensor(30, 50), operand), (tensor(30, 64),))
    assert words(right) == words(left)
    bias = call("aten::addmm", (tensor(30, 64), tensor(30, 50), operand), (tensor(30, 64),))
    assert words(bias) == words(left)


@pytest.mark.parametrize(
    ("operand", "copied"),
    [
        (tensor(7, 50, 64), False),
        (tensor(7, 50, 64, stride=(9999, 64, 1)), False),
        (tensor(7, 50, 64, stride=(3200, 1, 50)), False),
        (tensor(7, 50, 64, stride=(3200, 63, 1)), True),
        (tensor(7, 50, 64, stride=(3200, 1, 49)), True),
        (tensor(7, 50, 64, stride=(6400, 128, 2)), True),
        (tensor(7, 50, 64, stride=(3200, 2, 100)), True),
    ],
)
def test_a_batch_blas_cannot_read_is_copied(operand: TensorMeta, copied: bool) -> None:
    nbytes = 7 * 50 * 64 * 4
    copy, gives = (f" +{nbytes}", f" -{nbytes}") if copied else ("", "")
    expected = f"=0{copy} {CUBLAS}{gives}"
    other, result = tensor(7, 64, 3), tensor(7, 50, 3)
    assert words(call("aten::bmm", (operand, other), (result,))) == expected
    assert words(call("aten::baddbmm", (spread(result), operand, other), (result,))) == expected
    assert words(call("aten::baddbmm_", (spread(result), tensor(7, 3, 50), operand), (result,))) == expected


def test_a_batch_with_an_expanded_dimension_is_copied() -> None:
    expanded = tensor(7, 1, 64, stride=(64, 0, 2))
    assert f"+{7 * 64 * 4}" in words(call("aten::bmm", (expanded, tensor(7, 64, 3)), (tensor(7, 1, 3),)))
    assert (
        words(call("aten::bmm", (tensor(7, 1, 1, stride=(1, 5, 5)), None), (tensor(7, 1, 3),)))
        == f"=0 {CUBLAS}"
    )


def test_copies_are_made_second_operand_first() -> None:
    left, right = tensor(7, 50, 64, stride=(6400, 128, 2)), tensor(7, 64, 3, stride=(384, 6, 2))
    one, other = 7 * 50 * 64 * 4, 7 * 64 * 3 * 4
    told = f"=0 +{other} +{one} {CUBLAS} -{one} -{other}"
    result = tensor(7, 50, 3)
    assert words(call("aten::bmm", (left, right), (result,))) == told
    assert words(call("aten::baddbmm", (result, left, right), (result,))) == told
    left, right = tensor(50, 64, stride=(128, 2)), tensor(64, 3, stride=(6, 2))
    one, other = 50 * 64 * 4, 64 * 3 * 4
    told = f"=0 +{other} +{one} {CUBLAS} -{one} -{other}"
    assert words(call("aten::mm", (left, right), (tensor(50, 3),))) == told


def test_empty_results_need_no_library() -> None:
    for name, shape in (("aten::mm", (0, 3)), ("aten::bmm", (2, 0, 3))):
        assert words(call(name, (None, None), (tensor(*shape),))) == "=0"
        assert words(call(name, (None, None), (None,))) == "=0"


FUSED: dict[str, Any] = {
    "bias": tensor(10), "first": tensor(100, 784), "second": tensor(784, 10), "result": tensor(100, 10),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "fuses"),
    [
        ("aten::addmm", {}, True),
        ("aten::_addmm_activation", {}, True),
        ("aten::addmm_", {}, False),
        ("aten::addmm", {"beta": 2}, False),
        ("aten::addmm", {"beta": 1}, True),
        ("aten::addmm", {"bias": tensor(1, 10)}, True),  # PyTorch 2.11's own host code
        ("aten::addmm_", {"bias": tensor(1, 10), "first": tensor(1, 784), "result": tensor(1, 10)}, True),
        ("aten::addmm_", {"bias": tensor(100, 10)}, False),
        ("aten::addmm", {"bias": tensor(100, 10)}, False),
        ("aten::addmm", {"bias": tensor(1)}, False),
        ("aten::addmm", {"bias": tensor(10, stride=(2,))}, False),
        ("aten::addmm", {"result": tensor(100, 10, stride=(1, 100))}, False),
        ("aten::addmm", {"result": tensor(100, 10, dtype="complex64")}, False),
        ("aten::addmm", {"result": tensor(100, 10, dtype="bfloat16")}, True),
        ("aten::addmm", {"second": tensor(1, 10)}, False),
        ("aten::addmm", {"second": tensor(2, 10)}, True),
        ("aten::addmm", {"second": tensor(784, 1), "bias": tensor(1), "result": tensor(100, 1)}, False),
        ("aten::addmm", {"second": tensor(784, 2), "bias": tensor(2), "result": tensor(100, 2)}, True),
        ("aten::addmm", {"first": tensor(1, 784), "result": tensor(1, 10)}, True),
        ("aten::addmm", {"bias": None}, False),
        ("aten::addmm", {"second": None}, False),
    ],
)
def test_which_bias_cublaslt_fuses(name: str, change: dict[str, Any], fuses: bool) -> None:
    given = {**FUSED, **change}
    keywords = {"beta": given["beta"]} if "beta" in given else {}
    operator = call(name, (given["bias"], given["first"], given["second"]), (given["result"],), **keywords)
    assert words(operator) == f"=0 {CUBLAS}" + (f" {LT}" if fuses else "")
    assert kernel_allocations(operator, H200).libraries == {"cublas"}


def test_workspaces_are_never_larger_than_cublass_own() -> None:
    device = dataclasses.replace(H200, cublas_workspace_bytes=5000)
    scaled = call("aten::_scaled_mm", (tensor(2, 2), tensor(2, 2)), (tensor(2, 2),))
    assert words(scaled) == f"=0 {CUBLAS} {LT}"
    assert words(scaled, device) == "=0 cublas+5000 cublaslt+5000"
    assert words(call("aten::mv", (tensor(2, 2), tensor(2)), (tensor(2),))) == f"=0 {CUBLAS}"


def test_until_torch_28_cublaslts_workspace_comes_first() -> None:
    """As torch 2.7's own host code asks, emulated as a T4 and a V100."""
    device = dataclasses.replace(H200, releases={**H200.releases, "torch": (2, 7)})
    fused = call("aten::addmm", (FUSED["bias"], FUSED["first"], FUSED["second"]), (FUSED["result"],))
    assert words(fused, device) == f"=0 +{1 << 20} {CUBLAS} -{1 << 20}"


def test_groups_of_rows() -> None:
    """Bfloat16 on compute capability 9.0: CUTLASS's arguments and descriptors, as an H200 was seen to take them."""
    rows, offsets = tensor(1024, 384, dtype="bfloat16"), tensor(8, dtype="int32")
    weights, result = tensor(8, 384, 512, dtype="bfloat16"), tensor(1024, 512, dtype="bfloat16")
    product = call("aten::_grouped_mm", (rows, weights, offsets), (result,))
    assert words(product) == "=0 +480 +67584? -67584? -480"
    four = call("aten::_grouped_mm", (rows, tensor(4, 384, 512, dtype="bfloat16")), (result,), offs=tensor(4))
    assert words(four) == "=0 +240 +67584? -67584? -240"
    gradient = tensor(3, 384, 512, dtype="bfloat16")
    ragged = call("aten::_grouped_mm", (tensor(384, 1024, dtype="bfloat16"), result, tensor(3)), (gradient,))
    assert words(ragged) == "=0 +204 +67584? -67584? -204"
    older = dataclasses.replace(H200, compute_capability=(8, 0))
    assert words(product, older) == f"=0 {CUBLAS}"
    single = call(
        "aten::_grouped_mm", (tensor(1024, 384), tensor(8, 384, 512), offsets), (tensor(1024, 512),)
    )
    assert words(single) == f"=0 {CUBLAS}"


def test_a_column_of_a_longer_row_is_read_in_place() -> None:
    """Rows of one element that lie one apart are at least the row's length apart (`prepare_batch_matrix_for_cublas`)."""
    columns, row, result = tensor(3, 4, 1, stride=(8, 1, 1)), tensor(3, 1, 5), tensor(3, 4, 5)
    dense = words(call("aten::bmm", (tensor(3, 4, 1), row), (result,)))
    assert words(call("aten::bmm", (columns, row), (result,))) == dense
    apart = tensor(3, 4, 2, stride=(8, 1, 1))
    assert words(call("aten::bmm", (apart, tensor(3, 2, 5)), (result,))) != dense
