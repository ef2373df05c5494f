"""`analyze fit TARGET --device NAME|SIZE`: the largest batch that runs, and what breaks beyond it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from analyzer.cli._help import Command
from analyzer.cli._options import (
    analysis_keywords,
    format_option,
    options_without_batch,
    output_option,
    unprotected_option,
    verbose_option,
    warn_of_training_options,
)
from analyzer.cli._output import (
    Stages,
    check_writable,
    columns,
    complain,
    deliver,
    keep_apart,
    wants_color,
    working,
)
from analyzer.errors import AnalyzerError, OptionError
from analyzer.report import formats
from analyzer.report.formats import View

if TYPE_CHECKING:
    from analyzer.options import Options
    from analyzer.results.estimate import Estimate
    from analyzer.results.fit import Fit


@click.command(
    cls=Command,
    short_help="The largest batch that runs on a GPU, and what fails beyond.",
    examples=(
        "analyze fit models/gpt2.py --mode train --all-devices --batch 8",
        "analyze fit train.py --vary=--batch-size --device rtx4090,h100",
    ),
)
@options_without_batch
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@unprotected_option
@click.option(
    "--limit",
    metavar="SIZE",
    help="The allocator's limit, as set_per_process_memory_fraction sets it.",
)
@click.option("--longest", is_flag=True, help="Find the greatest length of --batch samples instead.")
@click.option(
    "-b",
    "--batch",
    type=click.IntRange(min=1),
    help="With --longest: how many samples, 1 by default; with several devices: name the smallest for it,"
    " also of a script with --vary.",
)
@click.option(
    "--over",
    type=click.Choice(["length,batch"]),
    help="The largest batch of every length, in one table: of a config.json, or with make_batch(batch,"
    " length).",
)
@click.option(
    "--vary",
    metavar="OPTION",
    help="TARGET is a whole script: find the largest number for this option of its own, such as"
    " --vary=--batch-size; its other arguments stand behind --. With --batch N and --all-devices: the"
    " smallest GPU that runs N.",
)
@click.option("--all-devices", is_flag=True, help="Every known GPU by memory, in one table.")
@format_option("fits", "lengths")
@output_option
@verbose_option
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    target: str,
    arguments: tuple[str, ...],
    limit: str | None,
    longest: bool,
    batch: int | None,
    over: str | None,
    all_devices: bool,
    vary: str | None,
    **options: Any,
) -> int:
    """The largest batch of TARGET that runs on a GPU, and which request fails beyond it.

    With --longest it is the greatest length that --batch samples may have: the target's make_batch(batch,
    length) makes them; with --over length,batch a table of both. With --vary it is the largest value of an
    option of a script, which is followed as `analyze run` does. --device takes several names or sizes,
    separated by commas.

    Exit code 0: at least one sample runs everywhere; 1: somewhere not even one, or none that is known to; 2:
    bad usage or input, or a file that its runtime refuses.
    """
    check_writable("-o", options["output"])
    if all_devices and options["device"]:
        raise OptionError("--all-devices and --device exclude each other", "give one of them")
    several = all_devices or "," in str(options["device"] or "")
    of_all = batch if several and not longest and not over else None
    if batch is not None and not longest and (of_all is None or limit):
        raise OptionError(
            "the largest batch is what is asked for",
            "leave --batch out, or add --longest, or --all-devices for the smallest GPU that runs it; whether"
            " it fits one: analyze TARGET --batch N --device NAME",
        )
    shown = "lengths" if over else "fits"
    if over and (longest or limit):
        raise OptionError(
            "--over length,batch asks for every length on a device", "leave --longest and --limit out"
        )
    if options["form"] not in formats.names(shown):
        raise OptionError(
            f"--format {options['form']} is not for {'--over' if over else 'one answer a device'}",
            f"one of {', '.join(formats.names(shown))}",
        )
    if arguments and not vary:
        raise OptionError(
            f"{' '.join(arguments)} follows {target}",
            "a script's arguments are for --vary: analyze fit --help",
        )
    if vary:
        _check_vary(bool(of_all))
    keywords = analysis_keywords(target, {**options, "batch": None if of_all else batch})
    warn_of_training_options(options)
    view = View(color=wants_color(options["output"]), width=columns(), verbose=options["verbose"])
    keep_apart(target, options)
    with working(target, options["quiet"]) as tell:
        from analyzer.devices import by_memory

        wanted = by_memory() if all_devices else str(options["device"] or "").split(",")
        keywords.pop("device", None)
        refused = False
        result: Any
        if vary and of_all:
            result, none = _smallest_for(
                target, (*arguments, vary, str(of_all)), wanted, Stages(tell, ()), options, keywords
            )
        elif of_all and options["form"] == "text":
            at_batch = analysis_keywords(target, {**options, "batch": of_all})
            result, none = _smallest(target, of_all, wanted, Stages(tell, ()), at_batch)
        elif vary:
            result = _varied(target, arguments, vary, wanted, Stages(tell, wanted), options, keywords)
            none = any(fit.brief is None or fit.brief.at_least for fit in result)
        elif over:
            from analyzer.options import Options
            from analyzer.planning.fit import over_lengths

            parsed = Options.of({**keywords, "device": wanted[0] or None})
            result = over_lengths(target, [name or "h200" for name in wanted], parsed, tell)
            none = not any(result.batch(length, 0) for length in result.fits)
        else:
            stages = Stages(tell, wanted)
            result = _answers(
                target, wanted, stages, options["quiet"], limit=limit, longest=longest, **keywords
            )
            none = any(fit.brief is None or fit.brief.at_least for fit in result)
            refused = any(fit.brief is not None and fit.brief.refused for fit in result)
            if of_all:
                none = not any(fit.brief is not None and fit.batch >= of_all for fit in result)
    content = result if isinstance(result, str) else formats.render(shown, options["form"], result, view)
    deliver(content, options["output"])
    return 2 if refused else int(none)


def _smallest(
    target: str, batch: int, wanted: Sequence[str], stages: Stages, keywords: Mapping[str, Any]
) -> tuple[str, int]:
    """Return the GPU with least memory that surely runs the batch, with the verdicts on those that were
    analysed, and the exit code."""
    import analyzer
    from analyzer.options import Options
    from analyzer.planning.smallest import from_the_smallest

    devices = [Options.of({**keywords, "device": name or None}) for name in wanted]
    known = from_the_smallest(
        devices,
        lambda options: analyzer.analyze(target, **{**keywords, "device": options.device}),
        stages.tell,
    )
    more = f"the largest batch there: analyze fit {target} --device {known[-1].device}{_as_typed()}"
    return _answer_and_verdicts(known, f"batch {batch:,}", more)


# Options that are of the question which GPU, or of its answer's form.
_WHICH_GPU = ("batch", "device", "all_devices", "form", "output", "verbose", "quiet")


def _as_typed() -> str:
    """Return the command's other options as they were typed, each behind a space."""
    context = click.get_current_context()
    words: list[str] = []
    for param in context.command.params:
        name = str(param.name)
        typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if not isinstance(param, click.Option) or not typed or name in _WHICH_GPU:
            continue
        values = context.params[name] if param.multiple else [context.params[name]]
        for value in values:
            words += [param.opts[-1]] if param.is_flag else [param.opts[-1], str(value)]
    return "".join(f" {shlex.quote(word)}" for word in words)


def _answer_and_verdicts(known: Sequence[Estimate], subject: str, more: str) -> tuple[str, int]:
    """Return the answer on the last GPU analysed, with the verdicts on all, and the exit code."""
    from analyzer.report.verdicts import verdicts

    last = known[-1]
    none = last.verdict() != "fits" or last.incomplete is not None or bool(last.unreached)
    answer = f"none of these GPUs surely runs {subject}"
    if not none:
        answer = f"smallest of these GPUs that surely runs {subject}: {last.device}"
    lines = [f"{one.device}: {verdicts(one)[0][1]}" for one in reversed(known)]
    return "\n".join([answer, "", *lines, "", more]) + "\n", 2 if last.refused else int(none)


# Answers that take less are shown at the end alone.
_LONG_SECONDS = 5.0
# Options of fit that a script followed as it is takes, too.
_WITH_VARY = (
    "target arguments vary all_devices device budget runtime_options assume release strict form output"
    " verbose quiet unprotected"
)


def _check_vary(of_all: bool) -> None:
    """Raise OptionError for an option of the command that says nothing of a script. of_all: --batch is its
    option's value."""
    context = click.get_current_context()
    for param in context.command.params:
        source = context.get_parameter_source(str(param.name))
        if source is ParameterSource.COMMANDLINE and (
            param.name not in _WITH_VARY.split() and not (of_all and param.name == "batch")
        ):
            raise OptionError(
                f"{param.opts[-1]} is not for --vary: the script is followed as it is",
                "leave it out; arguments of the script stand behind --",
            )


def _smallest_for(
    script: str,
    arguments: Sequence[str],
    wanted: Sequence[str],
    stages: Stages,
    options: Mapping[str, Any],
    keywords: Mapping[str, Any],
) -> tuple[str, int]:
    """Return the GPU with least memory on which a script surely fits as it is called, with the verdicts on
    those that were followed, and the exit code."""
    from analyzer.engines.choice import EngineChoice
    from analyzer.planning.smallest import followed_from_the_smallest

    if options["form"] != "text":
        raise OptionError(f"--format {options['form']} is not for a script's smallest GPU", "leave it out")
    choice = EngineChoice("auto", progress=stages.tell, unprotected=options["unprotected"])
    known = followed_from_the_smallest(script, arguments, _devices(wanted, keywords), choice, stages.tell)
    called = " ".join((script, *arguments))
    return _answer_and_verdicts(
        known, called, f"to its end: analyze run --device {known[-1].device} {called}"
    )


def _devices(wanted: Sequence[str], keywords: Mapping[str, Any]) -> list[Options]:
    """Return the options of a script that is followed as it is, for each device."""
    from analyzer.options import Options

    names = ("budget", "runtime_options", "assume", "release", "strict")
    given = {name: keywords[name] for name in names if name in keywords}
    return [Options.of({**given, "device": name or None}) for name in wanted]


def _varied(
    target: str,
    arguments: Sequence[str],
    option: str,
    wanted: Sequence[str],
    stages: Stages,
    options: Mapping[str, Any],
    keywords: Mapping[str, Any],
) -> list[Fit]:
    """Return the largest value of a script's option for each device; each value tried is told on stderr.
    Raises AnalyzerError if all fail."""
    from analyzer.engines.choice import EngineChoice
    from analyzer.planning.vary import largest_by_option
    from analyzer.report.verdicts import verdicts

    def tried(value: str, _: int, estimate: Estimate) -> None:
        if not options["quiet"]:
            complain("tried", f"{value}: {verdicts(estimate)[0][1]}")

    devices = _devices(wanted, keywords)
    choice = EngineChoice("auto", progress=stages.tell, unprotected=options["unprotected"])
    answers = largest_by_option(target, arguments, option, devices, choice, tried, stages.tell)
    known = _Known(stages, len(wanted), options["quiet"])
    by_device = []
    for one, answer in answers:
        known.answer(answer)
        by_device.append((one.device, answer))
    return _collected(by_device, wanted)


def _answers(target: str, wanted: Sequence[str], stages: Stages, quiet: bool, **keywords: Any) -> list[Fit]:
    """Return the largest batch, or length, for each device."""
    from analyzer.planning.fit import fits

    known = _Known(stages, len(wanted), quiet)
    devices = [name or None for name in wanted]
    answers = fits(target, devices, progress=stages.tell, known=known.answer, **keywords)
    return _collected(answers, wanted)


class _Known:
    """Hears each device's answer, counts it, and says it on stderr where more take long to follow."""

    def __init__(self, stages: Stages, count: int, quiet: bool) -> None:
        self._stages, self._left, self._quiet = stages, count, quiet
        self._since = time.monotonic()

    def answer(self, answer: Fit | AnalyzerError) -> None:
        """Count an answer, and say it."""
        from analyzer.report.plan import fit_lines

        self._stages.count_done()
        self._left -= 1
        took, self._since = time.monotonic() - self._since, time.monotonic()
        if self._left and took > _LONG_SECONDS and not self._quiet and not isinstance(answer, AnalyzerError):
            complain("known", fit_lines(answer)[0])


def _collected(
    by_device: Iterable[tuple[str | int | None, Fit | AnalyzerError]], wanted: Sequence[str]
) -> list[Fit]:
    """Return one answer per device; an error of some is a warning. Raises AnalyzerError if all fail."""
    answers: list[Fit] = []
    for device, answer in by_device:
        if not isinstance(answer, AnalyzerError):
            answers.append(answer)
        elif len(wanted) == 1:
            raise answer
        else:
            complain("warning", f"{device}: {answer.message}", answer.hint)
    if not answers:
        raise OptionError("no device gave an answer", "see the warnings above")
    return answers
