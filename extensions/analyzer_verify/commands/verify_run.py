"""`analyze verify run SCRIPT`: a whole program, predicted and run for real."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from analyzer import extensions
from analyzer.cli._help import Command
from analyzer.cli._options import (
    SCRIPT_SETTINGS,
    debug_option,
    format_option,
    misplaced,
    options_named,
    output_option,
    script_words,
    settings,
)
from analyzer.cli._output import check_writable, columns, complain, deliver, working
from analyzer.report import formats

if TYPE_CHECKING:
    from analyzer_verify.results import Verification

Progress = Callable[[str], None]


def emulated_options(function: Any) -> Any:
    """`--emulated` and `--python`."""
    python = click.option(
        "--python",
        metavar="PATH",
        help="With --emulated: the Python whose PyTorch, or ONNX Runtime, is emulated (default:"
        " ANALYZER_PYTHON, this one, or one of 'analyze engine list').",
    )
    emulated = click.option(
        "--emulated",
        is_flag=True,
        help="Run it by the runtime's own CUDA build on an emulated GPU, instead of a real one.",
    )
    return emulated(python(function))


@click.command(
    cls=Command,
    examples=("analyze verify run train.py --epochs 1", "analyze verify run --emulated train.py"),
    context_settings=SCRIPT_SETTINGS,
)
@script_words
@click.option("--force", is_flag=True, help="Run it even if the estimate says it does not fit.")
@emulated_options
@options_named("device", "runtime_options")
@format_option("verification")
@output_option
@debug_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(script: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run SCRIPT with its ARGUMENTS twice, on a simulated GPU and on this one, and compare event by event.

    The real run is the program as it is, in a process of its own, with the allocator's history recorded.
    Every step is predicted and compared, so a short program is as informative as a long one. With --emulated
    it is emulated instead (`analyze emulate`).

    Exit code 0: it ran; 1: it does not fit (or ran out of memory); 2: bad usage or input, or no GPU to run it
    on.
    """

    def run(tell: Progress) -> Verification:
        from analyzer.options import Options
        from analyzer_verify.program import verify_program

        chosen = Options.of(
            {"device": options["device"], "runtime_options": settings(options["runtime_options"])}
        )
        name = f"-m {script}" if options["module"] else script
        if options["emulated"]:
            beside = extensions.required("extensions", "verify_emulated_script", "--emulated")
            verification: Verification = beside(name, arguments, chosen, options["python"], tell)
            return verification
        return verify_program(name, arguments, chosen, force=options["force"], progress=tell)

    for warning in () if options["quiet"] else misplaced(script, arguments, options):
        complain("warning", warning)
    return answer(script, options, run)


def answer(target: str, options: Mapping[str, Any], run: Callable[[Progress], Verification]) -> int:
    """Show what a run gives beside its prediction, and return the exit code: 0 it ran, 1 it does not fit."""
    check_writable("-o", options["output"])
    from analyzer.errors import DoesNotFit

    try:
        with working(target, options["quiet"]) as tell:
            result = run(tell)
    except DoesNotFit as error:
        complain("stopped", error.message, error.hint)
        return 1
    shown = formats.render("verification", options["form"], result, formats.View(width=columns()))
    deliver(shown, options["output"])
    return 0 if result.out_of_memory is None else 1
