"""Runs the programs with their allocator's history recorded, each in a process of its own; needs torch and nothing of this project.

    python record.py FOLDER [--at-once N] [--only WORD]      all runs, into FOLDER/snapshots.tar.xz and FOLDER/rows.json
    python record.py --one FOLDER NAME                       one run

A run is a program under one setting. Of each the file has `_dump_snapshot()`'s pickle, and a row what the allocator's own counters say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MIB = 2**20
SETTINGS = {
    "expandable": "expandable_segments:True",
    "max_split": "max_split_size_mb:32",
    "roundup": "roundup_power2_divisions:4",
}
# Programs of which a plain run stands beside a run under each setting, in as much memory as they want.
UNDER_EACH = (
    "mlp_adam", "growing_batches", "convolutions", "autocast", "generation", "sizes", "emptied", "checkpointed", "two_models", "losses_kept",
)  # fmt: skip
# Programs that meet a limit, in MiB, and the settings they are run under besides: garbage collection needs a limit.
LIMITED = {
    "tight": (1100, ("expandable", "garbage", "max_split")),
    "ends_fragmented": (1900, ("expandable", "max_split", "roundup")),
    "ends_training": (700, ("expandable",)),
    "ends_growing": (900, ("expandable",)),
    "growing_batches": (3000, ("garbage",)),
    "sizes": (330, ("garbage",)),
}


@dataclass(frozen=True)
class Run:
    """name: PROGRAM.SETTING. limit_mib: what the fraction allows. entries: of the ring buffer. stacks: which frames are kept."""

    program: str
    setting: str = "plain"
    limit_mib: int = 0
    entries: int = 1_000_000
    stacks: str = "python"

    @property
    def name(self) -> str:
        parts = (
            self.program,
            self.setting,
            f"{self.limit_mib}MiB" if self.limit_mib else "",
            f"last{self.entries}" if self.entries < 10**6 else "",
        )
        return ".".join(part for part in parts if part)

    @property
    def conf(self) -> str:
        return (
            "garbage_collection_threshold:0.7"
            if self.setting == "garbage"
            else SETTINGS.get(self.setting, "")
        )


def runs() -> list[Run]:
    from programs import PROGRAMS

    found = [Run(name) for name in PROGRAMS if name not in LIMITED or name in UNDER_EACH]
    found += [Run(name, setting) for name in UNDER_EACH for setting in SETTINGS]
    for name, (limit, settings) in LIMITED.items():
        found += [Run(name, setting, limit) for setting in ("plain", *settings)]
    found += [Run("mlp_adam", entries=900), Run("growing_batches", entries=3000), Run("emptied", entries=700)]
    found += [Run("streams", stacks="all", entries=999_999)]
    return found


def record(folder: Path, name: str) -> None:
    """Carry out one run in this process, and write its row and its snapshot."""
    run = next(run for run in runs() if run.name == name)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = run.conf
    import torch
    from programs import PROGRAMS

    total = torch.cuda.mem_get_info()[1]
    fraction = run.limit_mib * MIB / total if run.limit_mib else None
    if fraction is not None:
        torch.cuda.set_per_process_memory_fraction(fraction)
    torch.manual_seed(0)
    torch.cuda.memory._record_memory_history(max_entries=run.entries, stacks=run.stacks)
    row: dict[str, object] = {
        "name": name, "program": run.program, "setting": run.setting, "conf": run.conf, "fraction": fraction, "total": total,
        "limit_mib": run.limit_mib, "entries": run.entries,
    }  # fmt: skip
    begun = time.time()
    try:
        PROGRAMS[run.program]()
    except Exception as error:
        row["error"], row["traceback"] = repr(error)[:300], traceback.format_exc()[-1500:]
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    torch.cuda.memory._dump_snapshot(str(folder / f"{name}.pickle"))
    names = {
        "allocated": "allocated_bytes.all",
        "reserved": "reserved_bytes.all",
        "active": "active_bytes.all",
    }
    row |= {
        f"{key}_{when}": stats[f"{long}.{when}"]
        for key, long in names.items()
        for when in ("peak", "current")
    }
    row |= {
        "retries": stats["num_alloc_retries"],
        "ooms": stats["num_ooms"],
        "seconds": round(time.time() - begun, 2),
    }
    row |= {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name()}
    (folder / f"{name}.json").write_text(json.dumps(row))


def record_all(folder: Path, at_once: int, only: str) -> None:
    """Carry out every run, so many at once, and pack what they wrote."""
    names = [run.name for run in runs() if only in run.name]

    def start(name: str) -> None:
        command = [sys.executable, __file__, "--one", str(folder), name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        if done.returncode:
            (folder / f"{name}.json").write_text(
                json.dumps({"name": name, "error": (done.stderr or "")[-1500:]})
            )
        print(name, done.returncode, flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(start, names))
    rows = [json.loads((folder / f"{name}.json").read_text()) for name in names]
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    with tarfile.open(folder / "snapshots.tar.xz", "w:xz") as archive:
        for path in sorted(folder.glob("*.pickle")):
            archive.add(path, path.name)
            path.unlink()
    for name in names:
        (folder / f"{name}.json").unlink()
    print(len(rows), "runs;", [(row["name"], row["error"][-200:]) for row in rows if row.get("error")])


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        record(Path(sys.argv[2]), sys.argv[3])
    else:
        options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        record_all(Path(sys.argv[1]), int(options.get("--at-once", "8")), options.get("--only", ""))
