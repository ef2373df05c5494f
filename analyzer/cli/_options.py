"""Options shared by every command that analyses a target, and their keywords for `analyzer.analyze`.

    @click.command()
    @analysis_options
    def command(target, **options):
        estimate = analyzer.analyze(target, **analysis_keywords(target, options))

1. `--input NAME=3x224x224:float32`: the shape of one sample. For an ONNX file it may also have every
   dimension of the model's input, or NAME may be a dimension's name (`sequence=128`). A PyTorch target's
   inputs get the batch in front and are taken in the order given.
2. Values are checked where they mean something: here only their form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from analyzer.cli._output import STDOUT, check_writable, complain
from analyzer.engines import ENGINES
from analyzer.errors import OptionError
from analyzer.files import UnreadableError, read_json
from analyzer.options import Options
from analyzer.report import formats
from analyzer.report.attribution import KINDS

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _click_options(*names: str) -> tuple[Callable[[Any], Any], ...]:
    """Return an option for every field of `Options` with flags, or only for `names`."""
    click_options: list[Callable[[Any], Any]] = []
    for field in dataclasses.fields(Options):
        if (flags := field.metadata["flags"]) and (not names or field.name in names):
            how = dict(field.metadata["click"])
            if choices := how.pop("choices", None):
                how["type"] = click.Choice(choices)
            if "show_default" in how or "type" in how or how.get("is_flag"):
                how.setdefault("default", field.default)
            name = f"{field.name}" if how.get("multiple") or len(flags) > 1 else None
            click_options.append(
                click.option(*flags, *filter(None, [name]), **how, help=field.metadata["help"])
            )
    return tuple(click_options)


def analysis_options(function: _Function) -> _Function:
    """Add TARGET and the options of an analysis, in the order of the fields of `Options`."""
    for option in reversed((click.argument("target"), *_click_options())):
        function = option(function)
    return function


def options_without_batch(function: _Function) -> _Function:
    """Add all of `analysis_options` but the batch, which the command searches or ranges over."""
    names = [field.name for field in dataclasses.fields(Options) if field.name not in ("batch", "batches")]
    for option in reversed((click.argument("target"), *_click_options(*names))):
        function = option(function)
    return function


def options_named(*names: str) -> Callable[[_Function], _Function]:
    """Add only these options of an analysis."""

    def decorate(function: _Function) -> _Function:
        for option in reversed(_click_options(*names)):
            function = option(function)
        return function

    return decorate


STRICT_FIT = "Kept for scripts: what may not fit is exit code 1 without it too."


def view_options(function: _Function) -> _Function:
    """Add the options that shape the output: `--by`, `--depth`, `--format`, `-o`, `--plot`, `--top`."""
    top = click.option(
        "--top",
        type=click.IntRange(min=0),
        default=10,
        metavar="N",
        help="Number of largest tensors to show.",
    )
    by = click.option(
        "--by",
        type=click.Choice(KINDS),
        help="A table of the bytes at the peak by this kind of holder (text).",
    )
    depth = click.option(
        "--depth",
        type=click.IntRange(min=1),
        metavar="N",
        help="With --by module or line: only the first N names of a path.",
    )
    plot = click.option(
        "--plot",
        type=click.Path(path_type=Path),
        callback=_picture,
        metavar="FILE",
        help="Also plot the bytes in use after each event, by category: FILE.svg or FILE.png.",
    )
    strict = click.option("--strict-fit", is_flag=True, expose_value=False, help=STRICT_FIT)
    return by(depth(format_option("estimate")(output_option(plot(top(verbose_option(strict(function))))))))


def _picture(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Return the path. Raises OptionError for a name without a kind of picture."""
    if path is not None and path.suffix.lower() not in (".svg", ".png"):
        raise OptionError(f"--plot {path} is no picture", "give a name that ends in .svg or .png")
    check_writable("--plot", path)
    return path


def format_option(*shown: str, help_text: str = "Form of the result.") -> Callable[[_Function], _Function]:
    """Add `--format` with the forms of these results (`report/formats.py`), as `form`."""
    forms = tuple(dict.fromkeys(form for kind in shown for form in formats.names(kind)))
    return click.option(
        "--format", "form", type=click.Choice(forms), default=forms[0], show_default=True, help=help_text
    )


def verbose_option(function: _Function) -> _Function:
    """Add `-v`: print every note, also similar ones."""
    return click.option("-v", "--verbose", is_flag=True, help="Show every note, also similar ones.")(function)


def sandbox_options(function: _Function) -> _Function:
    """Add the options on a program's written files and network connections."""
    keep = click.option(
        "--keep-outputs",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Keep the program's output files there.",
    )
    network = click.option(
        "--no-network", is_flag=True, help="Refuse the program's connections to other machines."
    )
    return keep(network(unprotected_option(function)))


def unprotected_option(function: _Function) -> _Function:
    """Add `--unprotected`, for code that is followed where nothing would keep it from writing."""
    return click.option(
        "--unprotected",
        is_flag=True,
        help="Run code without write protection where neither namespaces nor Landlock are available.",
    )(function)


def engine_options(function: _Function) -> _Function:
    """Add `--engine` and `--python`, which choose who answers."""
    engine = click.option(
        "--engine",
        type=click.Choice(ENGINES),
        default="auto",
        show_default=True,
        help="trace, simulate: follow it; emulate: run it with a CUDA build of PyTorch or ONNX Runtime, with"
        " no GPU; auto: trace, and emulate if that is not enough.",
    )
    python = click.option(
        "--python",
        metavar="PATH",
        help="Python, or its environment's folder, with the build to emulate (default: ANALYZER_PYTHON,"
        " this one, or one of 'analyze engine list').",
    )
    return engine(python(function))


def debug_option(function: _Function) -> _Function:
    """Add `--debug` where other words may be a program's; `analyzer.cli.main` reads it."""
    return click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")(
        function
    )


# Of a command whose last words are a script's own.
SCRIPT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def script_words(function: _Function) -> _Function:
    """Add SCRIPT, its ARGUMENTS and `-m`; the context has `SCRIPT_SETTINGS`."""
    module = click.option("-m", "module", is_flag=True, help="SCRIPT is a module's name, as for python -m.")
    return click.argument("script")(
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED)(module(function))
    )


def misplaced(script: str, arguments: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Return a warning for each option of the command that stands behind SCRIPT, which is given it, and seems
    meant for the command. options: the command's, by their parameters' names.

    A script may have an option of the same name. So a device counts where its value names a GPU, any other
    option where the script's text does not have the name.
    """
    context = click.get_current_context()
    text = (
        "" if options["module"] or not Path(script).is_file() else Path(script).read_text("utf-8", "replace")
    )
    warnings = []
    for place, word in enumerate(arguments):
        flag, equals, value = word.partition("=")
        known = [param for param in context.command.params if flag.startswith("--") and flag in param.opts]
        if not known or known[0].name is None:
            continue
        following = arguments[place + 1 : place + 2]
        takes = not getattr(known[0], "is_flag", False) and not equals
        value, option = (following[0], f"{flag} {following[0]}") if takes and following else (value, word)
        by_default = context.get_parameter_source(known[0].name) is ParameterSource.DEFAULT
        own = _names_gpu(value) if known[0].name == "device" else not _has_word(text, flag)
        if by_default and own:
            warnings.append(
                f"{option} follows {script} and was passed to it; options of analyze come before it:"
                f" {context.command_path} {option} {script}"
            )
    return warnings


def _names_gpu(text: str) -> bool:
    """Return whether the text is a GPU's name or a size, which no device of PyTorch's is called."""
    from analyzer.devices import resolve

    try:
        return bool(resolve(text))
    except OptionError:
        return False


def _has_word(text: str, flag: str) -> bool:
    """Return whether a program's text has an option's name, as a word or as an attribute's."""
    return flag in text or flag.removeprefix("--").replace("-", "_") in text


def output_option(function: _Function) -> _Function:
    """Add `-o FILE`, as `output`: a path, or None for stdout (`-o -` too)."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path),
        callback=lambda _, __, path: None if path == STDOUT else path,
        metavar="FILE",
        help="Write the result there (-: stdout).",
    )(function)


def analysis_keywords(target: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `analyzer.analyze` for the given options. Raises OptionError."""
    named = [field.name for field in dataclasses.fields(Options) if field.metadata["flags"]]
    keywords = {name: options[name] for name in named if options.get(name) is not None}
    if "batches" in keywords:
        keywords["batches"] = _batches(keywords["batches"])
    from analyzer.planning.inputs import described_inputs

    keywords["inputs"] = described_inputs(target, options["inputs"], options["batch"])
    keywords["runtime_options"] = settings(options["runtime_options"])
    keywords["values"] = {name: _number(name, text) for name, text in pairs("--value", options["values"])}
    keywords["assume"] = assumptions(options["assume"])
    keywords["release"] = dict(pairs("--release", options["release"]))
    return keywords


def warn_of_training_options(options: Mapping[str, Any]) -> None:
    """Warn of options that only a training step has, where none is analysed."""
    if options["mode"] != "train" and not options.get("quiet"):
        for name in ("loss", "optimizer", "checkpoint"):
            if options.get(name) is not None:
                complain("warning", f"--{name} means nothing without --mode train")


def pairs(flag: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Parse NAME=TEXT into (name, text). Raises OptionError."""
    parsed = []
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise OptionError(f"{flag} {text!r} says nothing", f"write {flag} NAME=VALUE")
        parsed.append((name, value))
    return parsed


def _batches(text: str) -> tuple[int, ...]:
    """Parse "1,64,8" into integers. Raises OptionError."""
    parts = text.split(",")
    if not all(part.strip().isdigit() and len(part) < 20 for part in parts):
        raise OptionError(
            f"--batches {text!r} are no batches", "write whole numbers, such as --batches 1,64,8"
        )
    return tuple(int(part) for part in parts)


def _number(name: str, text: str) -> float:
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        raise OptionError(f"--value {name}={text!r} is no number", "such as --value sr=16000") from None


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(
            f"--assume {name}={text!r} is neither true nor false", "write NAME=true or NAME=false"
        )
    return text.lower() == "true"


def settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse `--runtime-option K=V` or FILE.json into a mapping. Raises OptionError."""
    parsed: dict[str, str] = {}
    for text in texts:
        if text.endswith(".json"):
            parsed |= _settings_of(Path(text))
            continue
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(
                f"--runtime-option {text!r} is no setting", "write NAME=VALUE, such as cublas_workspace=:0:0"
            )
        parsed[name] = value
    return parsed


_CUDA = "CUDAExecutionProvider"


def _settings_of(path: Path) -> dict[str, str]:
    """Return a file's settings: an object of names and values, or that of the CUDA provider in one of
    providers. Raises OptionError."""
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise OptionError(
            f"--runtime-option {path}: {error}", "give a JSON object of names and values"
        ) from None
    if isinstance(content, list):  # of providers, as `InferenceSession` takes it
        pairs_of = [part for part in content if isinstance(part, list) and len(part) == 2]
        content = next((part[1] for part in pairs_of if part[0] == _CUDA), content)
    if isinstance(content, dict):
        content = content.get(_CUDA, content)
    if not isinstance(content, dict) or not all(isinstance(v, str | int | float) for v in content.values()):
        raise OptionError(
            f"--runtime-option {path} is no object of names and values",
            'such as {"arena_extend_strategy": "kSameAsRequested", "cudnn_conv_algo_search": "HEURISTIC"}',
        )
    return {name: str(int(value) if isinstance(value, bool) else value) for name, value in content.items()}


def assumptions(texts: Sequence[str]) -> dict[str, bool | str]:
    """Parse `--assume NAME=true` or `FILE.py:LINE=VALUE` into a mapping. Raises OptionError."""
    return {name: text if ".py:" in name else _boolean(name, text) for name, text in pairs("--assume", texts)}
