"""Split engines' bytes by a handle, from those by a description, against an H100 asked both ways."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from typing import Any

import pytest

from analyzer.libraries.cudnn.convolution import Convolution, Plan
from analyzer.libraries.cudnn.splits import by_handle
from tests.paths import DATA

TILE_BYTES = 64 * 64 * 4
# cuDNN 9.19 on an H100: M one tile of 64, N five (64 channels, 5 positions of the filter), K 247 tiles of 64.
WEIGHT = Convolution("weight", "float16", False, (6, 64, 1, 2629), (3, 64, 1, 5), (0, 0), (1, 1), (1, 1))
KNOBS = {2: 5, 13: 1, 18: 1, 25: 0, 27: 1, 28: 5}
COPIES = 2276208


@lru_cache(1)
def recorded() -> list[tuple[Convolution, Plan, int]]:
    """Convolutions, plans with the bytes by the description, and the bytes by a handle."""
    with gzip.open(DATA / "h100" / "split_engines.json.gz", "rt") as file:
        return [
            (Convolution(*question[:3], *map(tuple, question[3:8])), plan(*question[8:]), nbytes)  # type: ignore[arg-type]
            for question, nbytes in json.load(file)
        ]


def plan(engine: int, knobs: Any, described_bytes: int) -> Plan:
    return Plan(engine, described_bytes, knobs=tuple(dict(knobs).items()))


def test_proven_bytes_are_those_of_the_h100_and_bounds_are_above() -> None:
    for call, described, nbytes in recorded():
        said, proven = by_handle(call, described, 132)
        assert said == nbytes if proven else said >= nbytes, (call, described)


def test_nearly_all_is_proven_where_the_two_answers_differ() -> None:
    differ = [each for each in recorded() if each[1].workspace_bytes != each[2]]
    proven = [call for call, described, _ in differ if by_handle(call, described, 132)[1]]
    assert len(differ) > 400
    assert len(proven) >= 0.95 * len(differ)


def test_nothing_is_proven_of_another_number_of_sms() -> None:
    for call, described, _ in recorded():
        said, proven = by_handle(call, described, 114)
        assert not proven
        assert said >= described.workspace_bytes


def test_parts_are_counted_by_hand() -> None:
    """110 blocks hold 22 parts of 5 tiles; at 17 tiles along K each, 247 make 14; 15 blocks hold 3 parts."""
    tree = {3: 2 + 1, 14: 7 + 4 + 2 + 1}
    nbytes = {s: COPIES + 5 * s * TILE_BYTES + 5 * 4 * tree[s] + 32 + 127 for s in tree}
    assert nbytes == {3: 2522187, 14: 3423527}
    assert by_handle(WEIGHT, plan(65, KNOBS, nbytes[3]), 132) == (nbytes[14], True)


@pytest.mark.parametrize(
    ("positions", "described", "by_the_gpu"), [(36, 0, 0), (37, 131, 0), (264, 131, 0), (265, 131, 131)]
)
def test_a_counter_from_the_third_wave_on(positions: int, described: int, by_the_gpu: int) -> None:
    """One tile of 64x64 for 64 positions: 2 x 18 blocks by a description, 2 x 132 on the GPU."""
    shapes = (1, 64, 64, positions), (64, 64, 1, 1), (0, 0), (1, 1), (1, 1)
    call = Convolution("forward", "float16", True, *shapes)
    assert by_handle(call, plan(62, KNOBS | {25: 1, 28: 1}, described), 132) == (by_the_gpu, True)


def test_other_engines_say_the_same_both_ways() -> None:
    assert by_handle(WEIGHT, plan(57, {2: 1, 5: 3, 14: 5}, 1000), 132) == (1000, True)


def test_unknown_tiles_and_inconsistent_bytes_are_not_proven() -> None:
    assert by_handle(WEIGHT, plan(65, KNOBS | {2: 99}, 2522187), 132)[1] is False
    assert by_handle(WEIGHT, plan(65, KNOBS, 2522188), 132)[1] is False
