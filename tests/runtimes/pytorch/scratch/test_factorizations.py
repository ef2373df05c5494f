"""Linear algebra's rules beside what PyTorch's own host code asked for under the emulated runtime (torch 2.11, `tests/extensions/emulation/programs/`
`factorizations.py` and `decompositions.py`, whose least squares are a file of their own).

2,214 calls, 5,332 and 320: float32, complex64 and complex128, one matrix to twenty, 4 to 1,100 rows.
"""

from __future__ import annotations

import collections
import gzip
import json
from typing import Any

import pytest

from analyzer.graph import Operator, TensorMeta
from analyzer.graph.dtype import nbytes_of
from analyzer.runtimes.pytorch.scratch import Give, Take, kernel_allocations
from tests.paths import DATA
from tests.runtimes.pytorch.scratch.handwritten import H200, tensor
from tests.schemas import called

# By program, how many operators it calls and how often.
RECORDED = {"factorizations": (12, 2_214), "decompositions": (12, 5_332), "least_squares": (1, 320)}


def argument(value: Any) -> Any:
    if isinstance(value, list) and value and value[0] == "T":
        return TensorMeta(0, tuple(value[1]), tuple(value[3]), value[2], 0)
    return value


def told(operator: Operator) -> list[int]:
    """Requests, and what is given back, in bytes."""
    events: list[int] = []
    sizes: dict[int, int] = {}
    for step in kernel_allocations(operator, H200).steps:
        if isinstance(step, Take):
            if not step.workspace:
                sizes[step.token] = step.nbytes
                events.append(step.nbytes)
        elif isinstance(step, Give):
            events.append(-sizes[step.token])
        else:
            result = operator.outputs[step.index]
            assert result is not None
            own = nbytes_of(result.element_count, result.dtype)
            events.append(own if step.nbytes is None else step.nbytes)
    return [size for size in events if size]


@pytest.mark.parametrize("program", RECORDED)
def test_every_request_in_order(program: str) -> None:
    differing = collections.defaultdict(list)
    checked = collections.Counter[str]()
    rows = json.loads(gzip.decompress((DATA / f"emulation/{program}.json.gz").read_bytes()))
    for name, given, results, events, *keywords in rows:
        operator = called(
            0, name, tuple(map(argument, given)), tuple(map(argument, results)), *(keywords or [{}])
        )
        checked[name] += 1
        if (found := told(operator)) != [size for size in events if size]:
            differing[name].append((given, found, events))
    assert not differing, {name: (len(found), found[:2]) for name, found in differing.items()}
    assert (len(checked), sum(checked.values())) == RECORDED[program]


def test_cublas_and_magma_take_the_threads_workspace_and_cusolver_does_not() -> None:
    """The calls above ran once it was there."""

    def takes(name: str, *shapes: tuple[int, ...], made: int = 2) -> bool:
        given = tuple(tensor(*shape) for shape in shapes)
        steps = kernel_allocations(called(0, name, given, given[:1] * made, {}), H200).steps
        return any(isinstance(step, Take) and step.workspace for step in steps)

    assert not takes("aten::linalg_cholesky_ex", (3, 40, 40)) and not takes("aten::geqrf", (300, 40))
    assert not takes("aten::linalg_lu_factor_ex", (40, 40), made=3)
    assert takes("aten::linalg_lu_factor_ex", (304, 320), made=3) and takes("aten::geqrf", (3, 40, 40))
    assert takes("aten::linalg_lu_factor_ex", (3, 40, 40), made=3) and takes("aten::linalg_inv_ex", (40, 40))


SOLVERS = 90 << 20  # more is cuSOLVER's; what else a first call loads is 2 MiB


@pytest.mark.parametrize(
    ("measured", "name", "shapes"),
    [
        ("cholesky_solve", "aten::_cholesky_solve_helper", ((128, 8), (128, 128))),
        ("cholesky_solve_batched", "aten::_cholesky_solve_helper", ((6, 40, 4), (6, 40, 40))),
        ("cholesky_inverse", "aten::cholesky_inverse", ((128, 128),)),
        ("geqrf", "aten::geqrf", ((128, 64),)),
        ("ormqr", "aten::ormqr", ((128, 64), (64,), (128, 64))),
        ("solve_triangular", "aten::linalg_solve_triangular", ((128, 128), (128, 8))),
        ("solve", "aten::_linalg_solve_ex", ((128, 128), (128, 8))),
        ("solve_batched", "aten::_linalg_solve_ex", ((6, 40, 40), (6, 40, 4))),
        ("inv", "aten::linalg_inv_ex", ((128, 128),)),
        ("inv_batched", "aten::linalg_inv_ex", ((6, 40, 40),)),
        ("det", "aten::_linalg_det", ((128, 128),)),
        ("slogdet_batched", "aten::_linalg_slogdet", ((6, 40, 40),)),
        ("lu_factor", "aten::linalg_lu_factor_ex", ((128, 128),)),
    ],
)
def test_the_solvers_code_is_loaded_where_it_was(
    measured: str, name: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """What NVML showed on an H100 after the first call of a process (`linear_algebra_outside.json`)."""
    grown = (
        json.loads((DATA / "h100/linear_algebra_outside.json").read_bytes())["grew_mib"][measured][0] << 20
    )
    given = tuple(tensor(*shape) for shape in shapes)
    keywords = {"upper": False} if name.endswith("solve_triangular") else {}
    made = 4 if name.removeprefix("aten::").startswith(("_linalg", "linalg_inv", "linalg_lu")) else 1
    operator = called(0, name, given, (tensor(*shapes[0]),) * made, keywords)
    assert ("cusolver" in kernel_allocations(operator, H200).libraries) is (grown > SOLVERS)
