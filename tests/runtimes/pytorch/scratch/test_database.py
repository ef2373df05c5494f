"""PyTorch's own tests, traced beside what its host code asked for under the emulated runtime (torch 2.11): a seeded sample of the cases, float32,
eight times their size.

`python -m benchmarks operators sample` draws it; `python -m benchmarks operators compare` goes through all of them.
"""

from __future__ import annotations

import collections
import gzip
import json
from collections.abc import Iterator
from unittest import mock

import pytest

from benchmarks.operators.compare import Compared, compared
from benchmarks.operators.recorded import Row
from benchmarks.operators.table import page
from tests.paths import DATA

RECORDED = DATA / "emulation/operators.json.gz"
# What differs, by entry, and why.
REASONS = {
    "nn.functional.conv2d": "cuDNN's workspace: recorded with a table's answer, followed with what cuDNN itself or a bound says",
    "nn.functional.conv_transpose1d": "cuDNN's workspace, likewise",
    "narrow_copy": "differentiated by releases after the one that was asked",
}


# Every fifth here, all of them, minutes more, with `-m campaign`.
@pytest.fixture(scope="module", params=[5, pytest.param(1, marks=pytest.mark.campaign)])
def found(request: pytest.FixtureRequest) -> Iterator[list[Compared]]:
    import benchmarks.operators.database  # noqa: F401 (what PyTorch's own tests need of it is there then)

    # For each sample PyTorch looks through the stack, sources and all, for a test of its own, and there is none.
    with mock.patch("torch.testing._internal.common_utils.extract_test_fn", lambda: None):
        yield list(compared(json.loads(gzip.decompress(RECORDED.read_bytes()))[:: request.param]))


def test_the_same_requests_in_the_same_order(found: list[Compared]) -> None:
    counted = [one for one in found if one.kind not in ("invalid", "emulator", "other sample")]
    assert len(counted) > 15
    differing = collections.defaultdict(list)
    for one in counted:
        if one.kind != "same" and one.case[1] not in REASONS:
            differing[one.case[1]].append((one.kind, one.at, one.sample))
    assert not differing
    assert {one.case[1] for one in counted if one.kind != "same"} <= set(REASONS)


def test_none_is_under_by_more_than_a_mebibyte(found: list[Compared]) -> None:
    """But where the estimate says that it is no bound."""
    assert not [one.case for one in found if one.under_bytes > 2**20 and not one.unknown]


def _row(name: str, kind: str, under: int = 0) -> Row:
    return Row(
        "2.11.0",
        ("op", name, "float32", 8, 0, "contiguous", "plain"),
        "",
        kind,
        "forward: x",
        under,
        4,
        "2026-01-02",
    )


def test_the_page_counts_what_differs_and_says_why() -> None:
    written = page([_row("mm", "same"), _row("nonzero", "sizes", 2**21), _row("new", "emulator")])
    counted = (
        "| 2.11.0 | op | float32 | 8 | contiguous, plain | 3 | 1 | 0 | 1 | 0 | 1 | 50.00 % | 2026-01-02 |"
    )
    assert counted in written
    assert "more than 1 MiB: 1; worst nonzero (2,097,152 bytes)" in written
    assert "| nonzero | 1 | 2.11.0 | sizes |" in written
    assert "| values decide how large a result is" in written and "not yet found" in written
