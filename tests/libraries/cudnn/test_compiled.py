"""Engines compiled at run time, beside what an H100's handle listed."""

from __future__ import annotations

import collections
import gzip
import json

import pytest

from analyzer.libraries.cudnn.compiled import COMPILED, with_compiled
from analyzer.libraries.cudnn.convolution import Convolution, Plan
from tests.paths import DATA

OF_ALL = {"forward": {5}, "data": {6}, "weight": {16, 19}}


@pytest.mark.parametrize("operation", ["forward", "data", "weight"])
def test_the_shares_are_those_counted(operation: str) -> None:
    first: collections.Counter[str] = collections.Counter()
    with gzip.open(DATA / "h100/depthwise_first.jsonl.gz", "rt") as lines:
        for of, _, _, _, _, plans in map(json.loads, lines):
            if of == operation:
                (engine, nbytes), *_ = plans
                assert not nbytes or engine not in OF_ALL[operation]
                first["compiled" if engine in OF_ALL[operation] else "copies" if nbytes else "nothing"] += 1
    share = first["compiled"] / (first["compiled"] + first["copies"])
    assert first.total() == 1566 and COMPILED[operation][1] == pytest.approx(share, abs=0.001)


def test_only_half_precision_depthwise_has_one() -> None:
    listed = (Plan(57, 4096),)

    def call(dtype: str = "float16", groups: int = 64, last: bool = False) -> Convolution:
        return Convolution(
            "forward", dtype, last, (8, 64, 28, 28), (64, 64 // groups, 3, 3), (1, 1), (1, 1), (1, 1)
        )

    assert [plan.engine for plan in with_compiled(call(), listed)] == [5, 57]
    for other in (call("float32"), call(groups=1), call(last=True)):
        assert with_compiled(other, listed) == listed
    assert with_compiled(call(), (Plan(0, 0),)) == (Plan(0, 0),)  # nothing is asked for either way
