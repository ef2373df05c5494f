"""`analyze emulate SCRIPT|TARGET`: PyTorch's own CUDA build runs a program or a model, without a GPU."""

from __future__ import annotations

from typing import Any

import click

from analyzer.cli._estimates import show
from analyzer.cli._help import Command
from analyzer.cli._options import (
    SCRIPT_SETTINGS,
    analysis_keywords,
    debug_option,
    misplaced,
    options_named,
    sandbox_options,
    script_words,
    view_options,
)
from analyzer.cli._output import check_writable, complain, keep_apart, working
from analyzer.options import CONFIG_ONLY

# Allowed options: for a script the first three, for a model all.
_MODEL = (
    "batch mode inputs loss optimizer dtype amp channels_last grad_accumulation checkpoint runtime_options"
    " trust"
)
_OPTIONS = ("device", "budget", "assume", *_MODEL.split(), *CONFIG_ONLY)


class _Emulate(Command):
    """Command parser: options after a model are `analyze`'s; arguments after a script are the script's."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse again where a target stands first: options may then follow it, which a script would keep."""
        words = list(args)
        context = super().make_context(info_name, args, parent, **extra)
        script, more = context.params.get("script"), list(context.params.get("arguments") or ())
        if script is None or not more or context.params["module"]:
            return context
        from analyzer_emulation.emulated import is_target

        if not is_target(script) or words[-len(more) - 1 :] != [script, *more]:
            return context
        return super().make_context(info_name, [*words[: -len(more) - 1], *more, script], parent, **extra)


@click.command(
    cls=_Emulate,
    short_help="A script or model under PyTorch's own CUDA build, without a GPU.",
    examples=(
        "analyze emulate --device rtx4090 train.py --epochs 1",
        "analyze emulate --python venv net.py:make_model --mode train --batch 8",
    ),
    context_settings=SCRIPT_SETTINGS,
)
@script_words
@click.option(
    "--python",
    metavar="PATH",
    help="The Python whose PyTorch runs it, or its environment's folder (default: ANALYZER_PYTHON, this one,"
    " or one of 'analyze engine list').",
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
@sandbox_options
@options_named(*_OPTIONS)
@view_options
@debug_option
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(script: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run SCRIPT with its ARGUMENTS with a CUDA build of PyTorch, without a GPU, and report its GPU memory.

    PyTorch runs unchanged on an emulated CUDA runtime: memory is addresses, kernels compute nothing. So the
    figures are exactly those of that release. Kernel results have stand-ins, which the notes name with their
    lines (--assume sets their values); small tensors are really computed. The script's output goes to
    stderr; its options follow SCRIPT. As under `analyze run`, your files are not changed.

    SCRIPT may be a model as `analyze` takes it, with the same options: file.py:attr, package.module:attr,
    program.pt2, config.json. (A file.py alone is a script.)

    With --nproc-per-node the ranks are processes on this machine.

    Exit code 0: it ran, and fits the device and budget given; 1: it ran out of memory, does not fit, or is
    not known to; 2: bad usage, or a program that ended before its end: the estimate is of what ran until
    then.
    """
    check_writable("-o", options["output"])
    keep_apart(script, options)
    for warning in () if options["quiet"] else misplaced(script, arguments, options):
        complain("warning", warning)
    name = f"-m {script}" if options["module"] else script
    keywords = analysis_keywords(name, {"values": (), "release": (), **options})
    keywords = {key: value for key, value in keywords.items() if key in _OPTIONS}
    with working(script, options["quiet"]):
        from analyzer_emulation import reach
        from analyzer_emulation.emulated import emulate

        estimate = emulate(
            name,
            arguments,
            python=reach.python(options["python"], name),
            ranks=options["nproc_per_node"],
            rank=options["rank"],
            **keywords,
        )
    return show(estimate, options, has_limit=options["device"] is not None)
