"""Keeps recorded snapshots small: what a replay is compared with, and for a few the stacks.

    python -m benchmarks snapshots keep FOLDER

FOLDER has what `record.py` wrote (`snapshots.tar.xz`, `rows.json`). Written is `tests/data/snapshots/h200.tar.xz`: of each run what rows.json has under
`kept`, and NAME.bin; `restored` makes the snapshot of them again, without stacks (but for `WITH_STACKS`) and marks other than optimizer steps.
NAME.bin has the history in columns: the action (one byte), the address (8 bytes; of a block given back how many requests ago it was made),
the size (8 bytes; 0 for such a block: it is the request's), for those with stacks the time and the stack's number (8 bytes each).
"""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import ROOT

KEPT = ROOT / "tests/data/snapshots/h200.tar.xz"
# Those that tests explain; the others are replayed.
WITH_STACKS = (
    "emptied.plain", "ends_growing.plain.900MiB", "ends_training.plain.700MiB", "losses_kept.plain", "mlp_adam.plain",
)  # fmt: skip
_FARTHEST = 2**32  # above it a value is an address


def shortened(snapshot: dict[str, Any], stacks: bool) -> tuple[dict[str, Any], bytes]:
    """What is kept of a snapshot: its JSON, and the columns of its history."""
    trace = snapshot["device_traces"][0]
    actions = sorted({entry["action"] for entry in trace})
    made: dict[int, int] = {}
    addresses, sizes, frames, numbers = [], [], dict[str, int](), []
    count = 0
    for entry in trace:
        address, size = entry.get("addr", entry.get("device_free")), entry["size"]
        if entry["action"] == "alloc":
            count += 1
            made[address] = count
        elif entry["action"].startswith("free") and address in made:
            address, size = count - made[address], 0
        addresses.append(address)
        sizes.append(size)
        numbers.append(frames.setdefault(json.dumps(entry.get("frames", [])), len(frames)))
    columns = [
        np.array([actions.index(entry["action"]) for entry in trace], np.int8),
        np.array(addresses, "<i8"),
        np.array(sizes, "<i8"),
    ]
    begin = trace[0]["time_us"]
    marks = []
    if stacks:
        columns += [np.array([entry["time_us"] - begin for entry in trace], "<i8"), np.array(numbers, "<i8")]
        marks = [
            {**mark, "time_us": mark["time_us"] - begin}
            for mark in snapshot["external_annotations"]
            if mark["stage"] == "END"
        ]
    for segment in snapshot["segments"]:
        segment.pop("frames", None)
        segment["blocks"] = [[block[key] for key in _BLOCK] for block in segment["blocks"]]
    streams = sorted(
        {entry["stream"] for entry in trace} | {segment["stream"] for segment in snapshot["segments"]}
    )
    found = {
        "actions": actions, "count": len(trace), "segments": snapshot["segments"], "marks": marks,
        "settings": snapshot["allocator_settings"], "frames": [json.loads(each) for each in frames] if stacks else [],
        "streams": [[at, entry["stream"]] for at, entry in enumerate(trace) if entry["stream"]] if len(streams) > 1 else [],
    }  # fmt: skip
    return found, b"".join(column.tobytes() for column in columns)


_BLOCK = ("address", "size", "requested_size", "state")


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


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
def keep(folder: Path) -> None:
    """Put the snapshots of a folder among the tests' data, shortened."""
    rows = json.loads((folder / "rows.json").read_text())
    for row in rows:
        row.pop("traceback", None)
    KEPT.parent.mkdir(exist_ok=True)
    with tarfile.open(folder / "snapshots.tar.xz") as full, tarfile.open(KEPT, "w:xz", preset=9) as kept:

        def add(name: str, data: bytes) -> None:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            kept.addfile(entry, io.BytesIO(data))

        columns = []
        for row in rows:
            file = full.extractfile(f"{row['name']}.pickle")
            assert file is not None
            # Of our own recording; one from elsewhere is read by analyzer/recordings/plain_pickle.py.
            found, binary = shortened(pickle.load(file), row["name"] in WITH_STACKS)
            row["kept"] = found
            columns.append((row["name"], binary))
        add("rows.json", json.dumps(rows, separators=(",", ":")).encode())
        for name, binary in columns:
            add(f"{name}.bin", binary)
    click.echo(f"{KEPT.relative_to(ROOT)}: {len(rows)} runs, {KEPT.stat().st_size:,} bytes")
