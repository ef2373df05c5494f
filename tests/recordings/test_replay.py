"""Snapshots recorded on an H200, replayed to the byte, and each setting beside a real run under it."""

from __future__ import annotations

import pytest

from analyzer.recordings.replay import RecordedSpace
from tests.recordings.recorded import predicted, replayed, runs, under_settings

# The ring buffer of this one had lost the peak, which the run reached before.
LOST = "emptied.plain.last700"
# The driver put a segment elsewhere that the plain run did not have: a tie between equal free blocks went the other way.
OTHER_TIES = ("growing_batches.roundup", "checkpointed.roundup")


@pytest.mark.parametrize("name", runs())
@pytest.mark.sampled(20)
def test_every_address_segment_and_peak(name: str) -> None:
    found, row = replayed(name), runs()[name]
    assert found.parted == 0
    assert (found.allocated[1], found.reserved[1]) == (row["allocated_current"], row["reserved_current"])
    if name != LOST:
        assert (found.allocated[0], found.reserved[0]) == (row["allocated_peak"], row["reserved_peak"])


@pytest.mark.parametrize("name", under_settings())
@pytest.mark.sampled(16)
def test_a_setting_beside_a_real_run(name: str) -> None:
    found, row = predicted(name), runs()[name]
    off = 0.003 if name in OTHER_TIES else 0
    assert found.peak_reserved == pytest.approx(row["reserved_peak"], rel=off, abs=0)
    assert found.peak_allocated == pytest.approx(row["allocated_peak"], rel=off, abs=0)
    assert found.retries == row["retries"]
    assert (found.stopped >= 0 or found.saved is False) == bool(row["ooms"])


def test_all_kinds_are_among_them() -> None:
    rows = runs().values()
    assert (
        len(rows) == 64
        and sum(row["ooms"] for row in rows) == 5
        and sum(row["retries"] > 0 for row in rows) >= 8
    )
    assert {row["setting"] for row in rows} == {"plain", "expandable", "max_split", "roundup", "garbage"}
    assert {row["gpu"] for row in rows} == {"NVIDIA H200"}


def test_a_lost_beginning_is_seeded() -> None:
    for name in ("mlp_adam.plain.last900", "growing_batches.plain.last3000", LOST):
        assert not replayed(name).has_beginning
    assert replayed("mlp_adam.plain").has_beginning


def test_a_recorded_place_that_is_taken_is_not_used() -> None:
    space = RecordedSpace(((1000, 50), (2000, 50), (1040, 20), (3000, 50)))
    assert [space.take(50), space.take(50)] == [1000, 2000]
    assert space.take(20) not in (1040, 0)  # it would lie in the first
    assert space.take(50) != 3000  # the record and the replay have parted

    space = RecordedSpace(((1000, 50), (1040, 20), (980, 20)))
    space.take(50)
    space.give(1000, 50)
    assert [space.take(20), space.take(20)] == [1040, 980]
