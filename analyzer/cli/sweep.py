"""`analyze sweep TARGET --batch 1:512`: what the target needs at many batches."""

from __future__ import annotations

import re
from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import (
    analysis_keywords,
    format_option,
    options_without_batch,
    output_option,
    unprotected_option,
    warn_of_training_options,
)
from analyzer.cli._output import check_writable, columns, deliver, keep_apart, wants_color, working
from analyzer.errors import OptionError
from analyzer.report import formats
from analyzer.report.formats import View

_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?")
_MOST = 100_000


@click.command(
    cls=Command,
    short_help="The memory TARGET needs at many batches, and where that bends.",
    examples=(
        "analyze sweep models/cnn.py --mode train --batch 1:512",
        "analyze sweep models/resnet50.onnx --batch 1:64:8 --format csv",
    ),
)
@options_without_batch
@unprotected_option
@click.option(
    "-b",
    "--batch",
    "batches",
    required=True,
    multiple=True,
    metavar="FIRST[:LAST[:STEP]]",
    help="Batch sizes, both ends included. Repeatable.",
)
@format_option("curve")
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(target: str, batches: tuple[str, ...], **options: Any) -> int:
    """The curve of TARGET over its batch: allocated, reserved, device and the textbook sum, and where and why
    it bends.

    Captured at a few sizes, the others are evaluated: every row is what `analyze` says at that batch, to the
    byte.
    """
    check_writable("-o", options["output"])
    keywords = analysis_keywords(target, {**options, "batch": None})
    warn_of_training_options(options)
    wanted = sorted({batch for text in batches for batch in batches_of(text)})
    keep_apart(target, options)
    with working(target, options["quiet"]) as tell:
        from analyzer.planning.curve import sweep

        curve = sweep(target, wanted, explain=True, progress=tell, **keywords)
    view = View(color=wants_color(options["output"]), width=columns())
    deliver(formats.render("curve", options["form"], curve, view), options["output"])
    return 0


def batches_of(text: str) -> range:
    """`1:512:8`, `1:512` or `64` as batch sizes. Raises OptionError."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise OptionError(
            f"--batch {text!r} is no range", "write FIRST:LAST or FIRST:LAST:STEP, such as 1:512:8"
        )
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if first < 1 or last < first or step < 1:
        raise OptionError(
            f"--batch {text} names no batch", "begin at 1 or more, end there or later, step by 1 or more"
        )
    if (last - first) // step >= _MOST:
        raise OptionError(f"--batch {text} names more than {_MOST:,} batches", "give a step, such as 1:512:8")
    return range(first, last + 1, step)
