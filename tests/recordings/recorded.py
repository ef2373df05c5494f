"""Snapshots of PyTorch's allocator as they were recorded on an H200 (`tests/data/snapshots`), replayed, and each setting beside its run.

Of each run the archive has in `rows.json` its description, and NAME.bin: the history in columns, the action (one byte), the address (8
bytes; of a block given back how many requests ago it was made), the size (8 bytes; 0 for such a block: it is the request's), for those
with stacks the time and the stack's number (8 bytes each).
"""

from __future__ import annotations

import json
import pickle
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.allocators.pytorch.settings import settings_from_conf
from analyzer.graph import Category
from analyzer.recordings.history import history_of
from analyzer.recordings.outcome import Outcome, outcome
from analyzer.recordings.replay import replay
from analyzer.recordings.snapshot import read
from analyzer.runtimes.events import Malloc
from tests.paths import ROOT

KEPT = ROOT / "tests/data/snapshots/h200.tar.xz"
_FARTHEST = 2**32  # above it a value is an address
_BLOCK = ("address", "size", "requested_size", "state")


@cache
def _archive() -> tuple[dict[str, dict[str, Any]], dict[str, bytes]]:
    with tarfile.open(KEPT) as archive:
        files = {
            entry.name: file.read() for entry in archive.getmembers() if (file := archive.extractfile(entry))
        }
    return {row["name"]: row for row in json.loads(files["rows.json"])}, files


def restored(found: dict[str, Any], columns: bytes) -> dict[str, Any]:
    """The snapshot again."""
    count, streams = found["count"], dict(found["streams"])
    actions = np.frombuffer(columns, np.int8, count).tolist()
    wide = np.frombuffer(columns[count:], "<i8").reshape(-1, count).tolist()
    times, stacks = (wide[2], wide[3]) if len(wide) > 2 else ([0] * count, None)
    made: list[tuple[int, int]] = []
    trace = []
    for at, (action, address, size) in enumerate(zip(actions, wide[0], wide[1], strict=True)):
        name = found["actions"][action]
        if name.startswith("free") and address < _FARTHEST:
            address, size = made[len(made) - 1 - address]  # noqa: PLW2901
        elif name == "alloc":
            made.append((address, size))
        entry = {
            "action": name,
            "device_free" if name == "oom" else "addr": address,
            "size": size,
            "stream": streams.get(at, 0),
        }
        entry |= {"time_us": times[at], "frames": found["frames"][stacks[at]] if stacks else []}
        trace.append(entry)
    return {
        "segments": [
            {
                **segment,
                "segment_pool_id": tuple(segment["segment_pool_id"]),
                "blocks": [dict(zip(_BLOCK, block, strict=True)) for block in segment["blocks"]],
            }
            for segment in found["segments"]
        ],
        "device_traces": [trace],
        "allocator_settings": found["settings"],
        "external_annotations": found["marks"],
    }


def runs() -> dict[str, dict[str, Any]]:
    """Every run's row by its name."""
    return _archive()[0]


def written(name: str, folder: Path) -> Path:
    """A run's snapshot as a file of a folder."""
    rows, files = _archive()
    path = folder / f"{name}.pickle"
    path.write_bytes(pickle.dumps(restored(rows[name]["kept"], files[f"{name}.bin"]), protocol=4))
    return path


@dataclass(frozen=True)
class Replayed:
    """parted: places where replay and record part. Bytes are (peak, at the end)."""

    parted: int
    allocated: tuple[int, int]
    reserved: tuple[int, int]
    count: int
    has_beginning: bool


def replayed(name: str) -> Replayed:
    """A run's snapshot replayed as it was."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot = read(written(name, Path(folder)))
    record = snapshot.devices[0]
    history = history_of(record, snapshot)
    last = tuple(segment.state for segment in record.segments)
    found = replay(
        history, snapshot.settings, last, lambda key: Malloc(key, history.sizes[key], Category.ACTIVATION)
    )
    simulation = found.simulation
    return Replayed(
        found.parted,
        (simulation.peak_allocated, simulation.allocated[-1]),
        (simulation.peak_reserved, simulation.reserved[-1]),
        len(record.trace or ()),
        history.has_beginning,
    )


def plain_of(name: str) -> str:
    """The plain run of the same program under the same limit."""
    row = runs()[name]
    return ".".join([row["program"], "plain", *([f"{row['limit_mib']}MiB"] if row["limit_mib"] else [])])


def predicted(name: str) -> Outcome:
    """What the plain run's recording says of a run under another setting."""
    row = runs()[name]
    with tempfile.TemporaryDirectory() as folder:
        snapshot = read(written(plain_of(name), Path(folder)))
    history = history_of(snapshot.devices[0], snapshot)
    limit = (
        {"per_process_memory_fraction": row["fraction"], "device_total_bytes": row["total"]}
        if row["fraction"]
        else {}
    )
    return outcome(history, settings_from_conf(row["conf"], **limit))


def under_settings() -> list[str]:
    """The runs under another setting than a plain one."""
    return [name for name, row in runs().items() if row["setting"] != "plain"]
