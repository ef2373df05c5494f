"""`analyze compare BEFORE.json AFTER.json`: what grew between two saved estimates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import format_option, output_option
from analyzer.cli._output import check_writable, columns, deliver
from analyzer.errors import OptionError
from analyzer.report import formats
from analyzer.report.formats import View


@click.command(
    cls=Command,
    short_help="The growth between two saved estimates.",
    examples=(
        "analyze compare before.json after.json",
        "analyze compare before.json after.json --tolerance 1%",
    ),
)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path))
@click.option("--tolerance", default="0", metavar="PERCENT|SIZE", help="Allowed growth: 1% or 100MiB.")
@click.option("--top", type=click.IntRange(min=0), default=10, metavar="N", help="How many changes to show.")
@format_option("difference", help_text="Form of the result; github: annotations of a pull request.")
@output_option
def command(before: Path, after: Path, tolerance: str, top: int, **options: Any) -> int:
    """Show what grew from BEFORE to AFTER, files that `analyze TARGET --format json -o FILE` wrote: by
    category, module, line.

    Exit code 0: nothing grew past the tolerance; 1: something did; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    from analyzer.planning.compare import compare

    difference = compare(before, after, _allowed(tolerance))
    deliver(
        formats.render("difference", options["form"], difference, View(top=top, width=columns())),
        options["output"],
    )
    return int(difference.exceeds)


def _allowed(text: str) -> float | str:
    """Return a share, or a size as it is written."""
    from analyzer.devices import is_size

    try:
        return float(text.strip().removesuffix("%")) / 100
    except ValueError:
        if is_size(text):
            return text
        raise OptionError(
            f"--tolerance {text!r} is no percentage",
            "write a number of percent, such as 1 or 0.5%, or a size such as 100MiB",
        ) from None
