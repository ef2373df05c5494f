"""Measure single operators on this machine's GPU, for the tables of `extensions/analyzer_timing`."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import click
import torch

from benchmarks.harness.files import write
from benchmarks.timing import denser, host
from benchmarks.timing.kernels import Meter
from benchmarks.timing.shapes import SECTIONS as COARSE

SECTIONS = COARSE | denser.SECTIONS
# Seconds of so many for each section of `shapes.py` and `denser.py`.
_SHARES = {
    "products": 6, "aligned": 6, "batched": 2, "others_of_products": 1, "moved": 2, "mixed": 2, "normalized": 2, "attentions": 7, "looked_up": 11,
    "convolutions": 19, "stages": 42, "odd": 4, "rows": 5, "reductions": 4, "copies": 6, "pointwise": 3, "norm_planes": 5, "pools": 5,
    "grouped": 6, "wide": 6, "sounds": 3,
}  # fmt: skip


def versions() -> dict[str, str]:
    """What the figures are of."""
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "torch": torch.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
        "date": time.strftime("%Y-%m-%d"),
    }


@click.command("measure")
@click.argument("folder", type=Path)
@click.option("--seconds", default=600.0, help="of all sections together")
@click.option("--section", "sections", multiple=True, type=click.Choice(list(_SHARES)), help="these alone")
def main(folder: Path, seconds: float, sections: tuple[str, ...]) -> None:
    """Time every operator of the specifications: operators.json.gz, and the host's part: host.json.gz."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if not sections:
        write(folder / "host.json.gz", {"versions": versions(), "seconds": host.measured(device)})
        print(f"host: {time.monotonic() - begin:.0f} s", flush=True)
    chosen = {name: share for name, share in _SHARES.items() if not sections or name in sections}
    rest = (seconds - (time.monotonic() - begin)) / sum(chosen.values())
    meter = Meter(device, 2**29 if device == "cuda" else 2**20)
    until = time.monotonic()
    for name, share in chosen.items():
        specs = list(SECTIONS[name]())
        random.Random(0).shuffle(specs)
        until += rest * share
        done = meter.measure(specs, until)
        print(
            f"{name}: {done} of {len(specs)}, {len(meter.rows)} rows, {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        write(
            folder / "operators.json.gz", {"versions": versions(), "rows": meter.rows, "failed": meter.failed}
        )
        torch.cuda.empty_cache()
    print(f"{len(meter.rows)} rows, {len(meter.failed)} failed", file=sys.stderr)


if __name__ == "__main__":
    main()
