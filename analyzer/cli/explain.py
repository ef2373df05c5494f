"""`analyze explain`: the rule behind a number of the output, in words; or a recording: why memory ran out,
and what would have helped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli._help import Command
from analyzer.cli._options import format_option, options_named, output_option, unprotected_option
from analyzer.cli._output import (
    STDOUT,
    check_writable,
    columns,
    complain,
    deliver,
    keep_apart,
    wants_color,
    working,
)
from analyzer.errors import AnalyzerError, OptionError, file_like
from analyzer.report import formats
from analyzer.report.formats import View

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate

_SUFFIXES = (".pickle", ".pkl", ".txt", ".log")  # which no rule's name has


@click.command(
    cls=Command,
    short_help="A rule, a snapshot of PyTorch's allocator, or an error.",
    examples=(
        "analyze explain aten::convolution",
        "analyze explain log.txt train.py -- --batch-size 16",
    ),
)
@click.argument("name", required=False)
@click.argument("target", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGUMENTS]")
@format_option("explanation", "recording", help_text="Form of the explanation (html: of a file).")
@click.option(
    "--top", type=click.IntRange(min=0), default=10, metavar="N", help="How many of the largest tensors."
)
@options_named("batch", "mode", "inputs", "device")
@unprotected_option
@output_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    name: str | None, target: str | None, arguments: tuple[str, ...], form: str, **options: Any
) -> int:
    """Explain the rule NAME that the output cites, or the rules behind an operator; without NAME, list all
    rules.

    NAME is a rule ("cublas-workspace"), a PyTorch operator ("aten::convolution") or an ONNX one ("Conv").

    Or NAME is a file (where one of that name exists, it wins over a rule): a snapshot that
    `torch.cuda.memory._dump_snapshot` wrote, or a text with an OutOfMemoryError of PyTorch or an error of
    ONNX Runtime or vLLM in it; "-" reads the text from stdin. A snapshot is read as data (nothing in it is
    executed), replayed through a simulation of its allocator, and explained: what was asked for and what was
    free, who holds the peak, what grows, and what each setting of the allocator would have held.

    With TARGET a text's size is looked up among its requests: a script with its ARGUMENTS behind --, a model
    with --batch and --mode as for analyze TARGET, or a saved estimate (--format json).

    Exit code 0: explained, and nothing failed in it; 1: it ran out of memory; 2: bad usage or input.
    """
    check_writable("-o", options["output"])
    if name is not None and (name == "-" or Path(name).is_file()):
        return _file(name, form, target, arguments, options)
    if target is not None:
        raise OptionError(
            f"there is no file {name}", f"write the error's text to a file, to explain by {target}"
        )
    if form == "html":
        raise OptionError(
            "--format html is a form of a file's explanation", "leave it out for a rule, or name a file"
        )
    _rules(name, form, options["output"])
    return 0


def _rules(name: str | None, form: str, output: Path | None) -> None:
    """Explain a rule, or list all."""
    from analyzer.rules import catalogue, find

    if name is None:
        deliver(formats.render("rules", form, tuple(catalogue().values())), output)
        return
    try:
        rule = find(name)
    except AnalyzerError as error:
        if len(name.split()) > 1:
            raise OptionError(
                "that is a text, and neither a file nor a rule",
                "write it to a file and name that, or pipe it into: analyze explain -",
            ) from error
        if Path(name).suffix or "/" in name:
            raise OptionError(
                f"there is no file {name}, and no rule of that name",
                f"{file_like(Path(name))}give a snapshot or a log",
            ) from error
        raise
    deliver(formats.render("explanation", form, rule), output)


def _file(
    name: str, form: str, target: str | None, arguments: tuple[str, ...], options: dict[str, Any]
) -> int:
    """Explain a file, a message by the requests of `target`; return the exit code."""
    from analyzer.recordings.opened import end_of, explained, message_of
    from analyzer.results.recording import Recording

    if name != str(STDOUT) and not options["quiet"] and _is_rule(name):
        complain("note", f"{name} is a file here and a rule, too: the file is explained")
    with working(name, options["quiet"]) as tell:
        result = message_of(end_of(sys.stdin.buffer), "stdin") if name == "-" else explained(Path(name), tell)
    if target is not None:
        if isinstance(result, Recording):
            raise OptionError(f"{name} is a snapshot, which has its own requests", f"leave {target} out")
        from analyzer.recordings.requests import answered

        result = answered(result, _estimate(target, arguments, options))
    kind = "recording" if isinstance(result, Recording) else "message"
    view = View(top=options["top"], color=wants_color(options["output"]), width=columns())
    deliver(formats.render(kind, form, result, view), options["output"])
    if isinstance(result, Recording):
        return int(bool(result.failed))
    return int(not result.harmless)


def _estimate(target: str, arguments: tuple[str, ...], options: dict[str, Any]) -> Estimate:
    """Return a saved estimate, or that of a script, or of a model."""
    if target.lower().endswith(".json"):
        from analyzer.report.json import read

        return read(Path(target))
    from analyzer.engines.choice import EngineChoice
    from analyzer.options import Options
    from analyzer.planning.inputs import described_inputs

    keep_apart(target, options)
    inputs = described_inputs(target, options["inputs"], options["batch"])
    chosen = Options.of(
        {"device": options["device"], "batch": options["batch"], "mode": options["mode"], "inputs": inputs}
    )
    with working(target, options["quiet"]) as tell:
        choice = EngineChoice("trace", progress=tell, unprotected=options["unprotected"])
        if target.lower().endswith(".py") and options["batch"] is None:
            return choice.analyze_program(target, arguments, chosen, {}).estimate
        return choice.analyze_target(target, chosen).estimate


def _is_rule(name: str) -> bool:
    if "/" in name or Path(name).suffix in _SUFFIXES:  # finding all rules takes a second
        return False
    from analyzer.rules import find

    try:
        return bool(find(name))
    except AnalyzerError:
        return False
