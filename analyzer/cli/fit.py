"""`analyze fit TARGET --device NAME|SIZE`: the largest batch that runs, and what breaks beyond it."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import (
    analysis_keywords,
    format_option,
    options_without_batch,
    output_option,
    verbose_option,
)
from analyzer.cli._output import Stages, check_writable, columns, complain, deliver, wants_color, working
from analyzer.errors import AnalyzerError, OptionError
from analyzer.report import formats
from analyzer.report.formats import View


@click.command(
    cls=Command,
    short_help="The largest batch that runs on a GPU, and what fails beyond.",
    examples=(
        "analyze fit models/cnn.py --mode train --device 24GiB",
        "analyze fit models/resnet50.onnx --all-devices",
    ),
)
@options_without_batch
@click.option(
    "--limit", metavar="SIZE", help="What the allocator may hold, as set_per_process_memory_fraction says."
)
@click.option("--longest", is_flag=True, help="The greatest length of --batch samples instead.")
@click.option(
    "-b", "--batch", type=click.IntRange(min=1), help="With --longest: how many samples; 1 by default."
)
@click.option("--all-devices", is_flag=True, help="Every known GPU, in one table.")
@format_option("fits")
@output_option
@verbose_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    target: str, limit: str | None, longest: bool, batch: int | None, all_devices: bool, **options: Any
) -> int:
    """The largest batch of TARGET that runs on a GPU, and which request fails beyond it.

    With --longest it is the greatest length that --batch samples may have: the target's make_batch(batch, length) makes
    them. --device takes several names or sizes, separated by commas. Near its limit the allocator is followed as it is: cached
    blocks are given back and the request tried again before it fails.

    Exit code 0: at least one sample runs everywhere; 1: somewhere not even one; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    if all_devices and options["device"]:
        raise OptionError("--all-devices and --device exclude each other", "give one of them")
    if batch is not None and not longest:
        raise OptionError("the largest batch is what is asked for", "leave --batch out, or add --longest")
    keywords = analysis_keywords(target, {**options, "batch": batch})
    found = []
    with working(target, options["quiet"]) as tell:
        from analyzer.devices import names
        from analyzer.planning.fit import fits

        wanted = names() if all_devices else str(options["device"] or "").split(",")
        stages = Stages(tell, wanted)
        keywords.pop("device", None)
        devices = [device or None for device in wanted]
        for asked, answer in fits(
            target, devices, limit=limit, longest=longest, progress=stages.tell, **keywords
        ):
            stages.over()
            if not isinstance(answer, AnalyzerError):
                found.append(answer)
            elif len(wanted) == 1:
                raise answer
            else:
                complain("warning", f"{asked}: {answer.message}", answer.hint)
    if not found:
        raise OptionError("no device gave an answer", "see the warnings above")
    view = View(color=wants_color(options["output"]), width=columns(), verbose=options["verbose"])
    deliver(formats.render("fits", options["form"], found, view), options["output"])
    return int(any(fit.batch == 0 for fit in found))
