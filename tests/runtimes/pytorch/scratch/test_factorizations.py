"""Linear algebra's rules beside what PyTorch's own host code asked for under the emulated runtime (torch 2.11, `tests/emulation/programs/factorizations.py`).

2,214 calls: float32 and complex128, one matrix to twenty, 4 to 520 rows.
"""

from __future__ import annotations

import collections
import gzip
import json
from typing import Any

from analyzer.graph import Operator, TensorMeta
from analyzer.graph.dtype import nbytes_of
from analyzer.runtimes.pytorch.scratch import Give, Take, kernel_allocations
from tests.paths import DATA
from tests.runtimes.pytorch.scratch.handwritten import H200, tensor
from tests.schemas import called

RECORDED = DATA / "emulation/factorizations.json.gz"


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
            if not step.keep:
                sizes[step.token] = step.nbytes
                events.append(step.nbytes)
        elif isinstance(step, Give):
            events.append(-sizes[step.token])
        else:
            result = operator.outputs[step.index]
            assert result is not None
            events.append(nbytes_of(result.element_count, result.dtype))
    return [size for size in events if size]


def test_every_request_in_order() -> None:
    differing = collections.defaultdict(list)
    checked = collections.Counter[str]()
    for name, given, results, events in json.loads(gzip.decompress(RECORDED.read_bytes())):
        operator = called(0, name, tuple(map(argument, given)), tuple(map(argument, results)), {})
        checked[name] += 1
        if (found := told(operator)) != events:
            differing[name].append((given, found, events))
    assert not differing, {name: (len(found), found[:2]) for name, found in differing.items()}
    assert len(checked) == 12 and sum(checked.values()) > 2_000


def test_cublas_and_magma_take_the_threads_workspace_and_cusolver_does_not() -> None:
    """The calls above ran once it was there."""

    def takes(name: str, *shapes: tuple[int, ...], made: int = 2) -> bool:
        given = tuple(tensor(*shape) for shape in shapes)
        steps = kernel_allocations(called(0, name, given, given[:1] * made, {}), H200).steps
        return any(isinstance(step, Take) and step.keep for step in steps)

    assert not takes("aten::linalg_cholesky_ex", (3, 40, 40)) and not takes("aten::geqrf", (300, 40))
    assert not takes("aten::linalg_lu_factor_ex", (40, 40), made=3)
    assert takes("aten::linalg_lu_factor_ex", (304, 320), made=3) and takes("aten::geqrf", (3, 40, 40))
    assert takes("aten::linalg_lu_factor_ex", (3, 40, 40), made=3) and takes("aten::linalg_inv_ex", (40, 40))
