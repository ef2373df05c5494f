"""A pickle is read as data: what would execute anything is refused, and so is what is no snapshot."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import InputError
from analyzer.recordings.estimate import explain
from analyzer.recordings.plain_pickle import load
from analyzer.recordings.snapshot import read
from tests.paths import PYTHONPATH


class Executes:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


class WithState:
    def __init__(self) -> None:
        self.state = 1


def protocol_2(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


HOSTILE = {
    "reduce": pickle.dumps({"segments": [Executes()]}, protocol=4),
    "reduce, protocol 0": pickle.dumps(Executes(), protocol=0),
    "object with a state": pickle.dumps(WithState(), protocol=2),
    "global": protocol_2(b"cos\nsystem\n"),
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "inst": protocol_2(b"(ios\nsystem\n"),
    "obj": protocol_2(b"(cos\nsystem\no"),
    "build": protocol_2(b"}}b"),
    "newobj": protocol_2(b")\x81"),
    "persistent id": protocol_2(b"Pname\n"),
    "binary persistent id": protocol_2(b"K\x01Q"),
    "extension code": protocol_2(b"\x82\x01"),
    "extension code of four bytes": protocol_2(b"\x84\x01\x00\x00\x00"),
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
    "out of band buffer": b"\x80\x05\x97.",
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_is_executed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hostile.pickle"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(InputError) as raised:
        read(path)
    assert "\n" not in raised.value.message and raised.value.hint
    assert "nothing of it was executed" in raised.value.message
    assert sorted(tmp_path.iterdir()) == [path]


DAMAGED = {
    "empty": b"",
    "no pickle": b"hello",
    "protocol of the future": b"\x80\x09.",
    "cut off": pickle.dumps({"segments": ["x" * 40]}, protocol=4)[:-9],
    "a text longer than the file": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",
    "a memo of four thousand million": b"\x80\x02}r\xff\xff\xff\xff.",
    "a number of a megabyte": b"\x80\x02\x8b" + struct.pack("<i", 1 << 20) + bytes(1 << 20) + b".",
    "a number of negative length": b"\x80\x02\x8b" + struct.pack("<i", -4) + b".",
    "digits without end": b"I" + b"9" * 5000 + b"\n.",
    "a reference to nothing": b"\x80\x02h\x07.",
    "a mark in the memo": b"\x80\x04(\x94.",
    "no mark": b"\x80\x02]e.",
    "nothing on the stack": b"\x80\x020.",
    "a list as a key": b"\x80\x02}(]K\x01u.",
    "a dictionary of three": b"\x80\x02}(K\x01K\x02K\x03u.",
    "appended to a number": b"\x80\x02K\x01K\x02a.",
    "another dictionary": pickle.dumps({"state_dict": {}}),
    "segments of numbers": pickle.dumps({"segments": [1, 2]}),
    "an address that is a text": pickle.dumps({"segments": [{"address": "0", "total_size": 1, "blocks": []}]}),
    "a size below zero": pickle.dumps({"segments": [{"address": 0, "total_size": -1, "blocks": []}]}),
    "blocks that do not tile": pickle.dumps(
        {"segments": [{"address": 0, "total_size": 2, "blocks": [{"size": 1, "state": "inactive"}]}]}
    ),
    "an entry without numbers": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": "x"}]]}),
    "an entry beyond 64 bits": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 2**70}]]}),
    "a thousand devices": pickle.dumps({"segments": [], "device_traces": [[] for _ in range(1000)]}),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_files_are_one_clear_line(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.pickle"
    path.write_bytes(DAMAGED[kind])
    with pytest.raises(InputError) as raised:
        read(path)
    assert "\n" not in raised.value.message and str(path) in raised.value.message and raised.value.hint


def test_deep_nesting_neither_recurses_nor_crashes(tmp_path: Path) -> None:
    path = tmp_path / "deep.pickle"
    path.write_bytes(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".")
    with pytest.raises(InputError):
        read(path)


def test_references_to_one_list_are_no_bomb(tmp_path: Path) -> None:
    """A segment of many blocks that the file refers to ten thousand times."""
    blocks = [{"size": 1, "state": "inactive"} for _ in range(1000)]
    segment = {"address": 0, "total_size": 1000, "blocks": blocks}
    path = tmp_path / "bomb.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment] * 10_000}))
    with pytest.raises(InputError, match="again and again"):
        read(path)


def test_a_history_shared_by_devices_is_refused(tmp_path: Path) -> None:
    trace = [{"action": "alloc", "addr": 0, "size": 512, "stream": 0}]
    path = tmp_path / "shared.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace] * 8}))
    with pytest.raises(InputError, match="share"):
        read(path)


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol(protocol: int, tmp_path: Path) -> None:
    frame = {"name": "forward", "filename": "net.py", "line": 3}
    entries = [
        {"action": "alloc", "addr": 2**46 + at, "size": at, "stream": 0, "time_us": 2**50, "frames": [frame]}
        for at in range(300)
    ]
    value = {"segments": [(1, 2), (1, 2, 3), "text", None, True, 1.5, -7, 2**62], "device_traces": [entries]}
    path = tmp_path / "plain.pickle"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    found, stacks, traces = load(path)
    assert found["segments"] == value["segments"]
    (trace,) = traces.values()
    assert trace.address.tolist() == [entry["addr"] for entry in entries]
    assert len(stacks.stacks) == 2 and trace.frames(299)[0].filename == "net.py"


def test_changed_bytes_never_do_more_than_fail(tmp_path: Path) -> None:
    """Five hundred snapshots with a byte changed: read, or an InputError."""
    frame = {"name": "f", "filename": "a.py", "line": 1}
    block = {"address": 0, "size": 512, "requested_size": 4, "state": "active_allocated", "frames": [frame]}
    segment = {"address": 0, "total_size": 512, "segment_pool_id": (0, 0), "blocks": [block], "stream": 0}
    entry = {"action": "alloc", "addr": 0, "size": 4, "stream": 0, "frames": [frame]}
    data = pickle.dumps({"segments": [segment], "device_traces": [[entry]]}, protocol=4)
    draw, path = random.Random(1), tmp_path / "changed.pickle"
    for _ in range(500):
        changed = bytearray(data)
        changed[draw.randrange(2, len(data))] = draw.randrange(256)
        path.write_bytes(bytes(changed))
        try:
            read(path)
        except InputError as error:
            assert "\n" not in error.message


def _text(words: str) -> bytes:
    return b"X" + struct.pack("<I", len(words)) + words.encode()


def _nested(count: int) -> bytes:
    """Lists in each other."""
    return b"]" * count + b"a" * (count - 1)


def _segment(total_size: bytes, blocks: bytes = b"]") -> bytes:
    """A snapshot of one segment."""
    fields = _text("address") + b"K\x01" + _text("total_size") + total_size + _text("blocks") + blocks
    return b"}" + _text("segments") + b"]}(" + fields + b"uas"


def _block(state: bytes) -> bytes:
    return b"]}(" + _text("size") + b"K\x02" + _text("state") + state + b"ua"


DEEP = {
    "a tuple as a key": b"}" + b")" + b"\x85" * 1_000_000 + b"Ns",
    "a size": _segment(_nested(200_000)),
    "a size that holds itself": _segment(b"]\x94h\0a"),
    "a state": _segment(b"K\x02", _block(_nested(200_000))),
    "segments that hold themselves": b"}" + _text("segments") + b"]\x94h\0as",
}


@pytest.mark.parametrize("kind", DEEP)
def test_nested_without_end(kind: str, tmp_path: Path) -> None:
    """Hashed or printed, each would end Python itself; in a process of its own."""
    path = tmp_path / "deep.pickle"
    path.write_bytes(b"\x80\x04" + DEEP[kind] + b".")
    code = f"""
from analyzer.errors import InputError
from analyzer.recordings.snapshot import read
from pathlib import Path
try:
    read(Path({str(path)!r}))
except InputError as error:
    print(error.message)
"""
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-P", "-c", code]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
    assert ran.returncode == 0, ran.stderr[-500:]
    assert ran.stdout.startswith(str(path)) and len(ran.stdout) < 300
    assert "Error" not in ran.stdout and "has no attribute" not in ran.stdout


def test_a_history_without_requests_has_no_growth(tmp_path: Path) -> None:
    given = {"action": "free_requested", "addr": 512, "size": 512, "stream": 0, "frames": []}
    path = tmp_path / "given.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[given, {**given, "addr": 1024}]]}))
    recording = explain(path)
    assert not recording.growth and recording.estimate.peak_allocated == 0


def test_settings_of_another_type_are_not_read(tmp_path: Path) -> None:
    values = {"PYTORCH_CUDA_ALLOC_CONF": [["x"]], "expandable_segments": True}
    path = tmp_path / "settings.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "allocator_settings": values}))
    assert read(path).conf == "expandable_segments:True"
