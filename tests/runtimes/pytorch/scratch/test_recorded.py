"""20,000 single ATen calls recorded by `benchmarks/operators/measure.py` of commit cf817472 (H200, torch 2.11): the allocator's requests and
frees during each, in order and to the byte, beside what the rules say.

Outside it: convolutions (`test_convolution.py`), and what `EXCEPTIONS` names with its reason.
"""

from __future__ import annotations

import collections
import functools
import gzip
import itertools
import json
from typing import Any

from analyzer.devices import load
from analyzer.graph import Operator, TensorMeta
from analyzer.runtimes.pytorch.rules import names_of
from analyzer.runtimes.pytorch.scratch import BY_NAME, Basis, Give, Take, is_known, kernel_allocations
from tests.paths import DATA
from tests.schemas import called

RECORDED = (
    DATA / "operators_h200.json.gz",
    DATA / "h200/operators_masks.json.gz",  # results whose size is data
    DATA / "h200/operators_tiles.json.gz",  # where CUB's temporaries grow
    DATA / "h200/operators_layouts.json.gz",  # PyTorch's own list of operators, on tensors that lie otherwise
)
H200 = load("h200")
VALUE_DEPENDENT = "its sizes depend on values"
EXCEPTIONS = {
    "aten::mode": VALUE_DEPENDENT,
    "aten::_euclidean_dist": "captured in its parts (`kernels/composite.py`)",
    "aten::_native_multi_head_attention": "captured in its parts (`kernels/decisions.py`)",
    "aten::_transformer_encoder_layer_fwd": "captured in its parts",
    "aten::_trilinear": "captured in its parts",
    "aten::dist": "captured in its parts",
    "aten::block_diag": "captured in its parts",
    "aten::put": "captured in its parts",
    "aten::rrelu_with_noise_backward": "captured in its parts",
    "aten::isinf": "captured in its parts",
    "aten::mvlgamma": "captured in its parts",
    "aten::logsumexp": "captured in its parts",
    "aten::count_nonzero": "captured in its parts",
    "aten::masked_scatter_backward": "captured in its parts",
    "aten::soft_margin_loss": "captured in its parts",
    "aten::soft_margin_loss_backward": "captured in its parts",
    "aten::binary_cross_entropy_with_logits": "captured in its parts",
    "aten::ldexp": "captured in its parts",
    "aten::affine_grid_generator": "captured in its parts",
    "aten::_linalg_svd": "cuSOLVER's workspace",
    "aten::_linalg_check_errors": "unknown operator",
    "aten::allclose": "unknown operator",
    "aten::_unsafe_masked_index": "captured in its parts",
    "aten::_unsafe_masked_index_put_accumulate": "captured in its parts",
    "aten::multi_margin_loss_backward": "unknown operator",
    "aten::multilabel_margin_loss_backward": "unknown operator",
    "aten::linalg_matrix_exp": "unknown operator",
    "aten::_use_miopen_ctc_loss": "unknown operator",
    "aten::transpose": "in place, of a complex view",
}
# Calls of known operators that differ, and why.
KNOWN_DIFFERENCES = {
    "aten::addbmm": 10,  # one product after the other
    "aten::nanmedian": 1,  # whether there is one at all
    "aten::median": 1,  # the copy is given back earlier
    "aten::_fft_r2c": 4,  # a copy of a signal that is not contiguous
    "aten::_fft_c2r": 2,
    "aten::isin.Tensor_Tensor": 1,
    "aten::native_batch_norm_backward": 1,  # input and gradient lie each otherwise
    "aten::_batch_norm_with_update": 1,
    "aten::batch_norm_backward": 1,
    "aten::_to_copy": 1,  # to the host, as another type
}


def argument(value: Any) -> Any:
    if isinstance(value, list):
        if len(value) == 6 and value[0] == "T":
            return TensorMeta(0, tuple(value[1]), tuple(value[3]), value[2], value[4])
        return tuple(argument(part) for part in value)
    return value


def operator_of(row: list[Any]) -> Operator:
    namespace, name, overload = row[0].split(".")
    return called(
        0,
        f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}"),
        argument(row[2]),
        tuple(None if result is None else argument(result[:6]) for result in row[4]),
        {key: argument(value) for key, value in row[3].items()},
    )


def told(operator: Operator, row: list[Any]) -> list[int]:
    """The allocations as requests (positive) and frees (negative), in bytes."""
    events: list[int] = []
    sizes: dict[int, int] = {}
    for step in kernel_allocations(operator, H200).steps:
        if isinstance(step, Take):
            if not step.workspace:  # workspaces were there before
                sizes[step.token] = step.nbytes
                events.append(step.nbytes)
        elif isinstance(step, Give):
            events.append(-sizes[step.token])
        else:
            result = row[4][step.index]
            if result is not None and result[5] == "cuda" and result[7]:
                nbytes = result[6] if step.nbytes is None else step.nbytes
                events += [nbytes] if nbytes else []
    return events


def bounded(operator: Operator) -> bool:
    """Whether the rules say of some bytes that they are a bound."""
    steps = kernel_allocations(operator, H200).steps
    return any(isinstance(step, Take) and step.basis is Basis.BOUNDED for step in steps)


def from_host(row: list[Any]) -> bool:
    """Whether an index or what is written lies on the host: the capture copies it first (`kernels/indices.py`)."""
    return row[0].startswith("aten.index") and "'cpu'" in str(row[2])


def most(events: list[int]) -> int:
    """The most bytes held at once."""
    return max(itertools.accumulate(events), default=0)


@functools.cache
def rows() -> tuple[tuple[str, list[Any]], ...]:
    found: list[tuple[str, list[Any]]] = []
    for path in RECORDED:
        with gzip.open(path, "rt") as file:
            cases = json.load(file)["cases"]
        found += [
            (name, row)
            for name, calls in cases.items()
            if not isinstance(calls, str)
            for row in calls
            if not from_host(row)
        ]
    return tuple(found)


def test_every_request_in_order() -> None:
    differing: dict[str, list[Any]] = collections.defaultdict(list)
    checked = 0
    for name, row in rows():
        operator = operator_of(row)
        base = operator.name.partition(".")[0]
        if "convolution" in base or base in EXCEPTIONS:
            continue
        checked += 1
        if (events := told(operator, row)) != row[1]:
            if bounded(operator) and most(events) >= most(row[1]):
                continue
            differing[operator.name].append((name, events, row[1]))
    counts = {name: len(found) for name, found in differing.items()}
    assert counts == KNOWN_DIFFERENCES, {
        name: found[:2] for name, found in differing.items() if counts[name] != KNOWN_DIFFERENCES.get(name)
    }
    assert checked > 20_000


def test_every_byte_names_a_rule_of_its_operator_that_may_know_it_so() -> None:
    """The names `analyze explain OPERATOR` finds without running anything are those the allocations use."""
    used = collections.Counter[str]()
    for name, row in rows():
        operator = operator_of(row)
        for step in kernel_allocations(operator, H200).steps:
            if isinstance(step, Take):
                assert step.rule in named(operator.name), (name, step)
                assert step.basis in BY_NAME[step.rule].sure, (name, step)
                used[step.rule] += 1
    assert len(used) >= 45, sorted(BY_NAME.keys() - used.keys())


@functools.cache
def named(operator: str) -> tuple[str, ...]:
    return names_of(operator)


def test_unknown_operators_are_reported() -> None:
    for name, row in rows():
        operator = operator_of(row)
        allocations = kernel_allocations(operator, H200)
        assert allocations.known == is_known(operator.name)
        if not allocations.known:
            assert operator.name.partition(".")[0] in EXCEPTIONS, name
