"""torchtune's tables of memory, beside what its own recipes take here: `python -m benchmarks torchtune table PYTHON [FOLDER]`.

PYTHON is the interpreter of an environment with a CUDA build of torch 2.5.1, torchao 0.6.1, bitsandbytes 0.43.3 and what torchtune needs; recipes that
compile anything run there, emulated (`analyze emulate`). The others are followed by `analyze run` in this environment, which then needs
torchao 0.6.1, omegaconf and what torchtune needs, too. FOLDER (default .public/torchtune) gets torchtune's source, by git; it is no part of this
project. Writes `docs/evidence/PUBLISHED_TORCHTUNE.md`.

Source: github.com/pytorch/torchtune, README.md: the table of techniques (pull request 2003, 2024-11-18), of Llama 3.1 (1664, 2024-09-24), of Llama
2 (955, 2024-05-09), each with the recipes and configurations as they were in that commit; what stood in those pull requests before they were
merged, and the discussion of pull request 961. bitsandbytes is the one of the day: since 0.44 (2024-09-24) its 8-bit states keep a scale for every
256 values instead of 2,048, 0.24 GiB of an 8B model.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks import SUBJECTS
from benchmarks.harness.recorded import kept
from benchmarks.public.sources import bring

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "evidence" / "PUBLISHED_TORCHTUNE.md"
_PEAK = re.compile(r"^PEAK (\d+) (\d+) (\d+)$", re.M)
_HELD = re.compile(r"^pytorch: reserved +([\d,]+) ", re.M)
_KINDS = ("active", "allocated", "reserved")
# Of each table torchtune's commit, its title, what stands above and below it, and its rows.
_SAID: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_TABLES: dict[str, dict[str, Any]] = {table["commit"]: table for table in _SAID["tables"]}


@dataclass(frozen=True)
class Row:
    """A figure. packed: tokens of each sample that is packed (0: none); published: in units of `unit` bytes, of `kind`. ranks: of which the
    first is followed. counted: whether it stands in the table itself, and not beside it. known: whether all kernels were compiled and timed
    before. first: whether the figure is of the first step, and not of all. by: the title of the row beside the table that explains this one."""

    table: str
    title: str
    recipe: str
    config: str
    batch: int
    length: int
    packed: int
    said: str
    published: float
    kind: str = "active"
    emulated: bool = True
    device: str = "a100-80gb"
    ranks: int = 1
    counted: bool = True
    why: str = field(default="", repr=False)
    known: bool = field(default=False, repr=False)
    first: bool = field(default=False, repr=False)
    by: str = field(default="", repr=False)

    @property
    def unit(self) -> int:
        """Bytes of the published figure's unit: torchtune's logs were in GB until June 2024."""
        return 10**9 if "(GB)" in _TABLES[self.table]["title"] else 2**30


ROWS = tuple(Row(commit, **row) for commit, table in _TABLES.items() for row in table["rows"])


def _ran(row: Row, python: str, checkout: Path) -> str:
    """What the recipe and the analysis printed. Raises RuntimeError where it does not get through two steps."""
    told = [str(SUBJECTS / "published" / "torchtune_recipe.py"), str(checkout), row.recipe, row.config]
    told += [str(row.batch), str(row.length), str(row.packed), *row.said.split()]
    how = ["emulate", "--python", python] if row.emulated else ["run", "--release", "torch=2.6"]
    ranks = ["--nproc-per-node", str(row.ranks)] if row.ranks > 1 else []
    # torch 2.5.1's flex attention does not fit into the shared memory of a 4090; on an A100 it asks for the same memory of the device.
    device = "a100-80gb" if row.emulated else row.device
    own = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE.parents[1])}
    command = [sys.executable, "-m", "analyzer", *how, *ranks, "--device", device, "--top", "0", *told]
    # What was compiled before is not timed again: with nothing kept, the first step has the copies that kernels are timed on.
    with tempfile.TemporaryDirectory() as nothing:
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{nothing}/inductor", "TRITON_CACHE_DIR": f"{nothing}/triton"}
        for _ in range(2 if row.known else 1):
            ran = subprocess.run(
                command, env={**os.environ, **own, **caches}, capture_output=True, text=True, check=False
            )
    printed = ran.stdout + "\n" + ran.stderr
    if ran.returncode not in (0, 1) or len(_PEAK.findall(printed)) < 2:
        raise RuntimeError(f"{row.title}: {printed[-2000:]}")
    return printed


def steps(printed: str) -> list[dict[str, int]]:
    """The peaks of each part of a run, in bytes: the model's making, the steps, the end.

    A program that is followed is told what would be held if its card had room; the estimate behind it knows where the card ends."""
    held = min((int(found.replace(",", "")) for found in _HELD.findall(printed)), default=0)
    found = [dict(zip(_KINDS, map(int, one), strict=True)) for one in _PEAK.findall(printed)]
    return [{**one, "reserved": min(one["reserved"], held or one["reserved"])} for one in found]


def said_of(row: Row, peaks: Sequence[Mapping[str, int]]) -> tuple[float, float]:
    """The first step's peak and the most of all steps, in the published figure's unit."""
    return peaks[1][row.kind] / row.unit, max(part[row.kind] for part in peaks[1:]) / row.unit


def page(found: Sequence[tuple[Row, Sequence[Mapping[str, int]]]]) -> str:
    """The page, from each row with its peaks."""
    lines: dict[str, list[str]] = {table: [] for table in _TABLES}
    off, ours = dict[tuple[str, str], float](), dict[tuple[str, str], float]()
    for row, peaks in found:
        at = row.table, row.title
        first, most = said_of(row, peaks)
        ours[at] = first if row.first else most
        off[at] = 100 * (ours[at] / row.published - 1)
        how = "emulated" if row.emulated else "followed"
        lines[row.table].append(
            f"| {row.title} | {row.kind} | {how} | {row.published} | {first:.2f} | {most:.2f} "
            f"| {off[at]:+.1f} % | {row.why} |"
        )
    parts, count = list[str](), [0, 0, 0, 0]
    for table, about in _TABLES.items():
        of = [row for row, _ in found if row.counted and row.table == table]
        errors = [abs(off[table, row.title]) for row in of]
        missed = [row for row, error in zip(of, errors, strict=True) if error > 3]
        told = [row for row in missed if abs(off.get((table, row.by), math.inf)) <= 3]
        count = [
            a + b
            for a, b in zip(
                count, (len(of), len(of) - len(missed), len(told), len(missed) - len(told)), strict=True
            )
        ]
        explained = "".join(
            f"; {row.title}: {ours[table, row.by]:.2f} ({off[table, row.by]:+.1f} %)" for row in told
        )
        unexplained = "".join(f"; {row.title}" for row in missed if row not in told)
        parts += ["", f"## {about['title']}", "", about["said"], ""]
        parts += [
            f"{len(of)} figures, median error {statistics.median(errors):.1f} %, largest {max(errors):.1f} %: {len(of) - len(missed)} within 3 %, "
            f"{len(told)} explained{explained.replace(';', ':', 1)}; {len(missed) - len(told)} not explained{unexplained.replace(';', ':', 1)}.",
            "",
            *_COLUMNS,
            *lines[table],
        ]
        parts += ["", about["below"]]
    parts = ["", "{} figures: {} within 3 %, {} explained, {} not explained.".format(*count), *parts]
    return "\n".join((_SAID["head"], *parts, "", _SAID["left_out"], ""))


_COLUMNS = (
    "| recipe | peak | how | published | first step | most | error | |",
    "|---|---|---|--:|--:|--:|--:|---|",
)


@click.command("table")
@click.argument("python")
@click.argument("folder", type=click.Path(path_type=Path), default=Path(".public/torchtune"))
def main(python: str, folder: Path) -> None:
    """Run every row and write the page. PYTHON has PyTorch 2.5.1's CUDA build, FOLDER gets torchtune's source."""

    def peaks(row: Row) -> list[dict[str, int]]:
        source = bring("pytorch/torchtune", {"commit": row.table}, folder / row.table[:9])
        return steps(_ran(row, python, source))

    PAGE.write_text(page(kept(folder / "peaks.json", ROWS, peaks)), encoding="utf-8")
