"""`analyze allocators TARGET`: one program's requests under every allocator."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import (
    analysis_keywords,
    analysis_options,
    format_option,
    output_option,
    unprotected_option,
    verbose_option,
    warn_of_training_options,
)
from analyzer.cli._output import check_writable, deliver, keep_apart, wants_color, working


@click.command(
    cls=Command,
    short_help="One program under every allocator, side by side.",
    examples=(
        "analyze allocators models/cnn.py --batch 128 --mode train",
        "analyze allocators models/resnet50.onnx --batch 8 --format html -o all.html",
    ),
)
@analysis_options
@unprotected_option
@click.option(
    "--allocator",
    "allocators",
    multiple=True,
    metavar="NAME[:SETTING=VALUE,...]",
    help="Only this allocator, with these settings, such as pytorch:max_split_size_mb=64. Repeatable.",
)
@format_option("allocators")
@verbose_option
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(target: str, **options: Any) -> int:
    """Simulate one program's requests on every allocator: PyTorch's, ONNX Runtime's, TensorFlow's and
    PaddlePaddle's.

    TARGET and its options are those of `analyze TARGET`; it is analysed once. Shown are the peaks of the
    bytes requested, allocated and reserved, what of the reserved is left unused, and how often the driver is
    called.

    Exit code 0: the program fits the device given under every allocator, or none was given; 1: it does not
    under some; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    from analyzer import pipeline
    from analyzer.options import Options
    from analyzer.planning import allocators as planning
    from analyzer.report import formats

    choices = [planning.parse_choice(text) for text in options["allocators"]] or planning.CHOICES
    keywords = analysis_keywords(target, options)
    warn_of_training_options(options)
    keep_apart(target, options)
    with working(target, options["quiet"]) as tell:
        analysis = pipeline.analysis(target, Options.of(keywords), tell)
        tell("allocators")
        comparison = planning.side_by_side(analysis, choices)
    view = formats.View(color=wants_color(options["output"]), verbose=options["verbose"])
    deliver(formats.render("allocators", options["form"], comparison, view), options["output"])
    return int(options["device"] is not None and not all(row.fits for row in comparison.rows))
