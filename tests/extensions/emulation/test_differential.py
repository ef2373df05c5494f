"""Random requests to PyTorch's own allocator and to our simulator: the same states. And the comparison itself.

What is carried out on PyTorch runs where ANALYZER_CUDA_PYTHON is the Python of an environment with a CUDA build of it.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise

import pytest

from analyzer.devices import load
from analyzer.releases import MODELLED, Release, parse
from analyzer_emulation import launch, library
from benchmarks.releases.differential import COUNTS, Ours, beside, comparable, differences
from benchmarks.subjects.requests import POINT, PROGRAMS, carry_out
from tests.extensions.emulation.native import compiled

PYTHON = os.environ.get("ANALYZER_CUDA_PYTHON")
TOLD = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(COUNTS.glob("torch_*.json"))}


@pytest.mark.skipif(
    PYTHON is None, reason="ANALYZER_CUDA_PYTHON names no Python with a CUDA build of PyTorch"
)
@pytest.mark.parametrize("name", ["default", "collected, kept apart", "expandable, the device is full"])
def test_every_segment_and_block(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "path", compiled)
    counts = beside(launch.find_torch(PYTHON), name, "of the test", 40 * POINT)
    assert counts["points"] == counts["equal"] == 40
    assert counts["blocks"] > 40 * 50


def states(name: str, release: Release, count: int = 2000) -> list[object]:
    return [
        comparable(state)
        for state in carry_out(PROGRAMS[name], "a", count, Ours(PROGRAMS[name].conf, load("h200"), release))
    ]


def test_a_seed_decides_alone_and_releases_part() -> None:
    older, block, newer = (states("default", release) for release in ((2, 11), (2, 12), (2, 13)))
    assert states("default", (2, 11)) == older
    for one, other in pairwise((older, block, newer, older)):
        at = next(at for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        assert differences(one[at], other[at])


def test_expandable_addresses_count_from_the_lowest_of_their_pool() -> None:
    figures = [0] * 6
    ranges = [
        [700, 2, True, 0, True, []],
        [500, 2, True, 0, True, []],
        [900, 2, True, 1, True, []],
        [100, 2, True, 0, False, []],
    ]
    moved = [[s[0] + 50 * s[4], *s[1:]] for s in ranges]
    assert comparable([figures, ranges]) == comparable([figures, moved])
    assert sorted(s[0] for s in comparable([figures, ranges])[1]) == [0, 0, 100, 200]


def test_a_million_requests_of_every_release() -> None:
    span = MODELLED["torch"]
    assert span.since is not None and span.until is not None
    assert {parse(name.removeprefix("torch_")) for name in TOLD} == {
        (2, minor) for minor in range(span.since[1], span.until[1] + 1)
    }
    for told in TOLD.values():
        programs = {name for name, program in PROGRAMS.items() if parse(told["torch"]) >= program.since}
        assert set(told["programs"]) == programs
        assert sum(counts["requests"] for counts in told["programs"].values()) >= 1_000_000
        assert all(counts["equal"] == counts["points"] for counts in told["programs"].values())
