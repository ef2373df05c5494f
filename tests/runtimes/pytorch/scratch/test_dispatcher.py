"""Every operator that a GPU has a kernel for, by the dispatcher of PyTorch's own CUDA build: known, made of others, or refused in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from analyzer.capture.pytorch.kernels import compressed, decisions, sparse
from analyzer.capture.pytorch.kernels.composite import NAMES
from analyzer.capture.pytorch.recording.compatible import CompatibleDevices
from analyzer.capture.pytorch.recording.refused import reason
from analyzer.devices import load
from analyzer.runtimes.pytorch.scratch import is_known
from benchmarks.releases.dispatched import recorded

DISPATCHED = recorded()
# Sparse tensors' operators are followed into what they do to indices and values.
OF_PARTS = {
    func.name().removesuffix(".default")
    for func in (*sparse._HANDLERS, *sparse._OF_COMPRESSED, *sparse._ASKED, *compressed.ASKED)
}
# Fused operators that CUDA makes of others are followed into these.
TAKEN_APART = {
    func.name().removesuffix(".default")
    for func in (*decisions.FUSED, *decisions.choices(CompatibleDevices(load("h200"))))
}


def is_counted(name: str) -> bool:
    """Results handed in are the operator's own results; MIOpen's kernels are of another maker's GPUs."""
    overload = name.partition("::")[2].partition(".")[2]
    handed_in = "out" in overload.split("_") or overload.endswith(("out", "grad_input", "output_mask"))
    return not handed_in and "miopen" not in name


def unknown(dispatched: Mapping[str, Sequence[str]]) -> list[str]:
    """Operators nobody has said anything of."""
    return [
        name
        for name, keys in dispatched.items()
        if is_counted(name)
        and not is_known(name)
        and not reason(name)
        and name not in OF_PARTS | TAKEN_APART
        and name.removeprefix("aten::") + ("" if "." in name else ".default") not in NAMES
        and "CompositeImplicitAutograd" not in keys
    ]


@pytest.mark.parametrize("release", DISPATCHED)
def test_none_is_unknown(release: str) -> None:
    dispatched = DISPATCHED[release]
    assert sum(map(is_counted, dispatched)) > 1_000
    assert not unknown(dispatched)


@pytest.mark.parametrize("release", DISPATCHED)
def test_what_is_followed_into_its_parts_has_no_kernel(release: str) -> None:
    assert not [
        name
        for name in NAMES
        if "CUDA" in DISPATCHED[release].get(f"aten::{name.removesuffix('.default')}", ())
    ]


def test_a_reason_is_given_where_there_is_no_rule() -> None:
    """Of two that fit, the longer: `_nested_` rather than `_`; of what is known there is none to give."""
    assert reason("aten::_sparse_semi_structured_mm") != reason("aten::_sparse_sum") is not None
    assert reason("aten::mm") is None and unknown({"aten::no_such_operator": ["CUDA"]}) == [
        "aten::no_such_operator"
    ]
