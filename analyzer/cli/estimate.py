"""`analyze TARGET`: what the target needs of a GPU, in the format asked for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli._options import analysis_keywords, analysis_options, format_option, output_option
from analyzer.cli._output import check_writable, complain, deliver, wants_color, working, write_file
from analyzer.report import formats
from analyzer.report.formats import View

if TYPE_CHECKING:
    from analyzer.estimate import Estimate


@click.command()
@analysis_options
@click.option("--budget", metavar="SIZE", help="Exit with 1 if more device memory than this is used.")
@format_option("estimate")
@output_option
@click.option(
    "--top",
    type=click.IntRange(min=0),
    default=10,
    metavar="N",
    help="How many of the largest tensors to show.",
)
@click.option(
    "--dump-graph",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the captured graph there, as text.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(target: str, **options: Any) -> int:
    """Predict the GPU memory TARGET needs: the textbook sum, the graph's own need, and what the runtime will take.

    TARGET is model.onnx, file.py[:attr], package.module:attr or program.pt2. A Python file may define make_model(),
    make_batch(batch) -> (inputs, targets) and loss(output, *targets).

    Exit code 0: it fits the device and budget given, or none was given; 1: it does not; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    check_writable("--dump-graph", options["dump_graph"])
    keywords = analysis_keywords(target, options)
    budget = _budget(options["budget"])
    if options["mode"] == "infer" and not options["quiet"]:
        for name in ("loss", "optimizer", "checkpoint"):
            if options[name] is not None:
                complain("warning", f"--{name} means nothing without --mode train")
    with working(target, options["quiet"]) as tell:
        from analyzer import pipeline
        from analyzer.options import Options

        found = pipeline.analysis(target, Options.of(keywords), tell)
    estimate = found.estimate
    if options["dump_graph"] is not None:
        from analyzer.pipeline.dump import dump
        from analyzer.report.words import clean

        lines = dump(found.graph).splitlines()
        write_file("--dump-graph", options["dump_graph"], "".join(f"{clean(line)}\n" for line in lines))
    view = View(top=options["top"], budget_bytes=budget, color=wants_color(options["output"]))
    deliver(formats.render("estimate", options["form"], estimate, view), options["output"])
    if estimate.certainty.unknown_operators and not options["quiet"]:
        count = len(estimate.certainty.unknown_operators)
        sys.stdout.flush()
        complain(
            "warning",
            f"{count} kind{'s' if count > 1 else ''} of operator unknown, counted at an upper bound",
        )
    # A limit on the arena is a limit given, as a device is.
    limited = options["device"] is not None or any("gpu_mem_limit" in name for name in estimate.options)
    return exit_code(estimate, budget, limited=limited)


def exit_code(estimate: Estimate, budget_bytes: int | None, limited: bool) -> int:
    """1 if a limit the user gave (`limited`: the device's capacity) does not hold, else 0."""
    over = budget_bytes is not None and estimate.device_used > budget_bytes
    return int(over or (limited and not estimate.fits()))


def _budget(text: str | None) -> int | None:
    if text is None:
        return None
    from analyzer.devices import parse_size

    return parse_size(text)
