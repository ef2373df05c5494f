"""Programs run as they are on a GPU, each process recorded by `recorded_run.py`: starting them, and their rows.

A run is named by a path without an ending, OUT/NAME or OUT/NAME.rankR: NAME.json is its row, NAME.npz its allocator's history,
NAME.txt what it printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import ROOT

Row = TypeVar("Row")
RECORDER = ROOT / "benchmarks" / "harness" / "recorded_run.py"


def start(
    name: Path, words: Sequence[str], environment: Mapping[str, str], **more: Any
) -> subprocess.Popen[bytes]:
    """A program and its arguments (options of `recorded_run.py` before them), on its way. more: as `Popen` takes it."""
    with Path(f"{name}.txt").open("w") as text:
        return subprocess.Popen(
            [sys.executable, str(RECORDER), str(name), *words],
            env={**os.environ, **environment}, stdout=text, stderr=subprocess.STDOUT, **more,
        )  # fmt: skip


def kept(file: Path, rows: Sequence[Row], run: Callable[[Row], Any]) -> list[tuple[Row, Any]]:
    """Each row with what `run` finds of it, which goes into a JSON file: a run that ends goes on from there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(file.read_text()) if file.exists() else {}
    for one in rows:
        if str(one) not in found:
            found[str(one)] = run(one)
            file.write_text(json.dumps(found))
            print(one, found[str(one)], flush=True)
    return [(one, found[str(one)]) for one in rows]


def row(name: Path) -> dict[str, Any]:
    """What it wrote; {"error": ...} where it wrote nothing."""
    file = Path(f"{name}.json")
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"error": "no answer"}
    return found


def ended(process: subprocess.Popen[bytes], seconds: float, name: Path) -> dict[str, Any]:
    """Its row when it has ended, or after so many seconds, when it is killed."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    return row(name)


def world(rank: int, count: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank. NVLS is off: measured machines share their switches with others."""
    one = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    return {**one, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_NVLS_ENABLE": "0"}


def named(found: Mapping[str, Any]) -> str:
    """A row's program, with its rank where it has one: what its files are called."""
    return str(found["name"]) if found.get("rank") is None else f"{found['name']}.rank{found['rank']}"


def write_rows(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """OUT/rows.json, and a line for each on the terminal."""
    (out / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    for one in rows:
        print(named(one), one.get("peak_allocated"), one.get("nvml_peak"), one.get("error", "")[-300:])


def pack(out: Path, files: Sequence[Path]) -> None:
    """OUT/histories.tgz of these."""
    with tarfile.open(out / "histories.tgz", "w:gz", compresslevel=1) as archive:
        for file in files:
            archive.add(file, file.name)
