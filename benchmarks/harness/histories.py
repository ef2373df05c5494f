"""Recorded allocator histories as one small file for tests: python -m benchmarks histories pack ROWS.json FOLDER ... -o FILE.xz

Each ROWS.json lists the runs (name, rank if there is one, peaks, environment) whose histories lie in the FOLDER behind it as
NAME.npz or NAME.rankR.npz, as `benchmarks/ranks/measure.py` writes them. The file's form is described, and read, in
`tests/allocators/pytorch/histories.py`.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.harness.recorded import named

ACTIONS = {
    "alloc": 0, "free_completed": 1, "segment_alloc": 2, "segment_free": 3, "segment_map": 4, "segment_unmap": 5,
}  # fmt: skip


def packed(row: dict[str, Any], file: Path) -> tuple[dict[str, Any], list[int], list[int], list[int]]:
    """The row as the file has it, actions with their streams, values, and addresses of segments."""
    arrays = np.load(file, allow_pickle=False)
    names = [str(name) for name in arrays["actions"]]
    actions, values, addresses = list[int](), list[int](), list[int]()
    made: dict[int, int] = {}
    count, asked_back, waits = 0, set[int](), False
    for act, place, size, stream in zip(
        arrays["act"].tolist(), arrays["addr"].tolist(), arrays["size"].tolist(), arrays["stream"].tolist(), strict=True
    ):  # fmt: skip
        name = names[act]
        if name == "free_requested":
            asked_back.add(place)
            continue
        waits = waits or (bool(asked_back) and not (name == "free_completed" and place in asked_back))
        asked_back.discard(place)
        actions.append(ACTIONS[name] + 8 * stream)
        if name == "alloc":
            made[place], count = count, count + 1
            values.append(size)
        elif name == "free_completed":
            values.append(count - made.pop(place))
        else:
            values.append(size)
            if name in ("segment_alloc", "segment_map"):
                addresses.append(int(arrays["base"][place]))
    meta = {
        "name": named(row),
        "count": len(actions),
        "segments": len(addresses),
        "conf": row.get("environment", {}).get("PYTORCH_ALLOC_CONF", ""),
        "fraction": None,
        "retries": row.get("retries", 0),
        "waits": waits,
        "peak_allocated": row["peak_allocated"],
        "peak_reserved": row["peak_reserved"],
    }
    return meta, actions, values, addresses


@click.command("pack")
@click.argument("pairs", nargs=-1, required=True, type=Path)
@click.option("-o", "--output", type=Path, required=True)
def main(pairs: tuple[Path, ...], output: Path) -> None:
    """Pack the histories of ROWS.json FOLDER, one pair after the other, into one file."""
    found = []
    for rows, folder in zip(pairs[::2], pairs[1::2], strict=True):
        for row in json.loads(rows.read_text()):
            found.append(packed(row, folder / f"{named(row)}.npz"))
    header = json.dumps({"programs": [meta for meta, *_ in found]}).encode()
    data = b"".join(
        (
            len(header).to_bytes(8, "little"),
            header,
            np.concatenate([np.array(actions, np.int8) for _, actions, _, _ in found]).tobytes(),
            np.concatenate([np.array(values, "<i8") for _, _, values, _ in found]).tobytes(),
            np.concatenate([np.array(addresses, "<i8") for *_, addresses in found]).tobytes(),
        )
    )
    output.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(found)} histories, {output.stat().st_size:,} bytes")
