"""Releases of torch by GPUs: what PyTorch's own binaries take, emulated, for the programs of `programs.py`.

    python -m benchmarks releases matrix PYTHON [--devices h200,l4] [--programs "blocks;unet"]
    python -m benchmarks releases table

PYTHON has a CUDA build of torch. What no shard of `tests/data/releases` has of its release yet is observed, and written as a further one
(`observed.py`), which a test holds our figures to; `table` writes into docs/evidence/RELEASES.md how many are the same.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass

import click

from analyzer.devices import resolve
from analyzer.errors import AnalyzerError
from analyzer.releases import parse, written
from analyzer_emulation import launch
from analyzer_emulation.cudnn import CudnnAnswers
from analyzer_emulation.questions import QuestionServer
from benchmarks import ROOT
from benchmarks.releases import observed
from benchmarks.releases.causes import REFUSED, cause_of, differing
from benchmarks.releases.figures import predicted
from benchmarks.subjects.releases import PROGRAMS

DEVICES = ("h200", "h100", "a100-80gb", "t4", "l4", "rtx4090", "b200")


@click.command("matrix")
@click.argument("python")
@click.option("--devices", default=",".join(DEVICES))
@click.option("--programs", "named", default="", help="these only, with ; between them")
def main(python: str, devices: str, named: str) -> int:
    """Observe one release on all devices, where that is not done yet."""
    torch = launch.find_torch(python)
    release = written(parse(torch.version))
    known = observed.rows().get(release, {})
    path = observed.next_shard(release)
    for name in devices.split(","):
        wanted = [*filter(None, named.split(";"))] or PROGRAMS
        programs = [program for program in wanted if program not in known.get(name, {})]
        if not programs:
            continue
        started = time.monotonic()
        profile, _ = resolve(name)
        with (
            QuestionServer(CudnnAnswers(profile).topics) as questions,
            launch.environment(torch.cuda, profile, questions.environment) as variables,
        ):
            command = [torch.python, "-m", "benchmarks.releases.observe", path, name, *programs]
            code = launch.run(command, {**variables, "PYTHONPATH": str(ROOT)})
        print(
            f"torch {torch.version} on {name}: exit code {code}, {time.monotonic() - started:.0f} s",
            flush=True,
        )
        if code:
            return code
    return 0


def table() -> list[str]:
    """Our figures beside the observed ones, as the lines of a section of RELEASES.md: some minutes."""
    rows = observed.rows()
    names = {(device, name) for of in rows.values() for device, found in of.items() for name in found}
    same, count = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    peaks, off = 0, list[_Cell]()
    for device, name in sorted(names):
        mine = [release for release in rows if name in rows[release].get(device, {})]
        try:
            with observed.convolutions():
                all_found: list[list[int] | None] = list(predicted(device, name, mine))
        except AnalyzerError:
            all_found = [None] * len(mine)
        for release, found in zip(mine, all_found, strict=True):
            cell = _Cell(release, device, name, found, rows[release][device][name])
            count[release, device] += 1
            same[release, device] += not cell.differing
            peaks += not cell.differing & {"allocated", "reserved", *REFUSED}
            if cell.differing:
                off.append(cell)
    total, exact = sum(count.values()), sum(same.values())
    lines = [
        "## The matrix",
        "",
        f"{len({name for _, name in names})} programs on {len(DEVICES)} GPUs under {len(rows)} releases, {total:,} cells: in {exact:,} "
        f"({exact / total:.2%}) all figures (peaks allocated, reserved and requested, how many requests and bytes) are those of PyTorch's own binary "
        f"under the emulated runtime, in {peaks:,} ({peaks / total:.2%}) the peaks allocated and reserved. Below: the same in all, of how many.",
        "",
        f"| torch | {' | '.join(DEVICES)} |",
        f"|---|{'--:|' * len(DEVICES)}",
    ]
    for release in rows:
        cells = [
            f"{same[release, d]} of {count[release, d]}" if count[release, d] else "no code" for d in DEVICES
        ]
        lines.append(f"| {release} | {' | '.join(cells)} |")
    return [*lines, "", *_explained(off)]


@dataclass(frozen=True, slots=True)
class _Cell:
    """One program under one release on one GPU. found: ours, None where it is refused; seen: the binary's."""

    release: str
    device: str
    name: str
    found: list[int] | None
    seen: list[int]

    @property
    def differing(self) -> frozenset[str]:
        return differing(self.found, self.seen)

    @property
    def by(self) -> str:
        """The largest difference of a peak, in percent; where all peaks are the same, of requests and bytes."""
        if self.found is None:
            return "refused"
        parts = [100 * (mine / real - 1) for mine, real in zip(self.found, self.seen, strict=True)]
        return f"{max(parts[:3], key=abs) or max(parts[3:], key=abs):+.2f} %"


def _explained(off: list[_Cell]) -> list[str]:
    """The cells that differ, by what they differ for."""
    by_cause = defaultdict[str, list[_Cell]](list)
    for cell in off:
        cause = cause_of(cell.release, cell.device, cell.name, cell.differing)
        by_cause[cause.cause if cause else "Not explained."].append(cell)
    lines = [f"{len(off)} cells differ ({len(by_cause['Not explained.'])} of them not explained):", ""]
    for cause, cells in by_cause.items():
        if not cells:
            continue
        lines += [f"- {cause} {len(cells)} cells:"]
        values = defaultdict[tuple[str, str], list[_Cell]](list)
        for cell in cells:
            values[cell.name, cell.by].append(cell)
        for (name, by), alike in sorted(values.items()):
            figures = ", ".join(sorted({figure for cell in alike for figure in cell.differing - REFUSED}))
            where = defaultdict[str, list[str]](list)
            for cell in alike:
                where[cell.device].append(cell.release)
            told = "; ".join(f"{device} {', '.join(found)}" for device, found in sorted(where.items()))
            lines.append(f"    - {name}: {by}{f' ({figures})' if figures else ''}: {told}")
    return lines
