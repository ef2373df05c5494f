"""`analyze report ESTIMATE.json`: a saved estimate in any form, without analysing anything again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from analyzer.cli._estimates import show
from analyzer.cli._help import Command
from analyzer.cli._options import view_options
from analyzer.cli._output import check_writable


@click.command(
    cls=Command,
    short_help="A saved estimate in any form.",
    examples=(
        "analyze report estimate.json --by module",
        "analyze report estimate.json --format html -o estimate.html",
    ),
)
@click.argument("estimate", type=click.Path(path_type=Path))
@view_options
@click.option(
    "--budget", metavar="SIZE", help="Exit with 1 if more device memory than this is used, with room for it."
)
@click.option("-q", "--quiet", is_flag=True, help="No warnings.")
def command(estimate: Path, **options: Any) -> int:
    """Show ESTIMATE, a file that `analyze TARGET --format json -o FILE` wrote, in the form asked for.

    Everything every form shows is in that file: analyse once, report as often as you like.

    Exit code 0: shown, and within the budget where one is given; 1: over the budget, or it ran out of memory;
    2: bad usage or input.
    """
    check_writable("-o", options["output"])
    from analyzer.devices import parse_size
    from analyzer.report.json import read

    budget = None if options["budget"] is None else parse_size(options["budget"])
    return show(read(estimate), options, has_limit=False, budget=budget)
