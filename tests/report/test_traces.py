"""Snapshot and trace: what viewers read of them, their totals after every event, blocks that never overlap."""

from __future__ import annotations

import gzip
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import analyzer
from analyzer.errors import InputError
from analyzer.report import moments, snapshot, trace
from analyzer.results.estimate import Allocations, Estimate, Origin, Timeline
from tests.paths import MODELS, ROOT
from tests.report.estimates import MIB, TRAINING


@pytest.fixture(scope="module")
def real() -> Estimate:
    return analyzer.analyze(MODELS / "cnn.py", batch=4, mode="train", optimizer="adam", device="h200")


def opened(estimate: Estimate) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(snapshot.render(estimate))
    return found


def simulation(data: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """event -> (bytes in use, bytes held) after it, from the trace alone; blocks may not overlap, and lie in what is held."""
    alive: dict[int, int] = {}
    held: dict[int, int] = {}
    states: dict[int, tuple[int, int]] = {}
    for entry in data["device_traces"][0]:
        address, size = entry["addr"], entry["size"]
        match entry["action"]:
            case "alloc":
                assert all(
                    address + size <= other or address >= other + room for other, room in alive.items()
                )
                assert any(
                    start <= address and address + size <= start + room for start, room in held.items()
                )
                alive[address] = size
            case "free_completed":
                assert alive.pop(address) == size
            case "segment_alloc":
                held[address] = size
            case "segment_free":
                assert held.pop(address) == size
            case "segment_map" | "segment_unmap":
                pages = set()
                for start, room in held.items():
                    pages |= set(range(start, start + room, 2 * MIB))
                changed = set(range(address, address + size, 2 * MIB))
                pages = pages | changed if entry["action"] == "segment_map" else pages - changed
                held = {}
                for page in sorted(pages):
                    last = next(reversed(held), None)
                    if last is not None and last + held[last] == page:
                        held[last] += 2 * MIB
                    else:
                        held[page] = 2 * MIB
        states[entry["time_us"]] = (sum(alive.values()), sum(held.values()))
    return states


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_the_snapshot_totals_are_the_estimates_after_every_event(conf: str) -> None:
    options = {"alloc_conf": conf} if conf else None
    estimate = analyzer.analyze(
        MODELS / "cnn.py", batch=4, mode="train", optimizer="adam", device="h200", runtime_options=options
    )
    data = opened(estimate)
    states = simulation(data)
    line = estimate.timeline
    for event, state in states.items():
        assert state == (line.allocated[event], line.reserved[event])
    assert {event for event, delta in enumerate(line.delta) if delta} <= states.keys()
    actions = {entry["action"] for entry in data["device_traces"][0]}
    assert ("segment_map" in actions) == bool(conf)
    assert sum(segment["total_size"] for segment in data["segments"]) == line.reserved[-1]
    assert sum(segment["allocated_size"] for segment in data["segments"]) == line.allocated[-1]
    for segment in data["segments"]:
        place = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == place
            place += block["size"]
        assert place == segment["address"] + segment["total_size"]


def test_the_snapshot_by_hand() -> None:
    data = opened(TRAINING)
    (trace_,) = data["device_traces"]
    assert [(entry["action"], entry["size"], entry["time_us"]) for entry in trace_] == [
        ("segment_alloc", 10 * MIB, 0),
        ("segment_alloc", 10 * MIB, 0),
        ("alloc", 8 * MIB, 0),
        ("segment_free", 10 * MIB, 2),
        ("segment_alloc", 32 * MIB, 2),
        ("alloc", 32 * MIB, 2),
        ("free_requested", 32 * MIB, 4),
        ("free_completed", 32 * MIB, 4),
    ]
    frames = trace_[5]["frames"]
    assert [frame["name"] for frame in frames] == ["conv, out 128x8x80x64 float32", "convolution", "conv"]
    assert (frames[2]["filename"], frames[2]["line"]) == ("small.py", 12)
    first, second = data["segments"]
    assert [(block["size"], block["requested_size"], block["state"]) for block in first["blocks"]] == [
        (8 * MIB, 8 * MIB - 100, "active_allocated"),
        (2 * MIB, 0, "inactive"),
    ]
    assert [(block["size"], block["state"]) for block in second["blocks"]] == [(32 * MIB, "inactive")]
    assert snapshot.render(TRAINING)[:2] == b"\x80\x04"


def test_an_estimate_saved_before_blocks_were_kept_says_so() -> None:
    with pytest.raises(InputError, match="before it kept every block"):
        snapshot.render(replace(TRAINING, allocations=Allocations()))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), max_size=60))
def test_without_addresses_blocks_are_packed_and_never_overlap(requests: list[tuple[int, int]]) -> None:
    alive: list[int] = []
    born, died, sizes = [], [], []
    states: list[int] = []
    total = 0
    for event, (size, choice) in enumerate(requests):
        if choice < 2 and alive:
            place = alive.pop(choice % len(alive))
            died[place] = event
            total -= sizes[place]
        else:
            alive.append(len(born))
            born.append(event)
            died.append(-1)
            sizes.append(512 * size)
            total += 512 * size
        states.append(total)
    blocks = Allocations(
        tuple(born),
        tuple(died),
        tuple(sizes),
        tuple(sizes),
        (0,) * len(born),
        (0,) * len(born),
        (Origin("n", "c"),),
    )
    count = len(requests)
    line = Timeline(tuple(states), tuple(states), (0,) * count, ("",) * count, ("c",) * count, ("",) * count)
    data = opened(replace(TRAINING, timeline=line, allocations=blocks, segments=()))
    assert [state[0] for state in simulation(data).values()] == states[: len(simulation(data))]
    assert sum(segment["allocated_size"] for segment in data["segments"]) == total


def test_pytorch_reads_the_snapshot(real: Estimate) -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    assert "32.0MiB (0.0% internal) free" in viewer.segsum(opened(TRAINING))
    told = viewer.trace(opened(TRAINING))
    assert "free completed" in told and "32.0MiB" in told
    assert "MiB" in viewer.segsum(opened(real)) and "cudaMalloc" in viewer.trace(opened(real))


def counted(estimate: Estimate) -> list[dict[str, int]]:
    """The trace's counters after every event of the timeline."""
    document = json.loads(trace.render(estimate))
    now: dict[str, int] = {}
    changes: dict[int, list[dict[str, Any]]] = {}
    for event in document["traceEvents"]:
        if event["ph"] == "C":
            changes.setdefault(event["ts"], []).append(event)
    states = []
    for moment in range(len(estimate.timeline.delta)):
        for change in changes.get(moment, ()):
            now[change["name"]] = change["args"]["bytes"]
        states.append(dict(now))
    return states


def test_the_trace_totals_are_the_estimates_after_every_event(real: Estimate) -> None:
    states = counted(real)
    line = real.timeline
    for state, allocated, reserved in zip(states, line.allocated, line.reserved, strict=True):
        assert state["allocated"] == allocated and state["reserved"] == reserved
        assert sum(nbytes for name, nbytes in state.items() if name.startswith("category ")) == allocated
    at_peak = {f"category {name}": nbytes for name, nbytes in real.breakdown.items()}
    assert {name: nbytes for name, nbytes in states[real.peak_event].items() if name in at_peak} == at_peak


def test_the_trace_by_hand() -> None:
    events = json.loads(trace.render(TRAINING))["traceEvents"]
    slices = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [("iteration 0", 2, 3), ("model", 0, 2), ("0.forward", 2, 2)]
    instants = [(e["name"], e["ts"], e["args"].get("line")) for e in events if e["ph"] == "i"]
    assert instants == [("fc.weight", 0, None), ("conv, out", 2, "small.py:12"), ("peak", 2, None)]
    assert all({"ph", "pid", "tid"} <= event.keys() or event["ph"] == "C" for event in events)


def test_iterations_of_a_program_begin_where_the_number_of_its_events_goes_up() -> None:
    labels = ("w", "0.backward", "g", "0.step", "x", "1.backward", "1.step", "y")
    count = len(labels)
    category = tuple("" if "." in label else "activations" for label in labels)
    line = Timeline((1,) * count, (1,) * count, (0,) * count, labels, category, ("",) * count)
    program = replace(TRAINING, timeline=line, iterations=())
    assert moments.iterations(program) == (-1, 3)
    assert moments.iterations(TRAINING) == (1,)
    assert moments.named(program) == [(1, "0.backward"), (3, "0.step"), (5, "1.backward"), (6, "1.step")]


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import torch
from models import cnn

model = cnn.make_model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = cnn.make_batch(16)
for _ in range(3):
    x, y = [t.cuda() for t in inputs], [t.cuda() for t in targets]
    optimizer.zero_grad()
    out = model(*x)
    loss = cnn.loss(out, *y)
    loss.backward()
    optimizer.step()
    del x, y, out, loss
"""


def kinds(value: Any) -> Any:
    """The types in a value: of a mapping by key, of a list those of all its entries together."""
    if isinstance(value, dict):
        if set(value) == {"tuple"}:
            return "tuple"
        return {key: kinds(entry) for key, entry in value.items() if key not in ("frames", "blocks")}
    return type(value).__name__


def test_the_snapshot_is_built_like_one_recorded_on_an_h200(tmp_path: Path) -> None:
    recorded = json.loads(gzip.decompress((ROOT / "tests/data/h200/snapshot.json.gz").read_bytes()))
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(root=str(ROOT)))
    estimate = analyzer.run(script, device="h200")
    data = opened(estimate)
    assert sorted(data) == recorded["keys"]
    ours, theirs = data["segments"], recorded["segments"]
    assert kinds(ours[0]) == kinds(theirs[0])
    assert kinds(ours[0]["blocks"][0]) == kinds(theirs[0]["blocks"][0])
    trace_, told = data["device_traces"][0], recorded["device_traces"][0]
    for action in {entry["action"] for entry in told}:
        (mine, *_), (other, *_) = ([e for e in t if e["action"] == action] for t in (trace_, told))
        assert kinds(mine) == kinds(other)
    frames = [entry["frames"] for entry in trace_ if entry["action"] == "alloc"]
    assert kinds(frames[0][0]) == kinds(told[1]["frames"][0])
    # And it says what the real one says: the same peaks, the same segments, the same requests in the same order.
    assert estimate.peak_allocated == recorded["max_memory_allocated"]
    assert estimate.peak_reserved == recorded["max_memory_reserved"]
    assert sorted(s["total_size"] for s in ours) == sorted(s["total_size"] for s in theirs)
    assert [e["size"] for e in trace_ if e["action"] == "segment_alloc"] == [
        e["size"] for e in told if e["action"] == "segment_alloc"
    ]
    # A step that repeats the one before is stored once: the third is what the second was.
    asked = list(estimate.allocations.requested)
    recorded_asked = [entry["size"] for entry in told if entry["action"] == "alloc"]
    assert recorded_asked[: len(asked)] == asked
    again = recorded_asked[len(asked) :]
    assert not again or again == asked[-len(again) :]
    # After the last request ours goes on to the end of the program, where its variables go.
    last = max(place for place, entry in enumerate(trace_) if entry["action"] == "alloc") + 1
    assert [entry["action"] for entry in trace_[:last]] == [entry["action"] for entry in told[:last]]
