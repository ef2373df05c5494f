"""Common end of the commands that make an estimate: it is shown and judged, and gives the exit code."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analyzer.cli._output import columns, complain, deliver, wants_color, write_file
from analyzer.report import formats
from analyzer.report.formats import View

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate


def show(estimate: Estimate, options: Mapping[str, Any], has_limit: bool, budget: int | None = None) -> int:
    """Deliver the estimate in the form asked for; returns the exit code. has_limit: the device's capacity is
    a limit given. budget: bytes, instead of the one the estimate was made with."""
    view = View(
        top=options["top"],
        budget_bytes=budget,
        color=wants_color(options["output"]),
        width=columns(),
        by=options["by"] or "",
        depth=options["depth"],
        verbose=options["verbose"],
    )
    if options["plot"] is not None:
        form = options["plot"].suffix.lower().removeprefix(".")
        drawn = formats.render("estimate", form, estimate, view)
        write_file("--plot", options["plot"], drawn)
    deliver(formats.render("estimate", options["form"], estimate, view), options["output"])
    if estimate.certainty.unknown_operators and not options["quiet"]:
        count = len(estimate.certainty.unknown_operators)
        sys.stdout.flush()
        complain(
            "warning",
            f"{count} kind{'s' if count > 1 else ''} of operator unknown: figures are at least what it takes",
        )
    return exit_code(estimate, budget, has_limit)


def exit_code(estimate: Estimate, budget_bytes: int | None, has_limit: bool) -> int:
    """2 if the program ended before its end or the runtime refuses it, 1 if a limit the user gave (has_limit:
    the device's capacity) is not known to hold, else 0: the verdict decides, so that "may not fit" is 1."""
    if estimate.incomplete is not None or estimate.refused:
        return 2
    budget_bytes = budget_bytes or estimate.budget_bytes
    limits = [limit for limit in (budget_bytes, estimate.usable_bytes if has_limit else None) if limit]
    return int(estimate.stopped or any(estimate.verdict(limit) != "fits" for limit in limits))
