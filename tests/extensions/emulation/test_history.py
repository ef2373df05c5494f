"""What an estimate says of a program that was emulated, from what was seen of it."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from analyzer.devices import load
from analyzer.options import Options
from analyzer.report import formats
from analyzer.results.estimate import Estimate
from analyzer_emulation.emulate import largest
from analyzer_emulation.history import estimate_of
from tests.paths import ROOT

MIB = 2**20


def seen(events: list[tuple[str, int, int]], **more: Any) -> dict[str, Any]:
    """What `inside` writes, of these events of the allocator."""
    live = {"allocated_bytes": 0, "reserved_bytes": 0, **more.pop("counters", {})}
    found = {
        "ended": {"how": "ended"}, "torch": "2.11.0+cu130", "cuda": "13.0", "events": [[*event, 0] for event in events],
        "counters": live, "ooms": 0, "retries": 0, "operators": [], "steps": [], "roles": {}, "reads": {}, "assumed": [], "refused": [],
        "used_bytes": live["reserved_bytes"] + 610 * MIB,
    }  # fmt: skip
    return found | more


def estimate(found: dict[str, Any], device: str = "h200") -> Estimate:
    return estimate_of(found, "train.py", Options.of({"device": device}), load(device), "")


def test_blocks_are_split_and_joined_as_pytorch_does() -> None:
    base = 1 << 40
    found = estimate(
        seen(
            [
                ("segment_alloc", base, 20 * MIB),
                ("alloc", base, 10 * MIB + 1),  # 10 MiB + 512 B
                ("alloc", base + 10 * MIB + 512, 9 * MIB),  # the rest, 1 MiB less 512 B, is not split off
                ("free_completed", base, 10 * MIB + 1),
                ("free_completed", base + 10 * MIB + 512, 9 * MIB),
                ("alloc", base, 15 * MIB),  # they have joined; the rest is split off
                ("free_completed", base, 15 * MIB),
                ("segment_free", base, 20 * MIB),
                ("segment_alloc", base, 2 * MIB),
                ("alloc", base, 100),
            ],
            counters={"allocated_bytes": 512, "reserved_bytes": 2 * MIB},
        )
    )
    assert found.timeline.allocated == (
        10 * MIB + 512, 20 * MIB, 10 * MIB - 512, 0, 15 * MIB, 0, 512,
    )  # fmt: skip
    assert (found.peak_allocated, found.peak_reserved) == (20 * MIB, 20 * MIB)
    assert found.device_used == 630 * MIB
    assert not any("off by" in note for note in found.notes)


def test_a_segment_where_one_of_the_other_pool_lay_splits_as_its_own() -> None:
    """What is left of a large block is split off above 1 MiB, of a small one always."""
    base = 1 << 40
    found = estimate(
        seen(
            [
                ("segment_alloc", base, 20 * MIB),
                ("alloc", base, 19 * MIB + 512),
                ("free_completed", base, 19 * MIB + 512),
                ("segment_free", base, 20 * MIB),
                ("segment_alloc", base, 2 * MIB),
                ("alloc", base, MIB + 512 - 1024),
                ("alloc", base + MIB - 512, 512),
            ],
            counters={"allocated_bytes": MIB, "reserved_bytes": 2 * MIB},
        )
    )
    assert found.timeline.allocated == (20 * MIB, 0, MIB - 512, MIB)


def test_what_ran_on_a_gpu_nobody_measured_is_not_simulated_again() -> None:
    """Its requests are PyTorch's own, so there are no other sizes to ask an allocator about."""
    base = 1 << 40
    found = estimate(seen([("segment_alloc", base, 20 * MIB), ("alloc", base, 20 * MIB)]), "l4")
    assert not load("l4").measured and found.peak_reserved == 20 * MIB
    assert found.certainty.reserved_range == (20 * MIB, 20 * MIB)


def test_the_page_has_the_estimates_that_are_known() -> None:
    """The naive sum and liveness are of a graph, and there is none."""
    events = [("segment_alloc", 0, 2 * MIB), ("alloc", 0, 512)]
    shown = formats.render("estimate", "html", estimate(seen(events)))
    assert "pytorch: device" in shown and "naive" not in shown.partition("<script")[0]


def test_a_history_that_does_not_add_up_says_so() -> None:
    events = [("segment_alloc", 0, 2 * MIB), ("alloc", 0, 512)]
    found = estimate(seen(events, counters={"allocated_bytes": 1024, "reserved_bytes": 2 * MIB}))
    assert any("counts 1,024 bytes in use, its history 512" in note for note in found.notes)


def test_private_pools_are_said_to_be_more_than_is_known() -> None:
    events = [("segment_alloc", 0, 2 * MIB), ("alloc", 0, 512)]
    said = [
        any("private pools" in note for note in estimate(seen(events, pools=p)).notes) for p in (True, False)
    ]
    assert said == [True, False]


def test_of_several_processes_the_one_that_held_most_counts() -> None:
    events = [("segment_alloc", 0, 2 * MIB), ("alloc", 0, 512)]
    child = seen(events, peak_reserved_bytes=2 * MIB)
    own = seen([], peak_reserved_bytes=1 * MIB)
    ended = {"ended": {"how": "ended"}}
    assert largest(own, []) is own
    alone, both = largest(ended, [child]), largest(own, [child])
    for found, said in (
        (alone, "a process that the program started"),
        (both, "held at most 1,048,576 bytes"),
    ):
        came_out = estimate(found)
        assert came_out.peak_allocated == 512 and any(said in note for note in came_out.notes)


def test_an_error_the_program_caught_is_said() -> None:
    events = [("segment_alloc", 0, 2 * MIB), ("alloc", 0, 512)]
    for kind, said in (("ValueError", True), ("OutOfMemoryError", False)):
        notes = estimate(seen(events, failed=["/a/train.py:3", kind, "bad\nmore"])).notes
        assert ("the program caught an error of an operator: train.py:3: ValueError: bad" in notes) is said


def test_expandable_segments_grow_at_their_end() -> None:
    found = estimate(
        seen(
            [
                ("segment_map", 0, 20 * MIB),
                ("alloc", 0, 15 * MIB),
                ("segment_map", 20 * MIB, 20 * MIB),
                (
                    "alloc",
                    15 * MIB,
                    24 * MIB + 512,
                ),  # across both; the rest of 1 MiB less 512 B is split off all the same
                ("free_completed", 15 * MIB, 24 * MIB + 512),
                ("segment_unmap", 20 * MIB, 20 * MIB),
            ],
            counters={"allocated_bytes": 15 * MIB, "reserved_bytes": 20 * MIB},
        )
    )
    assert found.peak_allocated == 39 * MIB + 512 and found.peak_reserved == 40 * MIB
    assert found.timeline.allocated[-1] == 15 * MIB


def test_a_request_without_room_is_out_of_memory() -> None:
    events = [("segment_alloc", 0, 2 * MIB), ("alloc", 0, 512), ("oom", 0, 200 * 2**30)]
    ended = {"how": "memory", "kind": "OutOfMemoryError", "message": "CUDA out of memory"}
    found = estimate(seen(events, ended=ended, ooms=1))
    assert found.out_of_memory is not None and found.out_of_memory.requested_bytes == 200 * 2**30
    assert not found.fits() and found.stopped


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"how": "exit", "message": "exit code 3"}, "the program ended itself: exit code 3"),
        ({"how": "error", "kind": "ValueError", "message": "no"}, "ValueError: no"),
        ({"how": "stuck", "message": "a.py:3: the loop waits"}, "a.py:3: the loop waits"),
    ],
)
def test_a_program_that_ended_early_is_incomplete(how: dict[str, str], said: str) -> None:
    found = estimate(seen([("segment_alloc", 0, 2 * MIB), ("alloc", 0, 512)], ended=how))
    assert found.incomplete == said and not found.fits()


# The peaks are those PyTorch's own counters gave at the end of the program (`torch.cuda.max_memory_allocated`, `max_memory_reserved`).
@pytest.mark.parametrize(
    ("release", "cuda", "allocated", "reserved"),
    [
        ("2.8", "12.8", 92_286_464, 94_371_840),
        ("2.11", "13.0", 93_335_040, 94_371_840),
        ("2.15", "13.2", 53_964_288, 60_817_408),
    ],
)
def test_a_recorded_history_gives_what_its_allocator_counted(
    release: str, cuda: str, allocated: int, reserved: int
) -> None:
    recorded = ROOT / f"tests/data/emulation/torch_{release}.json.gz"
    found = estimate(json.loads(gzip.decompress(recorded.read_bytes())))
    assert (found.peak_allocated, found.peak_reserved) == (allocated, reserved)
    assert found.modelled == {"torch": release, "cuda": cuda}
    assert f"emulated: torch {release}" in found.device_note and "on NVIDIA H200" in found.device_note
    assert sum(found.breakdown.values()) == allocated and not any("off by" in note for note in found.notes)
    weights = (512 * 2048 + 2048 + 2048 * 100 + 100) * 4
    assert weights <= found.breakdown["parameters"] <= weights + 4 * 512
    assert 2 * weights <= found.breakdown["optimizer state"] <= 2 * weights + 8 * 512
    assert any(source == "train.py:22" for source in found.by_line)  # .cuda()
    assert "first" in found.by_module or "second" in found.by_module
    assert any("train.py:39: a number: 1" in note for note in found.notes)  # the loss
