"""A history is read in pieces as it is opcode by opcode, and other settings are simulated in plain numbers as by the simulator."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from analyzer.allocators.compiled import AVAILABLE
from analyzer.allocators.pytorch.settings import settings_from_conf
from analyzer.errors import InputError
from analyzer.recordings import entries, outcome
from analyzer.recordings.history import history_of
from analyzer.recordings.plain_pickle import load
from analyzer.recordings.snapshot import read
from benchmarks.subjects.snapshots import trained
from tests.recordings.recorded import runs, written


def drawn(seed: int, count: int) -> list[dict[str, Any]]:
    """Entries of every kind: with and without stacks, of one frame and many, shared lists, new texts in the middle, categories."""
    draw = random.Random(seed)
    frames = [{"name": f"f{n}", "filename": f"{n % 7}.py", "line": n} for n in range(300)]
    stacks = [draw.sample(frames, draw.choice((0, 1, 2, 3, 40))) for _ in range(30)]
    actions = (
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "snapshot",
    )
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        row: dict[str, Any] = {
            "action": draw.choice(actions),
            "addr": draw.choice((0, 200, 70_000, 2**31, 2**46 + draw.randrange(2**20))),
        }
        row |= {"size": draw.choice((0, 1, 300, 2**20, 2**40)), "stream": draw.choice((0, 0, 7, 2**45))}
        if draw.random() < 0.9:
            row["frames"] = draw.choice(stacks) if draw.random() < 0.5 else list(draw.choice(stacks))
        row["time_us"] = 2**50 + draw.randrange(2**30)
        if draw.random() < 0.3:
            row["category"] = draw.choice(("parameter", "unknown", f"other {draw.randrange(4)}", ""))
        if draw.random() < 0.2:
            row |= {
                "user_metadata": draw.choice(("", f"new {draw.random()}")),
                "compile_context": None,
                "more": 1.5,
            }
        if draw.random() < 0.02:
            row = {
                "action": "oom",
                "device_free": 5,
                "size": 9,
                "stream": 0,
                "time_us": 1,
                "frames": list(stacks[0]),
            }
        rows.append(row)
    return rows


def columns(path: Path) -> list[Any]:
    _, stacks, traces = load(path)
    return [
        (
            [
                getattr(trace, name).tolist()
                for name in ("action", "address", "size", "stream", "time", "category")
            ],
            [stacks.stacks[number] for number in trace.stack],
            trace.categories,
        )
        for trace in traces.values()
    ]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pieces_are_what_opcodes_are(
    seed: int, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "snapshot.pickle"
    value = {"segments": [], "device_traces": [drawn(seed, 2500), drawn(seed + 100, 3)]}
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    pieces = columns(path)
    monkeypatch.setattr(entries, "_MOST_FORMS", 0)
    assert columns(path) == pieces
    expected = value["device_traces"][0]
    assert pieces[0][0][1] == [row.get("addr", row.get("device_free")) for row in expected]
    assert [len(stack) for stack in pieces[0][1]] == [len(row.get("frames", ())) for row in expected]


def test_most_entries_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a snapshot as PyTorch writes one, all but the first of a kind and those that a frame of the pickle cuts."""
    path, taken = tmp_path / "snapshot.pickle", []
    value = trained(12_000)
    path.write_bytes(pickle.dumps(value))
    real = entries.Entries.read
    monkeypatch.setattr(
        entries.Entries, "read", lambda self, at, trace: taken.append(len(trace)) or real(self, at, trace)
    )
    record = read(path).devices[0]
    assert record.trace is not None and len(record.trace) == len(value["device_traces"][0]) == 12_000
    # One by one: those whose stack is new, some 1,000, and one in 64 KiB of the file.
    assert len(taken) < 1100 + path.stat().st_size // 2**16


def test_a_cut_or_changed_history_is_an_error_or_the_same_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hundred histories with a byte changed or cut off: what the machine says by itself is what it says with pieces."""
    data = pickle.dumps({"segments": [], "device_traces": [drawn(1, 60)]}, protocol=4)
    draw, path = random.Random(3), tmp_path / "changed.pickle"

    def said() -> Any:
        try:
            return columns(path)
        except InputError:
            return "an error"

    answers = []
    for _ in range(300):
        changed = bytearray(data)
        changed[draw.randrange(2, len(data))] = draw.randrange(256)
        path.write_bytes(bytes(changed[: draw.choice((len(data), len(data), draw.randrange(len(data))))]))
        with monkeypatch.context() as context:
            pieces = said()
            context.setattr(entries, "_MOST_FORMS", 0)
            assert said() == pieces
        answers.append(pieces)
    assert answers.count("an error") > 50 and sum(answer != "an error" for answer in answers) > 20


SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:20",
    "roundup_power2_divisions:4",
)
RECORDED = (
    "growing_batches.plain",
    "streams.plain",
    "graphs.plain",
    "emptied.plain.last700",
    "sizes.plain",
    "tight.plain.1100MiB",
)


@pytest.mark.skipif(not AVAILABLE, reason="needs the compiled allocator")
@pytest.mark.parametrize("name", RECORDED)
def test_plain_numbers_are_what_the_simulator_is(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks, retries and the request that fails, with room and within less than is held."""
    assert name in runs()
    snapshot = read(written(name, tmp_path))
    history = history_of(snapshot.devices[0], snapshot)
    monkeypatch.setattr(outcome, "_LEAST_PLAIN", 20)
    together = outcome.Outcomes(history)
    monkeypatch.setattr(outcome, "_LEAST_PLAIN", 10**9)
    alone = outcome.Outcomes(history)
    for conf in SETTINGS:
        room = alone.under(settings_from_conf(conf))
        assert together.under(settings_from_conf(conf)) == room
        for part in (1.0, 0.9, 0.5):
            limited = settings_from_conf(conf, limit_bytes=int(room.peak_reserved * part))
            assert together.under(limited) == alone.under(limited)


@pytest.mark.skipif(not AVAILABLE, reason="needs the compiled allocator")
def test_a_long_row_is_served_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, rows = tmp_path / "snapshot.pickle", []
    path.write_bytes(pickle.dumps(trained(4000)))
    snapshot = read(path)
    history = history_of(snapshot.devices[0], snapshot)
    real = outcome.simulate_on
    monkeypatch.setattr(
        outcome, "simulate_on", lambda *given: rows.append(len(given[2][0][0])) or real(*given)
    )
    found = outcome.outcome(history, settings_from_conf(""))
    assert sum(rows) == sum(entry.kind in ("take", "give") for entry in history.entries) > 2000
    monkeypatch.setattr(outcome, "_LEAST_PLAIN", 10**9)
    assert outcome.outcome(history, settings_from_conf("")) == found
