"""`analyze advise TARGET --device NAME|SIZE`: the fastest way to run a job that fits."""

from __future__ import annotations

from typing import Any

import click

from analyzer import extensions
from analyzer.cli._help import Command
from analyzer.cli._options import (
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
    short_help="The fastest way to run a job that fits a GPU, proven.",
    examples=(
        "analyze advise models/gpt2.py --mode train --batch 16 --device rtx4090",
        "analyze advise models/cnn.py --mode train --device t4 --samples-per-second 900",
    ),
)
@analysis_options
@unprotected_option
@click.option(
    "--samples-per-second",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="Reach at least X, at any batch.",
)
@click.option(
    "--change-numbers",
    is_flag=True,
    help="Also offer changes of the numbers a model computes: precision, optimizers of 8 bits.",
)
@click.option(
    "--compiled",
    is_flag=True,
    help="Under torch.compile: the largest activation_memory_budget that fits, by PyTorch's CUDA build.",
)
@click.option(
    "--python",
    metavar="PATH",
    help="For --compiled: the Python whose PyTorch compiles, or its environment's folder (default:"
    " ANALYZER_PYTHON, this one, or one of 'analyze engine list').",
)
@format_option("advice")
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    target: str,
    samples_per_second: float | None,
    change_numbers: bool,
    compiled: bool,
    python: str | None,
    **options: Any,
) -> int:
    """The fastest way to run TARGET that fits --device or --budget: accumulation, blocks computed again, the
    optimizer's implementation, the allocator's settings.

    Every way is an analysis of its own, to the byte; they are in the order of a step's time. Where nothing
    can fit, a lower bound says by how much. Exit code 0: something fits, and is as fast as was asked for; 1:
    nothing is known to; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    keywords = analysis_keywords(target, options)
    warn_of_training_options(options)
    keep_apart(target, options)
    with working(target, options["quiet"]) as tell:
        from analyzer_timing.advise import advise

        if compiled:
            python = extensions.required("engines", "emulate", "--compiled").python(python)

        advice = advise(
            target,
            samples_per_second=samples_per_second,
            change_numbers=change_numbers,
            compiled=compiled,
            python=python,
            progress=tell,
            **keywords,
        )
    view = formats.View(width=columns())
    deliver(formats.render("advice", options["form"], advice, view), options["output"])
    best = advice.best
    return int(best is None or best.verdict != "fits" or advice.reached is False)
