"""`analyze run SCRIPT`: a whole program run unchanged, on a simulated GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli._estimates import show
from analyzer.cli._help import Command
from analyzer.cli._options import (
    SCRIPT_SETTINGS,
    assumptions,
    debug_option,
    engine_options,
    misplaced,
    options_named,
    pairs,
    sandbox_options,
    script_words,
    settings,
    view_options,
)
from analyzer.cli._output import check_writable, complain, keep_apart, working
from analyzer.errors import AnalyzerError, OptionError, did_you_mean

if TYPE_CHECKING:
    from analyzer.analysis import Analysis
    from analyzer.options import Options
    from analyzer.results.estimate import Estimate


SHOW_ADVICE = ("text", "json", "html")  # the forms with changes that make a program fit


class _NumberOr(click.ParamType):  # type: ignore[type-arg]
    """A whole number of at least `least`, or one of some words."""

    def __init__(self, name: str, least: int, *words: str) -> None:
        self.name, self._number, self._words = name, click.IntRange(min=least), words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | int:
        return str(value) if value in self._words else int(self._number.convert(value, param, ctx))


# Options of torchrun that decide how ranks find each other, and nothing a rank takes
# (`torch/distributed/run.py`).
_TORCHRUN = (
    "--standalone --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --max-restarts --monitor-interval"
    " --start-method --role --log-dir --redirects --tee --node-rank --master-addr --master-port --local-addr"
    " --no-python --run-path"
)


def _no_such_option(word: str) -> OptionError:
    """Return the error of an option before SCRIPT that this command does not have."""
    name = word.partition("=")[0].replace("_", "-")
    if name in _TORCHRUN.split():
        return OptionError(
            f"analyze run has no option {name}", "leave it out: it does not change a rank's memory"
        )
    flags = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    hint = did_you_mean(name, flags).strip()
    return OptionError(
        f"analyze run has no option {word}", hint or "options of the script come after it: analyze run --help"
    )


def _with_ways_out(
    script: str, arguments: tuple[str, ...], options: Options, until: str | int, analysis: Analysis, tell: Any
) -> Estimate:
    """Return the estimate; for a program that runs out of memory, with changes that make it fit."""
    from analyzer_programs.ways.way_out import ways_out

    estimate = analysis.estimate
    if estimate.out_of_memory is None or estimate.incomplete is not None:
        return estimate
    ways = ways_out(script, arguments, options, {}, until, analysis, tell)
    return replace(estimate, remedies=tuple(ways.remedies), attempts=tuple(ways.attempts))


@click.command(
    cls=Command,
    short_help="Run a whole script on a simulated GPU.",
    examples=(
        "analyze run --device rtx4090 train.py --epochs 1",
        "analyze run --nproc-per-node 8 --until steady train.py",
    ),
    context_settings=SCRIPT_SETTINGS,
)
@script_words
@click.option(
    "--until",
    type=_NumberOr("steps", 1, "steady", "end"),
    default=None,
    metavar="N|steady|end",
    help="Stop after N steps, once steps repeat (steady), or at the end; else long repeats are left out.",
)
@click.option(
    "--nproc-per-node",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run as one rank of a job: torchrun with N ranks per machine.",
)
@click.option("--nnodes", type=click.IntRange(min=1), default=1, metavar="M", help="Machines of the job.")
@click.option(
    "--rank",
    type=_NumberOr("rank", 0, "all"),
    default="0",
    metavar="R|all",
    help="The rank to simulate; all: one after another, the worst decides.",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 16),
    metavar="N",
    help="GPUs of one process (default: as many as it names).",
)
@click.option("--no-advice", is_flag=True, help="Do not search for changes that make a program fit.")
@engine_options
@sandbox_options
@options_named("device", "budget", "runtime_options", "assume", "release", "strict")
@view_options
@debug_option
@click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings.")
def command(script: str, arguments: tuple[str, ...], **options: Any) -> int:
    """Run SCRIPT with its ARGUMENTS, and report the GPU memory it would take.

    The script runs unchanged; CUDA tensors are simulated, take no memory and compute nothing. Values only a
    real run has (a loss) get stand-ins, which the notes name with their lines. The script's output goes to
    stderr. Options of this command come before SCRIPT, the script's own after it.

    Your files are not changed: files it writes, renames or removes are in an overlay, which is dropped at
    the end (--keep-outputs DIR keeps them); experiment trackers and uploads to hubs are switched off.

    With --nproc-per-node it runs as one rank of a simulated job: other ranks are assumed to send the data
    that this one holds.

    If tracing is not enough (an unknown operator, compiled code, an error of its own), a CUDA build of
    PyTorch runs it once more, without a GPU; a note says so. 'analyze engine install' installs one.

    Exit code 0: it ran, and fits the device and budget given; 1: it ran out of memory, does not fit, or is
    not known to; 2: bad usage, or a program that ended before its end (an error, an exit code of its own,
    Ctrl-C): the estimate is of what ran until then.
    """
    if script.startswith("-"):
        raise _no_such_option(script)
    check_writable("-o", options["output"])
    keep_apart(script, options)
    for warning in () if options["quiet"] else misplaced(script, arguments, options):
        complain("warning", warning)
    name = f"-m {script}" if options["module"] else script
    error: BaseException | None = None
    with working(script, options["quiet"]) as tell:
        from analyzer.engines.choice import EngineChoice
        from analyzer.options import Options
        from analyzer.ranks import Rank
        from analyzer_programs.ranks import every_rank

        keywords = {
            "device": options["device"],
            "budget": options["budget"],
            "runtime_options": settings(options["runtime_options"]),
            "assume": assumptions(options["assume"]),
            "release": dict(pairs("--release", options["release"])),
            "strict": options["strict"],
        }
        parsed = Options.of(keywords)
        everyone, local = options["rank"] == "all", options["nproc_per_node"] or 1
        launched = options["nproc_per_node"] is not None
        until = options["until"] or ("end" if everyone else "auto")  # of ranks together, all calls
        job = Rank(0 if everyone else options["rank"], local * options["nnodes"], local, launched)
        if everyone:
            if options["engine"] == "emulate":
                raise OptionError("--rank all follows every rank", "name one, or leave --engine out")
            estimate = every_rank(name, arguments, parsed, until, job, tell)
        else:
            kept = None if options["keep_outputs"] is None else str(options["keep_outputs"].absolute())
            choice = EngineChoice(
                options["engine"],
                options["python"],
                kept,
                not options["no_network"],
                tell,
                options["unprotected"],
                options["gpus"],
            )
            answer = choice.analyze_program(name, arguments, parsed, {}, until, job)
            estimate, error = answer.estimate, answer.error
            is_wanted = not options["no_advice"] and options["form"] in SHOW_ADVICE
            if answer.analysis is not None and is_wanted and job.world_size == 1:
                estimate = _with_ways_out(name, arguments, parsed, until, answer.analysis, tell)
    code = show(estimate, options, has_limit=options["device"] is not None)
    if isinstance(error, AnalyzerError):
        sys.stdout.flush()
        raise error  # reported after the estimate of what ran until then
    return code
