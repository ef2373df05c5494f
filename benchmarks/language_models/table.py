"""What public configurations take of a GPU: python -m benchmarks language_models table [--only NAME]... [--again USE]...

Each configuration of `configs/` is analysed as `analyze config.json` does, in a process of its own, once for every use of `USES`.
Results are kept in docs/evidence/language_models.json as they come, so that a run that was ended goes on; the table
of docs/LANGUAGE_MODELS.md is written from there, between its two comments.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import time
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness import pages

HERE = ROOT / "benchmarks/language_models"
RESULTS = ROOT / "docs/evidence/language_models.json"
PAGE = ROOT / "docs/LANGUAGE_MODELS.md"
_TUNED = ["--mode", "train", "--length", "2048", "--gradient-checkpointing"]
_ADAPTED = ["--lora", "r=16,targets=all-linear"]
USES = {
    "infer, 4,096 tokens": ["--length", "4096"],
    "QLoRA": [*_TUNED, *_ADAPTED, "--load-in-4bit", "--amp", "bf16", "--optimizer", "paged_adamw_8bit"],
    "LoRA": [*_TUNED, *_ADAPTED],
    "full, bf16, AdamW": _TUNED,
}
# Names of `analyze devices`, smallest first.
CARDS = ("t4", "rtx4090", "a100-40gb", "h100", "h200", "b200")
_BEGIN, _END = "<!-- table: benchmarks/language_models/table.py -->", "<!-- end of the table -->"


def asked(name: str, use: str) -> dict[str, Any]:
    """What `analyze` says of one configuration in one use."""
    config = HERE / "configs" / name
    command = [sys.executable, "-m", "analyzer", str(config), *USES[use], "-q"]
    command += ["--release", "torch=2.11", "--format", "json"]
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    row: dict[str, Any] = {"seconds": round(time.monotonic() - begun, 1)}
    if done.returncode not in (0, 1):
        return {**row, "error": done.stderr.strip().splitlines()[-2:]}
    estimate = json.loads(done.stdout)
    names = ("peak_allocated", "peak_reserved", "device_used")
    return {**row, **{key: estimate[key] for key in names}}


def written(results: dict[str, Any]) -> str:
    """The table: GiB a process takes of the device, and the smallest card that has so much."""
    from analyzer.devices.loader import load

    cards = [(name, load(name).capacity_bytes) for name in CARDS]
    models = json.loads((HERE / "configs/sources.json").read_text())["models"]
    lines = []
    for name, model in models.items():
        cells = []
        for use in USES:
            row = results["rows"].get(name, {}).get(use)
            if row is None or "error" in row:
                cells.append("-" if row is None else "not followed")
                continue
            card = next((card for card, room in cards if row["device_used"] <= room), "more")
            cells.append(f"{row['device_used'] / 2**30:,.1f} ({card})")
        if set(cells) != {"-"}:
            lines.append((model["of"], f"{model['parameters'] / 1e9:,.1f} B", *cells))
    return pages.table(("model", "parameters", *USES), lines, "l" + "r" * (1 + len(USES))).rstrip("\n")


@click.command("table")
@click.option("--only", multiple=True, help="configurations, by their folder; all, where none is named")
@click.option("--again", multiple=True, help="uses whose rows are analysed anew, such as QLoRA")
def main(only: tuple[str, ...], again: tuple[str, ...]) -> None:
    """Ask what is missing, then write the table."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": {}}
    results["made"] = {
        "date": f"{datetime.datetime.now(datetime.UTC):%d %B %Y}",
        "figures": "torch 2.11, CUDA 13.0, an H200's context",
    }
    everything = [path.name for path in sorted((HERE / "configs").iterdir()) if path.is_dir()]
    for name in only or everything:
        rows = results["rows"].setdefault(name, {})
        for use in again:
            rows.pop(use, None)
        for use in USES:
            if use not in rows:
                rows[use] = asked(name, use)
                print(name, use, rows[use], flush=True)
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if PAGE.exists():
        page = PAGE.read_text()
        before, rest = page.split(_BEGIN)
        PAGE.write_text(f"{before}{_BEGIN}\n{written(results)}\n{_END}{rest.split(_END)[1]}")
