"""What a program's sessions took, as an estimate: records as `inside/sessions.py` writes them."""

from __future__ import annotations

from typing import Any

import pytest

from analyzer.devices import load
from analyzer.options import Options
from analyzer.results.estimate import Estimate
from analyzer_emulation.served import estimate_of_sessions

MIB = 2**20
BESIDE = 600 * MIB


class Record:
    """A record under construction. held: what the arenas hold, by address."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.requests: list[tuple[int, int]] = []
        self.marks: list[dict[str, Any]] = []
        self.most: dict[int, int] = {}

    def take(self, address: int, mib: int) -> None:
        self.held[address] = mib * MIB
        self.requests.append((address, mib * MIB))

    def give(self, address: int) -> None:
        del self.held[address]
        self.requests.append((address, 0))

    def mark(self, what: str, *arenas: tuple[int, int, int], **more: Any) -> None:
        """arenas: of each its number, MiB in use and the most so far."""
        used = BESIDE + sum(self.held.values())
        rows = [{"arena": one, "InUse": now * MIB, "MaxInUse": most * MIB} for one, now, most in arenas]
        mark = {
            "what": what,
            "session": 0,
            "place": "serve.py:7",
            "requests": len(self.requests),
            "used": used,
        }
        self.marks.append({**mark, "arenas": rows, "values": 0, **more})

    def record(self, **more: Any) -> dict[str, Any]:
        return {
            "ended": {"how": "ended"},
            "onnxruntime": "1.30.0",
            "sessions": 1,
            "session_marks": self.marks,
            "session_notes": [],
            "device_requests": self.requests,
            **more,
        }

    def estimate(self, **more: Any) -> Estimate:
        return estimate_of_sessions(self.record(**more), "serve.py", Options(device="h200"), load("h200"), "")


@pytest.fixture
def growing() -> Record:
    """Weights of 90 MiB in a region of 100; a second region of 256 for the second request, which is kept."""
    record = Record()
    record.take(4096, 100)
    record.mark("session", (1, 90, 90), options={"arena_extend_strategy": "kNextPowerOfTwo"})
    record.mark("request", (1, 90, 98), shapes={"images": [1, 3, 8, 8]})
    record.take(8192, 256)
    record.mark("request", (1, 90, 300), shapes={"images": [64, 3, 8, 8]})
    record.mark("request", (1, 90, 300), shapes={"images": [1, 3, 8, 8]})
    record.mark("end", (1, 90, 300))
    return record


def test_each_request_has_its_figures(growing: Record) -> None:
    estimate = growing.estimate()
    assert estimate.engine == "emulate" and estimate.runtime == "onnxruntime"
    assert (estimate.peak_allocated, estimate.peak_reserved) == (300 * MIB, 356 * MIB)
    assert estimate.device_used == BESIDE + 356 * MIB
    assert [(row.allocated, row.reserved, row.device_used) for row in estimate.after_runs] == [
        (90 * MIB, held * MIB, BESIDE + held * MIB) for held in (100, 100, 356, 356, 356)
    ]
    assert estimate.after_runs[2].event == "request 2, serve.py:7, images 64x3x8x8"
    assert estimate.peak_at == estimate.after_runs[2].event
    assert estimate.breakdown == {"activations": 210 * MIB, "parameters": 90 * MIB}


def test_segments_sum_to_what_is_held(growing: Record) -> None:
    growing.give(8192)
    growing.mark("request", (1, 90, 300))
    estimate = growing.estimate()
    for event, reserved in enumerate(estimate.timeline.reserved):
        held = sum(
            one.nbytes
            for one in estimate.segments
            if one.born <= event and (one.died < 0 or event <= one.died)
        )
        assert held == reserved
    assert estimate.after_runs[-1].reserved == 100 * MIB
    alive = [estimate.allocations.nbytes[i] for i in estimate.allocations.alive(estimate.peak_event)]
    assert sum(alive) == estimate.peak_allocated


def test_memory_that_is_not_given_back_is_said_with_its_bounds(growing: Record) -> None:
    grows, bounds = growing.estimate().notes[1:3]
    assert grows.startswith("the arenas hold 356 MiB after the last request, 90 MiB of them in use")
    assert grows.endswith("it grew last at request 2, serve.py:7, images 64x3x8x8")
    assert "arena_extend_strategy=kSameAsRequested" in bounds
    assert "memory.enable_memory_arena_shrinkage" in bounds and "at least 300 MiB" in bounds


def test_shrinkage_needs_no_advice(growing: Record) -> None:
    growing.give(8192)
    growing.mark("request", (1, 90, 300))
    notes = growing.estimate().notes
    assert "356 MiB were held at most and 100 MiB are after the last request: regions are given back" in notes
    assert not any("bounds" in note for note in notes)


def test_what_is_given_back_within_a_request_was_held() -> None:
    record = Record()
    record.take(4096, 100)
    record.mark("session", (1, 90, 90))
    record.take(8192, 200)
    record.give(8192)
    record.mark("request", (1, 90, 280))
    estimate = record.estimate()
    assert (estimate.peak_reserved, estimate.device_used) == (300 * MIB, BESIDE + 300 * MIB)
    assert estimate.after_runs[-1].reserved == 100 * MIB


def test_two_arenas_are_in_use_at_once() -> None:
    """The second one's request raises no most: of it a range is known, which the peak then is."""
    record = Record()
    record.take(4096, 100)
    record.mark("session", (1, 50, 50))
    record.mark("request", (1, 50, 80))
    record.take(8192, 100)
    record.mark("session", (1, 50, 80), (2, 60, 60))
    record.mark("request", (1, 55, 80), (2, 60, 60))
    estimate = record.estimate()
    assert estimate.peak_allocated == 115 * MIB
    assert estimate.allocated_range == (115 * MIB, 140 * MIB)


def test_a_session_that_is_gone_has_nothing_in_use() -> None:
    record = Record()
    record.take(4096, 100)
    record.take(8192, 100)
    record.mark("session", (1, 50, 50), (2, 60, 60))
    record.give(8192)
    record.mark("request", (1, 50, 50))
    assert record.estimate().after_runs[-1].allocated == 50 * MIB


def test_other_processes_give_the_range(growing: Record) -> None:
    """Three processes: the one in the middle is shown; the range is wider than theirs by half on either side."""
    others = []
    for more in (512, 128):
        other = Record()
        other.take(4096, 100)
        other.take(8192, more)
        other.mark("session", (1, 90, 90))
        other.mark("request", (1, 90, 310 if more == 512 else 290))
        others.append(other.record())
    estimate = growing.estimate(others=others)
    assert estimate.peak_reserved == 356 * MIB
    assert estimate.reserved_range == ((228 - 192) * MIB, (612 + 192) * MIB)
    assert estimate.allocated_range == ((290 - 10) * MIB, (310 + 10) * MIB)
    assert any("228 and 356 and 612 MiB" in note for note in estimate.notes)


@pytest.mark.parametrize(("graph", "more"), [("0", 2), ("1", 26)])
def test_code_beside_the_arenas_is_within_a_range(graph: str, more: int) -> None:
    """ResNet's batches took 10 MiB less on an H200 than is counted, a captured graph 24 MiB more."""
    record = Record()
    record.take(4096, 100)
    record.mark("session", (1, 90, 90), options={"enable_cuda_graph": graph})
    record.mark("request", (1, 90, 98))
    estimate = record.estimate()
    used = estimate.device_used
    assert estimate.device_range == (used - 14 * MIB, used + more * MIB)


def test_a_request_that_the_program_goes_on_from_is_named() -> None:
    record = Record()
    record.take(4096, 100)
    record.mark("session", (1, 90, 90))
    error = "Status Message: bfc_arena.cc:360 Available memory of 5 is smaller than requested bytes of 900"
    record.mark("request", (1, 90, 95), error=error)
    record.mark("end", (1, 90, 95))
    estimate = record.estimate()
    assert estimate.out_of_memory is None and estimate.fits()
    reason = "was refused: Available memory of 5 is smaller than requested bytes of 900"
    assert any(note.endswith(reason) for note in estimate.notes)


def test_memory_that_ends_the_program() -> None:
    record = Record()
    record.take(4096, 100)
    record.mark("session", (1, 90, 90))
    error = "Failed to allocate memory for requested buffer of size 123456"
    record.mark("request", (1, 90, 95), error=error)
    record.mark("end", (1, 90, 95))
    estimate = record.estimate(ended={"how": "error", "kind": "RuntimeException", "message": error})
    assert estimate.out_of_memory is not None and not estimate.fits()
    assert estimate.out_of_memory.requested_bytes == 123456
    assert estimate.out_of_memory.reserved_bytes == 100 * MIB


def test_an_error_of_the_program_leaves_it_incomplete(growing: Record) -> None:
    ended = {"how": "error", "kind": "KeyError", "message": "'images'"}
    estimate = growing.estimate(ended=ended)
    assert estimate.incomplete == "KeyError: 'images'" and not estimate.fits()


def test_without_statistics_all_that_is_held_counts_as_in_use() -> None:
    """Releases before 1.23."""
    record = Record()
    record.take(4096, 100)
    record.mark("session")
    record.take(8192, 28)
    record.mark("request")
    estimate = record.estimate(session_notes=["ONNX Runtime 1.22.0 has no statistics of its arenas"])
    assert estimate.peak_allocated == estimate.peak_reserved == 128 * MIB
    assert any("counts as in use" in note for note in estimate.notes)
