"""The steps measured on an H200, eager and compiled, beside what is said of them: a part of docs/evidence/TIMING.md."""

from __future__ import annotations

import click
import numpy as np

from analyzer.timing.beside import planes
from benchmarks.harness import files, pages
from benchmarks.timing import compiled_score
from benchmarks.timing.pack import measured_rows, of_gpu
from benchmarks.timing.score import HEAD, PAGE, rows, summary, table_of

GPU = "h200"
_TEXT = pages.prose(__file__)


def section() -> str:
    """The part's text."""
    versions, known = files.read(of_gpu(GPU) / "programs.json.gz")["versions"], planes(GPU)
    eager, compiled = rows(gpu=GPU), compiled_score.rows(GPU)
    lines = [
        (f"{kind}, {name}", *rest)
        for kind, found in (("eager", eager), ("compiled", compiled))
        for name, *rest in summary(found)
    ]
    lines.append(("all", *summary([*eager, *compiled])[-1][1:]))
    opening = _TEXT["opening"].format(
        of=f"{versions['gpu']}, torch {versions['torch']}, {versions['date']}",
        calls=f"{len(measured_rows(of_gpu(GPU))):,}",
        off=f"{np.mean([plane.spread for plane in known.values()]):.1%}",
    )
    return "\n\n".join(
        [
            opening,
            pages.table(HEAD, lines, "lrrrrrrr").rstrip(),
            table_of([*eager, *compiled], 2),
        ]
    )


@click.command("h200_table")
def table() -> None:
    """Write the H200's part of docs/evidence/TIMING.md."""
    pages.write_part(PAGE, GPU, section())
