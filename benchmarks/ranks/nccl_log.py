"""What NCCL said it allocates: python -m benchmarks ranks nccl FOLDER -o tests/data/h200/nccl_log.json

FOLDER has the logs `measure.py --log NAME ...` wrote (NCCL_DEBUG=INFO, subsystems INIT, ALLOC, GRAPH, P2P). For each program
and rank: allocations on the device by size, those below a page of 2 MiB together.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import click

PAGE_BYTES = 2**21
_ALLOCATED = re.compile(r"(?:Cuda Alloc Size (\d+)|Allocated shareable buffer \S+ size (\d+))")


def allocations(text: str) -> dict[str, int]:
    """How many allocations of each size, in bytes; "small" for those below a page."""
    sizes = [int(first or second) for first, second in _ALLOCATED.findall(text)]
    counts = Counter("small" if size < PAGE_BYTES else str(size) for size in sizes)
    return dict(sorted(counts.items()))


@click.command()
@click.argument("folder", type=Path)
@click.option("-o", "--output", type=Path, required=True)
def nccl(folder: Path, output: Path) -> None:
    """Read every log of the folder."""
    found = {
        f"{file.name.split('.')[0]} {file.name.split('rank')[1][0]}": allocations(file.read_text())
        for file in sorted(folder.glob("*.nccl.rank?.txt*"))
    }
    output.write_text(json.dumps(found, indent=1) + "\n")
