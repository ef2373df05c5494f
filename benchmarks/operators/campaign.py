"""Many of PyTorch's own tests, emulated and compared in many processes for so long: `python -m benchmarks operators campaign PYTHON FOLDER`.

PYTHON is this Python, whose CUDA build of torch does both. What is run is said in parts, LIST:TYPE:SCALE:LAYOUT:SAMPLES or
LIST:TYPE:SCALE:LAYOUT:SAMPLES:WAY (plain where none is said), one after another, each in pieces of a few entries that lie apart in the
list (neighbours take about as long). What is ready when the time is over is in FOLDER/emulated.jsonl.gz and FOLDER/compared.jsonl.gz, for
`keep`; a piece that is not leaves nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import click

from benchmarks.operators.compare import kept_rows, run_emulated
from benchmarks.operators.recorded import append, lines

PARTS = (
    "op:float32:8:contiguous:6",
    "module:float32:1:contiguous:12",
    "module:float32:4:contiguous:12",
    "optim:float32:1:contiguous:12",
    "op:bfloat16:8:contiguous:3",
    "op:float64:8:contiguous:3",
    "op:complex64:8:contiguous:3",
    "op:int64:8:contiguous:3",
    "op:float32:8:transposed:3",
    "op:float32:8:contiguous:3:double",
    "op:float32:8:sliced:3",
    "op:float32:8:channels_last:3",
    "module:float32:4:contiguous:6:double",
    "module:float32:4:channels_last:6",
    "module:float32:4:transposed:6",
    "module:float32:4:sliced:6",
    "op:float32:1:contiguous:12",
)
_PART = re.compile(
    r"(?P<list>op|kernel|module|optim):(?P<type>\w+):(?P<scale>\d+):(?P<layout>\w+):(?P<samples>\d+)(:(?P<way>\w+))?"
)
_ENTRIES = 16  # of a piece: a process takes some seconds to begin
_SECONDS = 500


class Piece(NamedTuple):
    """What one process does: some groups' cases."""

    python: str
    name: str
    job: dict[str, Any]


class Done(NamedTuple):
    """What came of it."""

    name: str
    seconds: float
    emulated: list[Any]
    compared: list[Any]
    error: str


def pieces(python: str, part: str) -> Iterator[Piece]:
    """A part in pieces."""
    from benchmarks.operators import database

    which, dtype, scale, layout, samples, way = _said(part)
    groups = [
        (which, name, dtype, scale)
        for name in database.entries(which)
        if dtype in database.dtypes(which, name)
    ]
    count = -(-len(groups) // _ENTRIES)
    for number in range(count):
        job = {
            "groups": groups[number::count],
            "layouts": [layout],
            "ways": [way],
            "limit": samples,
        }
        yield Piece(python, f"{part} {number + 1}/{count}", job)


def _said(part: str) -> tuple[str, str, int, str, int, str]:
    """A part's list, type, scale, layout, samples and way.

    Raises `click.BadParameter` if it is none: a word misspelt would run nothing and say nothing.
    """
    from benchmarks.operators import database

    found = _PART.fullmatch(part)
    way = (found and found["way"]) or "plain"
    if found is None or found["layout"] not in database.LAYOUTS or way not in database.WAYS:
        raise click.BadParameter(f"{part} is not LIST:TYPE:SCALE:LAYOUT:SAMPLES[:WAY]")
    return found["list"], found["type"], int(found["scale"]), found["layout"], int(found["samples"]), way


def done(piece: Piece) -> Done:
    """Both sides of a piece."""
    began = time.monotonic()
    emulated: list[Any] = []
    compared: list[Any] = []
    error = ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "rows.jsonl"
            run_emulated(piece.python, out, piece.job)
            emulated = lines(out)
        compared = [row for _, row in kept_rows(emulated)]
    except Exception as raised:  # one piece is not the campaign
        error = f"{type(raised).__name__}: {raised}"
    return Done(piece.name, time.monotonic() - began, emulated, compared, error)


@click.command("campaign")
@click.argument("python")
@click.argument("folder", type=Path)
@click.option("--part", "parts", multiple=True, default=PARTS, help="LIST:TYPE:SCALE:LAYOUT:SAMPLES[:WAY].")
@click.option("--processes", default=max(1, (os.cpu_count() or 2) - 1))
@click.option("--seconds", default=_SECONDS, help="No longer than this.")
@click.option("--left", type=click.File(), help="A former campaign's output: only what it says is not done.")
def main(
    python: str, folder: Path, parts: Sequence[str], processes: int, seconds: float, left: TextIO | None
) -> None:
    """Emulate and compare parts of PyTorch's lists until they or the time are over."""
    began = time.monotonic()
    import benchmarks.operators.traced  # noqa: F401 (each process has torch and the lists then)

    folder.mkdir(parents=True, exist_ok=True)
    wanted = {line.strip() for line in left} if left else None
    todo = [
        piece for part in parts for piece in pieces(python, part) if wanted is None or piece.name in wanted
    ]
    unfinished = {piece.name for piece in todo}
    # A process a piece: what one leaves behind is gone with it.
    pool = multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1)
    try:
        found = pool.imap_unordered(done, todo)
        while unfinished:
            one = found.next(timeout=max(0.0, began + seconds - time.monotonic()))
            append(folder / "emulated.jsonl.gz", one.emulated)
            append(folder / "compared.jsonl.gz", one.compared)
            unfinished.discard(one.name)
            kinds = " ".join(
                sorted({row.kind for row in one.compared if row.kind not in ("same", "invalid")})
            )
            now = time.monotonic() - began
            click.echo(
                f"{now:5.0f} s  {one.name}: {len(one.compared)} cases in {one.seconds:.0f} s {kinds} {one.error}"
            )
    except multiprocessing.TimeoutError:
        click.echo(f"out of time: {len(unfinished)} of {len(todo)} pieces are not done")
        for name in sorted(unfinished):
            click.echo(f"  {name}")
    finally:
        pool.terminate()  # SIGTERM, on which each ends what it emulates
        pool.join()
