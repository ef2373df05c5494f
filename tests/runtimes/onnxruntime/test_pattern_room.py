"""A memory pattern's block without room ends nothing: beside a real ONNX Runtime under a limit, and worked out by hand.

What is left after each run is a figure of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analyzer
from analyzer import devices
from analyzer.allocators import OutOfMemoryError, create
from analyzer.cli import main
from analyzer.onnx.model import read
from analyzer.report import html, text
from analyzer.report import json as json_report
from analyzer.runtimes.events import Free, Malloc
from analyzer.runtimes.onnxruntime import predict
from analyzer.runtimes.onnxruntime.course import Recorded, course
from analyzer.runtimes.onnxruntime.frame import frame
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.runtime import SessionPrediction
from analyzer.runtimes.onnxruntime.session import record
from tests.paths import PACKAGE
from tests.runtimes.onnxruntime import limited
from tests.runtimes.onnxruntime.graphs import build

H200 = devices.load("h200")
MIB = 1 << 20
KIB = 1 << 10
STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
BATCHES = [8, 8, 2, 8]
# x [4, 64] → Add w → a → Exp → b → Exp → y: a dies when b is made, b when y is.
CHAIN = "Add x w -> a; Exp a -> b; Exp b -> y", {"x": ("n", 64)}, {"w": (64,)}


def predicted(
    path: Path, strategy: int, limit: int, batches: list[int] = BATCHES, **more: Any
) -> SessionPrediction:
    models = {batch: read(path, batch) for batch in batches}
    options = {"provider": "cpu", "arena_extend_strategy": STRATEGIES[strategy], "gpu_mem_limit": str(limit)}
    return predict(
        models[max(batches)], options={**options, **more}, device=H200, runs=[models[b] for b in batches]
    )


def runs(found: SessionPrediction) -> list[list[int]]:
    """Highest in use so far and held at most, of each run."""
    rows, highest = [], found.session.peak_in_use
    for _, run in found.runs:
        highest = max(highest, run.peak_in_use)
        rows.append([highest, run.held_most])
    return rows


def goes_on(found: SessionPrediction) -> bool:
    return any("finds no room within gpu_mem_limit" in note for note in found.notes)


def test_sessions_under_a_limit_are_those_of_a_real_one(tmp_path: Path) -> None:
    """Whether they run, what is in use and held in each run, and in which run a session ends that does not."""
    pytest.importorskip("onnxruntime")
    cases, found = [], []
    for seed in range(6):
        path = tmp_path / f"{seed}.onnx"
        model = limited.tower(seed, path)
        for strategy in (0, 1):
            held = predicted(path, strategy, 0).held
            for part in (0, 0.95, 0.8, 0.65, 0.5, 0.35):
                limit = int(held * part)
                cases.append(limited.case(model, path, limit, strategy, BATCHES))
                found.append(predicted(path, strategy, limit))
    kinds = []
    for mine, (failed, rows) in zip(found, limited.real(cases), strict=True):
        if mine.failure is None:
            assert (failed, runs(mine)) == ("", rows)
        else:
            asked = -(-mine.failure.requested_bytes // 256) * 256
            assert f"is smaller than requested bytes of {asked}" in failed
            assert mine.failure.phase == f"run {len(rows) + 1}"
        kinds.append("ends" if mine.failure else "goes on" if goes_on(mine) else "has room")
    assert all(kinds.count(kind) >= 8 for kind in ("ends", "goes on", "has room")), kinds


@cache
def one(folder: Path) -> tuple[Path, int]:
    path = folder / "one.onnx"
    limited.tower(2, path)
    return path, predicted(path, 1, 0).held


@settings(max_examples=40, deadline=None)
@given(
    part=st.floats(0.05, 1.1),
    strategy=st.sampled_from((0, 1)),
    batches=st.lists(st.integers(1, 9), min_size=2, max_size=4),
)
def test_no_limit_is_passed_and_room_is_never_worse(
    tmp_path_factory: pytest.TempPathFactory, part: float, strategy: int, batches: list[int]
) -> None:
    """Under a limit a session that runs holds at most so much, and takes of each tensor what it takes with room; one that does
    not run finds no room for something other than a pattern's block."""
    path, held = one(tmp_path_factory.getbasetemp())
    limit = max(int(held * part), 1)
    found, without = (
        predicted(path, strategy, limit, batches),
        predicted(path, strategy, limit, batches, enable_mem_pattern="0"),
    )
    if found.failure is not None:
        assert found.failure.label != "memory pattern" and not goes_on(found)
        return
    assert max(held for _, held in runs(found)) <= limit
    asked, given_back = (
        [event.key for event in found.events if isinstance(event, Malloc)],
        {event.key for event in found.events if isinstance(event, Free)},
    )
    assert len(set(asked)) == len(asked) and given_back <= set(asked)
    if without.failure is None and goes_on(found):
        made = {event.label for event in without.events if isinstance(event, Malloc)}
        assert {event.label for event in found.events if isinstance(event, Malloc)} - {
            "memory pattern"
        } == made


def test_what_is_asked_for_without_the_block() -> None:
    """The second run of `CHAIN`: its own tensors again, as in the first, and no pattern recorded anew."""
    options = SessionOptions()
    planned = frame(build(*CHAIN), options)
    events = record(planned, options, H200).events
    (block,) = [event for event in events if isinstance(event, Malloc) and event.label == "memory pattern"]
    again = record(planned, options, H200, refused=frozenset({block.key})).events
    labels = [event.label for event in again if isinstance(event, Malloc)]
    assert labels == ["w", *"xaby", *"xaby"]
    at = events.index(block)
    assert again[:at] == events[:at]


def two_runs(limit: int | None, device_bytes: int | None, outside: int = 0) -> Any:
    """`CHAIN`: w is 256 bytes, x, a, b and y 1 KiB each; a is given back before y, b after it. The block is 2 KiB."""
    options = SessionOptions(gpu_mem_limit=limit, arena_extend_strategy="kSameAsRequested")
    return course(
        Recorded([[frame(build(*CHAIN), options)] * 2], options, H200), options, device_bytes, outside
    )


def test_by_hand_what_a_limit_leaves() -> None:
    """One by one w, x, a and b are taken, and y where a was: 3 328 bytes. Then the block finds no hole of 2 KiB, since x and w
    keep the others apart until the run is over; with 1 KiB more it would still be without, with 2 KiB more it has room."""
    least = 256 + 3 * KIB
    free = two_runs(None, None)
    assert (free.simulation.held, free.held_with_room) == (least + 2 * KIB, 0)
    for limit in (least, least + 2 * KIB - 256):
        found = two_runs(limit, None)
        assert found.failure is None and found.simulation.held == least
        (lost,) = found.simulation.refused
        assert (lost.label, lost.requested_bytes, lost.phase) == ("memory pattern", 2 * KIB, "run 2")
        assert found.held_with_room == least + 2 * KIB
    assert two_runs(least + 2 * KIB, None).simulation.refused == ()
    short = two_runs(least - 256, None)
    assert (short.failure.label, short.failure.phase) == ("b", "run 1")
    assert short.simulation.held == least + 2 * KIB  # with room


def test_a_device_refuses_as_a_limit_does() -> None:
    """What the process takes beside the arena is there before the second run; where the first lacks it too nothing is said to
    fit."""
    least, beside = 256 + 3 * KIB, 64 * KIB
    found = two_runs(None, least + beside + KIB, beside)
    assert (
        found.memory == least + KIB and found.simulation.held == least and len(found.simulation.refused) == 1
    )
    first = two_runs(None, least + beside - 256, beside)
    assert first.memory == least + beside - 256 and first.simulation.refused == ()


def test_a_request_the_device_refuses_makes_the_next_region_larger() -> None:
    """`Extend` doubles the next region before it asks the device (bfc_arena.cc, get_extend_bytes): after 5 MiB were refused the
    next region is to have 8 MiB, and has nine tenths of nine tenths of it, and so on down to what there is."""
    arena = create("onnxruntime_bfc", device_bytes=4 * MIB)
    with pytest.raises(OutOfMemoryError):
        arena.malloc(5 * MIB)
    arena.malloc(MIB)
    region, least = 8 * MIB, 4 * MIB
    while region > least:
        region = -(-int(region * 0.9) // 256) * 256
    assert arena.reserved == pytest.approx(region, abs=2048) and arena.reserved <= least


# The command line, the page and the files


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.onnx"
    limited.tower(3, path)
    return path


def test_the_verdict_under_a_limit(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The block alone is more than the limit leaves: it runs, in less, and says so; half of that is out of memory."""
    strategy = {"arena_extend_strategy": "kSameAsRequested"}
    with_room = analyzer.analyze(small, batch=64, device="24GiB", runtime_options=strategy)
    without = analyzer.analyze(
        small, batch=64, device="24GiB", runtime_options={**strategy, "enable_mem_pattern": "0"}
    )
    assert without.peak_reserved < with_room.peak_reserved
    limit = (without.peak_reserved + with_room.peak_reserved) // 2
    said = [
        "-q",
        str(small),
        "--batch",
        "64",
        "--device",
        "24GiB",
        "--runtime-option",
        f"gpu_mem_limit={limit}",
    ]
    said += ["--runtime-option", "arena_extend_strategy=kSameAsRequested"]
    assert main(said) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "out of memory" not in shown and "finds no room within gpu_mem_limit (run 2)" in shown
    limited_ = analyzer.analyze(
        small, batch=64, device="24GiB", runtime_options={**strategy, "gpu_mem_limit": limit}
    )
    assert limited_.peak_reserved == without.peak_reserved and limited_.fits()
    said[6] = said[6].replace(str(limit), str(without.peak_reserved // 2))
    said[said.index(f"gpu_mem_limit={limit}")] = f"gpu_mem_limit={without.peak_reserved // 2}"
    assert main(said) == 1
    assert "out of memory" in capsys.readouterr().out


def test_what_is_left_after_each_run(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without shrinkage the largest batch's memory stays; with it the last run's alone, and the first region."""
    keeps = analyzer.analyze(small, batches=(64, 1, 1), device="24GiB")
    shrinks = analyzer.analyze(
        small,
        batches=(64, 1, 1),
        device="24GiB",
        runtime_options={"memory.enable_memory_arena_shrinkage": "gpu:0"},
    )
    assert [(row.event, row.batch) for row in keeps.after_runs] == [("run 1", 64), ("run 2", 1), ("run 3", 1)]
    assert {row.reserved for row in keeps.after_runs} == {keeps.peak_reserved}
    assert all(row.device_used == keeps.device_used for row in keeps.after_runs)
    held = [row.reserved for row in shrinks.after_runs]
    assert held[-1] < shrinks.peak_reserved and held == sorted(held, reverse=True)
    beside = shrinks.device_used - shrinks.peak_reserved
    assert shrinks.after_runs[-1].device_used == pytest.approx(held[-1] + beside, abs=4 * MIB)
    for estimate in (keeps, shrinks):
        document = json.loads(json_report.render(estimate))
        jsonschema.validate(document, json.loads((PACKAGE / "analyzer/report/schema.json").read_text()))
        assert json_report.from_dict(document).after_runs == estimate.after_runs
        last = estimate.after_runs[-1]
        line = f"run 3, batch 1: {last.reserved / MIB:,.1f} MiB held"
        assert line in text.render(estimate) and "After each run" in html.render(estimate)
    assert main(["-q", str(small), "--batches", "64,1,1", "--device", "24GiB"]) == 0
    assert "After each run" in capsys.readouterr().out
    # Where every run is alike and nothing is given back there is nothing to add.
    alike = analyzer.analyze(small, batch=8, device="24GiB")
    assert len(alike.after_runs) == 2 and "After each run" not in text.render(alike)


def test_many_runs_are_shown_by_the_first_and_the_last(small: Path) -> None:
    estimate = analyzer.analyze(small, batches=(8,) * 9, device="24GiB")
    lines = text.render(estimate).splitlines()
    first = lines.index("After each run")
    assert lines[first + 4] == "3 more runs" and lines[first + 7].startswith("run 9, batch 8: ")
    none = replace(estimate, after_runs=())
    assert "After each run" not in text.render(none)
