"""How allocations are written down: the order of results and temporaries, and which rule serves which name."""

from __future__ import annotations

import pytest

from analyzer.runtimes.pytorch.scratch import Basis, Give, Output, Take, is_known, kernel_allocations
from analyzer.runtimes.pytorch.scratch.inert import is_inert
from analyzer.runtimes.pytorch.scratch.script import OF_OPERATOR, Script, rule_for
from tests.runtimes.pytorch.scratch.handwritten import H200, call, tensor


def test_results_nobody_mentions_come_first() -> None:
    told = Script(3)
    token = told.temporary(8)
    told.on_host(1)
    assert told.finish() == (Output(0), Output(2), Take(token, 8), Give(token))


def test_results_a_rule_forgets_come_last() -> None:
    told = Script(3)
    first, second = told.temporary(8, Basis.MEASURED), told.temporary(9)
    told.output(1, 5)
    told.output(3)
    steps = told.finish()
    assert steps == (
        *(Take(first, 8, Basis.MEASURED), Take(second, 9), Output(1, 5), Output(0), Output(2)),
        *(Give(second), Give(first)),
    )
    assert (first, second) == (0, 1)


def test_host_results_are_never_allocated() -> None:
    told = Script(2)
    told.on_host(0)
    told.output(0)
    told.outputs()
    told.outputs()
    assert told.finish() == (Output(1),)


def test_temporaries_are_given_back_once() -> None:
    told = Script(0)
    nothing, one = told.temporary(0), told.temporary(1)
    for token in (nothing, one, one):
        told.release(token)
    assert told.finish() == (Take(1, 1), Give(1))


def test_workspaces_are_kept() -> None:
    told = Script(0)
    told.workspace("cublas", 0)
    told.workspace("cublas", 1, Basis.BOUNDED)
    told.temporary(3)
    assert told.finish() == (Take(0, 1, Basis.BOUNDED, "cublas"), Take(1, 3), Give(1))


def test_a_full_name_before_the_name_without_overload() -> None:
    assert rule_for("aten::sum.dim_IntList") is OF_OPERATOR["aten::sum.dim_IntList"]
    assert rule_for("aten::mm.out") is OF_OPERATOR["aten::mm"] is rule_for("aten::mm.default")
    assert rule_for("aten::no_such") is None
    assert is_known("aten::mm.out") and is_known("aten::relu_") and not is_known("mylib::relu")


@pytest.mark.parametrize(
    ("name", "inert"),
    [
        ("aten::add.Tensor", True),
        ("aten::add_.Tensor", True),
        ("aten::__iand__", True),
        ("aten::_foreach_mul.Scalar", True),
        ("profiler::_record_function_enter_new", True),
        ("prims::anything", True),
        ("relu", True),
        ("aten::foreach_mul", False),
        ("mylib::add", False),
        ("aten::no_such", False),
    ],
)
def test_inert(name: str, inert: bool) -> None:
    assert is_inert(name) == inert


@pytest.mark.parametrize(
    ("name", "libraries"),
    [
        ("aten::linalg_qr", {"cusolver"}),
        ("aten::_linalg_svd", {"cusolver"}),
        ("aten::_fft_r2c", {"cufft"}),
        ("aten::_fft_c2r", {"cufft"}),
        ("aten::linalg_vector_norm", set()),
        ("aten::linalg_cross", set()),
        ("aten::relu", set()),
    ],
)
def test_libraries_by_name(name: str, libraries: set[str]) -> None:
    assert kernel_allocations(call(name, (tensor(4, 4),), (tensor(4, 4),)), H200).libraries == libraries
