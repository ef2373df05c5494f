"""`analyze grid GRID.yaml`: many analyses, one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from analyzer.cli._help import Command
from analyzer.cli._options import output_option, unprotected_option
from analyzer.cli._output import (
    append_file,
    check_writable,
    complain,
    deliver,
    has_code,
    keep_apart,
    remove_file,
)
from analyzer.errors import MissingDependencyError, OptionError, install
from analyzer.report import formats


@click.command(
    cls=Command,
    short_help="Many analyses from one file, as one table.",
    examples=("analyze grid grid.yaml -o table.csv", "analyze grid grid.yaml --workers 4"),
)
@click.argument("grid", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="Processes; by default one a core.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep finished jobs there, and begin from them; by default beside the -o file until the table is"
    " whole.",
)
@click.option("--ray", metavar="ADDRESS", help="Run on this Ray cluster instead.")
@click.option("--format", "form", type=click.Choice(("csv", "parquet")), default="csv", show_default=True)
@unprotected_option
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    grid: Path,
    workers: int | None,
    journal: Path | None,
    ray: str | None,
    form: str,
    output: Path | None,
    unprotected: bool,
    quiet: bool,
) -> int:
    """Every combination of the targets, batches, strategies and devices in GRID, a YAML file, as one table.

    \b
    targets: [models/gpt2.py]
    batches: [1, 8, 32]
    devices: [h200, 24GiB]
    strategies: {as it is: {}, mixed: {amp: bf16}}
    options: {mode: train, optimizer: adamw}

    A run that was stopped goes on where it was, when it is started again with the same -o or --journal. A job
    that fails is a row that says why.

    Exit code 0: every job was analysed; 1: some failed; 2: bad usage or input; 130: interrupted.
    """
    check_writable("-o", output)
    check_writable("--journal", journal)
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise OptionError("a Parquet table is no text", "name a file with -o")
    from analyzer.planning.grid import load, run

    jobs = load(grid)
    kept = journal or _default_journal(output)
    for job in jobs:
        if has_code(job.target, loss := job.options.get("loss")):
            keep_apart(job.target, {"loss": loss, "unprotected": unprotected})
            break
    finished = 0
    with _progress(len(jobs), quiet) as show:

        def tell(now: int, count: int) -> None:
            nonlocal finished
            finished = now
            show(now, count)

        try:
            rows = run(jobs, kept, workers or _cores(), tell, ray, append_file)
        except KeyboardInterrupt:
            then = f"{kept} has them: the same command goes on from there" if kept else "--journal keeps them"
            complain("warning", f"{finished} of {len(jobs)} jobs were finished", then)
            raise
    deliver(_parquet(rows) if form == "parquet" else formats.render("grid", form, rows), output)
    if kept is not None and kept != journal:
        remove_file(kept)
    failed = sum(bool(row["error"]) for row in rows)
    if failed and not quiet:
        complain("warning", f"{failed} of {len(rows)} jobs failed; the column 'error' says why")
    return int(failed > 0)


def _default_journal(output: Path | None) -> Path | None:
    """Return the default journal: beside the table, if that is in a writable folder."""
    if output is None or (output.exists() and not output.is_file()) or not os.access(output.parent, os.W_OK):
        return None
    return output.with_name(f"{output.name}.journal")


@contextmanager
def _progress(count: int, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that draws a progress bar: jobs finished, of all."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("analyze: jobs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("jobs", total=count)
        yield lambda finished, _: bar.update(task, completed=finished)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _parquet(rows: object) -> bytes:
    try:
        content = formats.render("grid", "parquet", rows)
    except ModuleNotFoundError:
        raise MissingDependencyError(
            "a Parquet table needs pyarrow, which is not installed", install("grid")
        ) from None
    assert isinstance(content, bytes)
    return content
