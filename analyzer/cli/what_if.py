"""`analyze what-if TARGET`: what other ways to run the same job would need."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import (
    STRICT_FIT,
    analysis_keywords,
    analysis_options,
    format_option,
    output_option,
    unprotected_option,
    warn_of_training_options,
)
from analyzer.cli._output import check_writable, columns, deliver, keep_apart, working
from analyzer.report import formats


@click.command(
    cls=Command,
    short_help="Mixed precision, checkpointing and other ways, side by side.",
    examples=(
        "analyze what-if models/gpt2.py --mode train --batch 16 --device rtx4090",
        "analyze what-if models/cnn.py --mode train --batch 128 --largest",
    ),
)
@analysis_options
@unprotected_option
@click.option("--strict-fit", is_flag=True, expose_value=False, help=STRICT_FIT)
@click.option("--largest", is_flag=True, help="Also find each one's largest batch on the device.")
@format_option("strategies")
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(target: str, largest: bool, **options: Any) -> int:
    """TARGET as it is, beside mixed precision, checkpointing, accumulation, other optimizers and allocator
    settings.

    Every line is an analysis of its own, to the byte. Exit code 0: something fits the device; 1: nothing
    does, or is not known to; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    keywords = analysis_keywords(target, options)
    warn_of_training_options(options)
    keep_apart(target, options)
    with working(target, options["quiet"]) as tell:
        from analyzer.planning.what_if import what_if

        strategies = what_if(target, largest=largest, progress=tell, **keywords)
    view = formats.View(width=columns())
    deliver(formats.render("strategies", options["form"], strategies, view), options["output"])
    limited = options["device"] is not None
    estimates = (strategy.estimate for strategy in strategies)
    fitting = [one for one in estimates if one is not None and one.verdict() == "fits"]
    return int(limited and not fitting)
