"""`analyze calibrate`: this machine's GPU as a profile, measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.cli._help import Command
from analyzer.cli._output import check_writable, deliver

if TYPE_CHECKING:
    from analyzer_verify.calibrate import Calibration


@click.command(
    cls=Command,
    short_help="Measure this machine's GPU and write its profile.",
    examples=("analyze calibrate -o mine.json", "analyze models/cnn.py --batch 8 --device mine.json"),
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="PROFILE.json",
    default=Path("profile.json"),
    show_default=True,
    help="Write the profile there.",
)
@click.option("--name", metavar="NAME", help="Name of the profile; the GPU's own name if not given.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Also what NCCL takes for N ranks, on N GPUs of this machine.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def command(output: Path, name: str | None, ranks: int, quiet: bool) -> int:
    """Measure this machine's GPU and write a profile for --device PROFILE.json; takes some minutes.

    An interrupted calibration goes on where it stopped when started again with the same -o.
    """
    from analyzer.errors import OptionError
    from analyzer_verify import calibrate as module

    if output.suffix != ".json":
        raise OptionError(f"-o {output} is no .json file", "a profile's name ends in .json")
    check_writable("-o", output)
    with nullcontext() if quiet or not sys.stderr.isatty() else _bar() as progress:
        calibration = module.calibrate(output, name=name, ranks=ranks, progress=progress)
    deliver(_text(calibration), None)
    return 0


def _text(calibration: Calibration) -> str:
    """Return the profile written, how many operators were predicted exactly, and each that was not."""
    from analyzer.report.words import mib

    lines = [f"{calibration.profile}: written"]
    exact = sum(check.predicted_bytes == check.measured_bytes for check in calibration.checks)
    lines.append(f"operators checked: {exact} of {len(calibration.checks)} peaks exactly as predicted")
    lines += [
        f"  {check.name}: predicted {mib(check.predicted_bytes)} MiB, measured"
        f" {mib(check.measured_bytes)} MiB"
        for check in calibration.checks
        if check.predicted_bytes != check.measured_bytes
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def _bar() -> Iterator[Callable[[str, float], None]]:
    """A progress bar on stderr; yields a function that takes the stage and the share done, 0 to 1."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("calibrating", total=1.0)

        def tell(stage: str, share: float) -> None:
            progress.update(task, description=stage, completed=share)

        yield tell
