"""`analyze emulate SCRIPT`: PyTorch's own CUDA build runs a program, without a GPU."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli._estimates import show
from analyzer.cli._help import Command
from analyzer.cli._options import SCRIPT_SETTINGS, debug_option, options_named, script_words, view_options
from analyzer.cli._output import check_writable, working


@click.command(
    cls=Command,
    short_help="Run a script with PyTorch's own CUDA build, without a GPU.",
    examples=(
        "analyze emulate --device rtx4090 train.py --epochs 1",
        "analyze emulate --python venv/bin/python --nproc-per-node 2 ddp.py",
    ),
    context_settings=SCRIPT_SETTINGS,
)
@script_words
@click.option(
    "--python",
    metavar="PATH",
    help="The Python whose PyTorch runs it, or its environment's folder (default: this one).",
)
@click.option(
    "--nproc-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="As torchrun starts it: N processes, all of them emulated.",
)
@click.option(
    "--rank", type=click.IntRange(min=0), default=0, metavar="R", help="The rank whose memory is shown."
)
@options_named("device", "budget")
@view_options
@debug_option
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(script: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run SCRIPT with its ARGUMENTS by a CUDA build of PyTorch, and say what it took of a GPU that is not there.

    PyTorch runs as it is; the CUDA runtime below it answers as the device would: memory is addresses, kernels compute nothing. So the figures
    are those of that very release. What a kernel would compute has a stand-in, which the notes name with its line; integers and
    truth values of up to 65,536 elements are really computed. What the script prints goes to stderr. Options of this command
    come before SCRIPT, the script's own after it.

    With --nproc-per-node the ranks are processes of this machine, which meet over localhost. When the one that is shown ends, or one
    fails, all end.

    Exit code 0: it ran, and fits the device and budget given; 1: it ran out of memory, or does not fit; 2: bad usage, or a program that
    ended before its end: the estimate is of what ran until then.
    """
    check_writable("-o", options["output"])
    name = f"-m {script}" if options["module"] else script
    with working(script, options["quiet"]):
        from analyzer.emulation.emulate import followed
        from analyzer.options import Options
        from analyzer.ranks import Rank

        launched = options["nproc_per_node"] is not None
        count = options["nproc_per_node"] or 1
        job = Rank(options["rank"], count, count, launched)
        known = Options.of({"device": options["device"], "budget": options["budget"]})
        estimate = followed(name, arguments, known, options["python"], {}, job)
    return show(estimate, options, limited=options["device"] is not None)
