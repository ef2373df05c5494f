"""Between what a figure lies on a GPU nobody measured."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from analyzer.allocators import create
from analyzer.cli._estimates import exit_code
from analyzer.devices import load
from analyzer.graph import Category
from analyzer.report.verdicts import verdicts
from analyzer.runtimes.base import Limit, Prediction
from analyzer.runtimes.events import AllocationEvent, Free, Malloc
from analyzer.runtimes.ranges import (
    beside_range,
    bounded_ranges,
    held_under,
    kept_and_spare,
    may_be_off,
    placed_ranges,
    under_pressure,
)
from analyzer.runtimes.timeline import simulate
from analyzer.runtimes.variants import Variants
from tests.report.estimates import TRAINING

MIB = 2**20


def malloc(key: int, mib: int, rule: str = "", basis: str = "exact", assumed: int = 0) -> Malloc:
    return Malloc(key, mib * MIB, Category.WORKSPACE, basis=basis, rule=rule, assumed=assumed * MIB)


def prediction(*events: AllocationEvent) -> Prediction:
    return Prediction(events, partial(create, "pytorch"), lambda simulation: simulation.peak_reserved)


def test_what_is_assumed_moves_the_peak() -> None:
    """40 MiB exact, a workspace of 100 that may be 25 off, and 20 by a formula: 40 + 75 + 10, and 40 + 125 + 30."""
    asked = prediction(
        malloc(1, 40),
        malloc(2, 100, "cudnn-convolution", "measured", assumed=25),
        malloc(3, 20, "cudnn-recurrent", "measured"),
        Free(2),
    )
    simulation = simulate(asked.events, asked.allocator())
    assert simulation.peak_reserved == 160 * MIB
    _, (least, most) = bounded_ranges(Variants(asked), simulation)
    assert (least, most) == ((40 + 76 + 10) * MIB, (40 + 126 + 30) * MIB)  # segments are whole 2 MiB


def test_workspaces_may_be_off_in_different_directions() -> None:
    """Two convolutions in turn, 30 MiB each and 4 off: alike they share a segment of 26 to 34 MiB; where the
    first takes less than the second, its segment is too small for the other: 26 + 34."""
    first, second = (
        replace(malloc(key, 30, "cudnn-convolution", "bounded", assumed=4), plan=plan)
        for key, plan in ((1, "one"), (2, "other"))
    )
    asked = prediction(first, Free(1), second, Free(2))
    simulation = simulate(asked.events, asked.allocator())
    assert simulation.peak_reserved == 30 * MIB
    assert bounded_ranges(Variants(asked), simulation)[1] == (26 * MIB, 60 * MIB)
    alike = prediction(first, Free(1), replace(second, plan="one"), Free(2))
    assert bounded_ranges(Variants(alike), simulation)[1] == (26 * MIB, 34 * MIB)


def test_a_workspace_may_be_nothing_at_all() -> None:
    """Before, one of a byte, which takes a block of 512: more than the same program takes where cuDNN is asked."""
    workspace = replace(
        malloc(2, 0, "cudnn-convolution", "bounded", assumed=1), nbytes=600, assumed_less=600, plan="one"
    )
    asked = prediction(malloc(1, 4), workspace)
    simulation = simulate(asked.events, asked.allocator())
    assert bounded_ranges(Variants(asked), simulation)[0][0] == 4 * MIB


def test_a_size_between_leaves_a_hole_that_neither_end_leaves() -> None:
    """A workspace of 0 to 101 MiB: at 31 its segment of 32 serves 24 and 8 after it; of 0 and 1 both need segments
    of their own, and 101 hold more than they need."""
    workspace = replace(
        malloc(1, 1, "cudnn-convolution", "bounded", assumed=100), assumed_less=MIB, plan="one"
    )
    events = (workspace, Free(1), malloc(2, 24), malloc(3, 8))
    asked = prediction(*events)
    ends = {
        simulate((replace(workspace, nbytes=nbytes), *events[1:]), create("pytorch")).peak_reserved
        for nbytes in (0, MIB, 101 * MIB)
    }
    simulation = simulate(asked.events, asked.allocator())
    _, (least, most) = bounded_ranges(Variants(asked), simulation)
    between = simulate((replace(workspace, nbytes=31 * MIB), *events[1:]), create("pytorch")).peak_reserved
    assert between not in ends and least <= between <= most


@pytest.mark.parametrize(("ties", "ends"), [("address", (36, 60)), ("segment", None)])
def test_where_segments_lie_decides_between_equal_blocks(ties: str, ends: tuple[int, int] | None) -> None:
    """A segment of 12 MiB, and one of 24 of which 12 are free: 12 MiB take either. Where they take the first,
    the other soon serves 24 MiB (12 + 24); else these need a segment of their own (12 + 24 + 24)."""
    events = (
        malloc(1, 12), malloc(2, 24), Free(2), malloc(3, 12), Free(1), malloc(4, 12), Free(3), malloc(5, 24)
    )  # fmt: skip
    device = partial(create, "pytorch", ties=ties, limit_bytes=90 * MIB)
    asked = Prediction(events, device, lambda simulation: 0, limited=lambda nbytes, of_device: device())
    simulation = simulate(asked.events, asked.allocator())
    found = placed_ranges(Variants(asked), simulation)
    assert found == (ends and ((36 * MIB, 36 * MIB), tuple(end * MIB for end in ends)))
    for other in (
        replace(asked, limited=None),
        replace(asked, has_all_events=False),
    ):  # emulated, extrapolated
        assert placed_ranges(Variants(other), simulation) is None


def test_a_block_that_is_not_split_is_allocated_whole() -> None:
    """Two blocks of 12 MiB are free, one a segment, the other the rest of one of 40. Where the first serves,
    24 MiB get the 25 that are then free behind it, for 1 MiB is not split off; else a segment of 24."""
    events = (
        malloc(1, 12), malloc(2, 40), Free(2), malloc(3, 15), malloc(4, 13), Free(1), malloc(5, 12), Free(4),
        malloc(6, 24), malloc(7, 5),
    )  # fmt: skip
    device = partial(create, "pytorch", ties="address")
    asked = Prediction(events, device, lambda simulation: 0, limited=lambda nbytes, of_device: device())
    found = placed_ranges(Variants(asked), simulate(asked.events, asked.allocator()))
    assert found is not None
    assert found[0] == (56 * MIB, 57 * MIB)


def test_what_was_asked_for_the_gpu_is_not_in_doubt() -> None:
    events = (malloc(1, 40), malloc(2, 100, "cudnn-convolution", "measured"), malloc(3, 7, basis="bounded"))
    assert [may_be_off(event) for event in events] == [0, 0, 0]
    asked = prediction(*events)
    simulation = simulate(asked.events, asked.allocator())
    assert bounded_ranges(Variants(asked), simulation)[1] == (
        simulation.peak_reserved,
        simulation.peak_reserved,
    )


@pytest.mark.parametrize(
    ("limit_mib", "ends"),
    [(170, (126, None)), (200, (126, 196)), (110, (None, None))],
)
def test_what_is_held_under_a_limit(limit_mib: int, ends: tuple[int | None, int | None]) -> None:
    """40 MiB exact, 100 that may be 25 off, 20 by a formula: 126 to 196 MiB, and no room where that is too much."""
    asked = replace(
        prediction(
            malloc(1, 40), malloc(2, 100, "cudnn-convolution", "measured", assumed=25), malloc(3, 20, "cudnn-recurrent", "measured"),
        ),
        limited=lambda nbytes, device: create("pytorch", limit_bytes=nbytes),
    )  # fmt: skip
    limit = Limit(limit_mib * MIB, False)
    assert held_under(Variants(asked), limit, limit) == tuple(end and end * MIB for end in ends)


@pytest.mark.parametrize(("limit_mib", "ends"), [(31, (None, None)), (32, (32, 32))])
def test_a_larger_request_may_leave_the_hole_that_is_needed(
    limit_mib: int, ends: tuple[int | None, int | None]
) -> None:
    """12 MiB that may be 30: as they are, 11 MiB get their block and 19 a segment of 20. Of 30, 11 leave the 19, so 30 are
    enough where the request is at its most: that does not make 31 enough in any case."""
    workspace = malloc(1, 12, "cudnn-convolution", "measured", assumed=18)
    asked = replace(
        prediction(workspace, Free(1), malloc(2, 11), malloc(3, 19)),
        limited=lambda nbytes, device: create("pytorch", limit_bytes=nbytes),
    )
    limit = Limit(limit_mib * MIB, False)
    assert held_under(Variants(asked), limit, limit) == tuple(end and end * MIB for end in ends)


def test_context_and_library_code() -> None:
    profile = replace(
        load("rtx4090"),
        context_bytes=400 * MIB,
        context_range_bytes=(360 * MIB, 440 * MIB),
        modules_bytes={"cublas": 64 * MIB},
    )
    known = replace(profile, sources={"modules_bytes": "measured: there"})
    assert beside_range(known, 464 * MIB) == ((360 + 64) * MIB, (440 + 64 + 4) * MIB)
    assert beside_range(profile, 464 * MIB) == ((360 + 32) * MIB, (440 + 64 + 4) * MIB)
    # A gibibyte of it is tensors the caller brings: no code is that large.
    assert beside_range(profile, (464 + 1024) * MIB) == (
        (360 + 64 + 1024 - 64) * MIB,
        (440 + 64 + 4 + 1024) * MIB,
    )


@pytest.mark.parametrize(
    ("limit_mib", "verdict"),
    [(1000, "does not fit"), (1120, "may not fit"), (1250, "may not fit"), (1400, "fits")],
)
def test_the_verdict(limit_mib: int, verdict: str) -> None:
    """1,200 MiB that may be 1,100 to 1,300: the figure decides whether it counts as fitting."""
    known = replace(
        TRAINING.certainty,
        reserved_range=(800 * MIB, 900 * MIB),
        beside_range=(300 * MIB, 400 * MIB),
        assumed={"code": 350 * MIB},
    )
    estimate = replace(
        TRAINING, peak_reserved=850 * MIB, device_used=1200 * MIB, capacity_bytes=limit_mib * MIB, certainty=known,
        device_assumed=False, out_of_memory=None, budget_bytes=None, incomplete=None,
    )  # fmt: skip
    assert estimate.device_range == (1100 * MIB, 1300 * MIB)
    assert estimate.verdict() == verdict
    assert estimate.fits() == (limit_mib >= 1200)
    measured = replace(estimate, certainty=TRAINING.certainty)
    assert measured.device_range == (1200 * MIB, 1200 * MIB)
    assert measured.verdict() == ("fits" if limit_mib >= 1200 else "does not fit")


@pytest.mark.parametrize(
    ("capacity_mib", "budget_mib", "verdict"),
    [(1340, None, "fits"), (1320, None, "may not fit"), (2000, 1320, "fits"), (1320, 1310, "may not fit")],
)
def test_what_the_driver_may_keep_is_nobodys(capacity_mib: int, budget_mib: int | None, verdict: str) -> None:
    """1,300 MiB at most: of 1,340 some 26 may be kept, which leaves 1,314; a budget below the rest is the program's own."""
    known = replace(
        TRAINING.certainty, reserved_range=(800 * MIB, 900 * MIB), beside_range=(300 * MIB, 400 * MIB), assumed={"code": 350 * MIB},
        kept_bytes=capacity_mib * MIB // 50,
    )  # fmt: skip
    estimate = replace(
        TRAINING, peak_reserved=850 * MIB, device_used=1200 * MIB, capacity_bytes=capacity_mib * MIB, certainty=known,
        device_assumed=False, out_of_memory=None, budget_bytes=budget_mib and budget_mib * MIB, incomplete=None,
    )  # fmt: skip
    assert estimate.verdict() == verdict
    if verdict == "may not fit" and budget_mib is None:
        assert verdicts(estimate)[0][1].endswith("and 1.3 GiB, and the driver may keep 26.4 MiB more of it")


@pytest.mark.parametrize(
    ("capacity_mib", "verdict"), [(1200, "fits"), (1170, "may not fit"), (1149, "does not fit")]
)
def test_what_another_driver_would_have_to_give(capacity_mib: int, verdict: str) -> None:
    """1,200 MiB for certain, on a GPU of which another driver has 50 MiB more."""
    estimate = replace(
        TRAINING, peak_reserved=850 * MIB, device_used=1200 * MIB, capacity_bytes=capacity_mib * MIB,
        certainty=replace(TRAINING.certainty, spare_bytes=50 * MIB), device_assumed=False, out_of_memory=None,
        budget_bytes=None, incomplete=None,
    )  # fmt: skip
    assert (estimate.verdict(), estimate.fits()) == (verdict, capacity_mib >= 1200)
    assert replace(estimate, budget_bytes=1100 * MIB).verdict() == "does not fit"  # a budget does not grow
    if verdict == "may not fit":
        assert verdicts(estimate)[0][1].endswith("and the driver may have 50.0 MiB more")


def test_how_much_less_and_more_there_may_be() -> None:
    """An RTX 4090's 24,081 MiB are 24,045 to 24,217; of 20,000 that a setting leaves none is in doubt."""
    assert kept_and_spare(load("h200")) == kept_and_spare(load("h100")) == (0, 0)
    gpu = load("rtx4090")
    assert kept_and_spare(gpu) == (36 * MIB, 136 * MIB)
    assert kept_and_spare(gpu, 20_000 * MIB) == (0, 0)


def test_the_exit_code() -> None:
    """The verdict decides, by the span: "may not fit" is 1, as "does not fit" is."""
    known = replace(
        TRAINING.certainty,
        reserved_range=(800 * MIB, 900 * MIB),
        beside_range=(300 * MIB, 400 * MIB),
        assumed={"code": 350 * MIB},
    )
    estimate = replace(
        TRAINING, peak_reserved=850 * MIB, device_used=1200 * MIB, capacity_bytes=1250 * MIB, certainty=known,
        device_assumed=False, out_of_memory=None, budget_bytes=None, incomplete=None,
    )  # fmt: skip
    assert exit_code(estimate, None, True) == 1
    assert exit_code(replace(estimate, capacity_bytes=1300 * MIB), None, True) == 0
    assert exit_code(estimate, None, False) == 0
    assert exit_code(replace(estimate, budget_bytes=1400 * MIB), None, False) == 0
    assert exit_code(replace(estimate, budget_bytes=1250 * MIB), None, False) == 1
    assert verdicts(estimate)[0] == (
        False,
        "may not fit: 1.2 GiB of 1.2 GiB on h200, between 1.1 GiB and 1.3 GiB",
    )


def test_under_pressure_the_allocator_gives_back_what_it_caches() -> None:
    """100 MiB given back and 150 asked for: 250 with room, 150 where 250 are not there. What the driver and the process beside it may take
    decides: of an RTX 3090's 24,124 MiB up to 1 and 353, and it may have 144 more."""
    gpu, beside = load("rtx3090"), 308 * MIB
    asked = replace(
        prediction(malloc(1, 100), Free(1), malloc(2, 150)),
        limited=lambda nbytes, _: create("pytorch", limit_bytes=nbytes),
    )
    least, most = beside_range(gpu, beside)
    kept, spare = kept_and_spare(gpu)
    tight, easy = kept + most, least - spare

    def held(allowed: int) -> tuple[int, ...]:
        return tuple(part // MIB for part in under_pressure(Variants(asked), gpu, 250 * MIB, beside, allowed))

    assert held(tight + 250 * MIB) == ()
    assert sorted(held(tight + 249 * MIB)) == [150, 250, 250]
    assert sorted(held(easy + 200 * MIB)) == [150]
    assert held(easy + 100 * MIB) == ()
