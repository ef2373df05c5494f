"""Split engines' bytes by a handle, from those by a description, against an H100's and an H200's handles."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.libraries.cudnn.choices import choices_of
from analyzer.libraries.cudnn.convolution import Convolution, Plan
from analyzer.libraries.cudnn.description import clocks_of
from analyzer.libraries.cudnn.splits import _scheduler_bytes, by_handle
from tests.paths import DATA

TILE_BYTES = 64 * 64 * 4
# cuDNN 9.19 on an H100: M one tile of 64, N five (64 channels, 5 positions of the filter), K 247 tiles of 64.
WEIGHT = Convolution("weight", "float16", False, (6, 64, 1, 2629), (3, 64, 1, 5), (0, 0), (1, 1), (1, 1))
KNOBS = {2: 5, 13: 1, 18: 1, 25: 0, 27: 1, 28: 5}
COPIES = 2276208


H200_CLOCKS = 1980 / 3201
# WavLM's second convolution: 102,482,131 bytes by a description, 109,298,419 on an H200.
WAVLM = Convolution("forward", "float32", False, (4, 512, 1, 7999), (512, 512, 1, 3), (0, 0), (1, 2), (1, 1))
WAVLM_KNOBS = {2: 9, 13: 0, 18: 0, 25: 0, 27: 4, 28: 1}


@lru_cache(2)
def recorded(gpu: str = "h100") -> list[tuple[Convolution, Plan, int]]:
    """Convolutions, plans with the bytes by the description, and the bytes by a handle."""
    with gzip.open(DATA / gpu / "split_engines.json.gz", "rt") as file:
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


def test_an_h200_whose_memory_is_faster_splits_more() -> None:
    """Each is as the handle says, or below a bound; at an H100's clocks 100 of 860 are proven and wrong."""
    wrong = 0
    for call, described, nbytes in recorded("h200"):
        said, proven = by_handle(call, described, 132, H200_CLOCKS)
        assert said == nbytes if proven else said >= nbytes, (call, described)
        said, proven = by_handle(call, described, 132)
        wrong += proven and said != nbytes
    assert wrong == 100
    profile = load("h200")
    assert clocks_of(profile) == H200_CLOCKS
    assert choices_of(profile).by_handle(WAVLM, plan(67, WAVLM_KNOBS, 102482131)).workspace_bytes == 109298419


def test_groups_of_many_channels_are_products_one_after_the_other() -> None:
    """ResNeSt's 2 groups of 256 channels: 48 output tiles on 120 blocks, 24 a group, whose parts are 4.

    Copied are input, weights and output. A group has 24 * 4 tiles of 64 KiB, 3 nodes of 4 bytes for each of
    24, 32 and 127 bytes: 6,291,903, rounded up to 16, and 16 more. By the description 16 blocks hold 16 of
    24 tiles, and the other 8 in 2 parts.
    """
    call = Convolution("data", "float32", False, (6, 512, 16, 16), (1024, 256, 3, 3), (1, 1), (1, 1), (1, 1))
    copies = 4 * (6 * 512 * 256 + 1024 * 256 * 9 + 6 * 1024 * 256)
    described = copies + 2 * (8 * (2 * 65536 + 4) + 32 + 127 + 1 + 16)
    by_the_gpu = copies + 2 * (24 * (4 * 65536 + 3 * 4) + 32 + 127 + 1 + 16)
    assert (described, by_the_gpu) == (20971936, 31458208)
    knobs = {2: 0, 13: 0, 18: 0, 25: 0, 27: 4, 28: 1}
    assert by_handle(call, plan(71, knobs, described), 132, H200_CLOCKS) == (by_the_gpu, True)
    grouped = [each for each in recorded("h200") if each[0].groups > 1 and each[0].w_shape[1] > 64]
    proven = [by_handle(call, described, 132, H200_CLOCKS)[1] for call, described, _ in grouped]
    assert (len(proven), proven.count(False)) == (35, 1)


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


@pytest.mark.parametrize("tiles", [265, 300, 397])
def test_the_odd_kernel_may_split_from_two_waves_on(tiles: int) -> None:
    """132 SMs: of two waves and more nobody knows whether it splits, so the bytes of parts are a bound."""
    odd, other = ((64 * 64, 64, False, is_odd, 1.0) for is_odd in (True, False))
    assert _scheduler_bytes(tiles, 247, 132, odd, True) == (
        _scheduler_bytes(tiles, 247, 132, other, True)[0],
        False,
    )
    assert _scheduler_bytes(tiles, 247, 132, other, True)[1]
