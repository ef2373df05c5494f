"""The command `analyze`: one file a command, results on stdout, everything else on stderr.

1. `analyze TARGET ...` is the command `estimate`; a first word that is the name of a file here is that
   command (`what-if` is `what_if.py`). A command file exposes `command`, whose return value is the exit code
   (None: 0). Files that begin with an underscore are no commands. Extensions announce further ones (entry
   points "analyzer.commands").
2. Exit codes: 0 it fits, or no limit was given; 1 it does not fit, or is over budget; 2 bad usage or bad
   input.
3. A user's mistake is one message and one hint on stderr, which ends with the command's help. Anything
   unexpected is one line that asks for a report; `--debug` shows the traceback.
4. Starting costs click alone: commands import what they need when they run.
"""

from __future__ import annotations

import errno
import gc
import os
import shlex
import signal
import string
import sys
from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from analyzer import __version__, extensions, protection
from analyzer.cli._help import Command, every_option
from analyzer.errors import AnalyzerError, OptionError, did_you_mean, report_to
from analyzer.report import origin

DEFAULT = "estimate"
_LETTERS = string.ascii_letters + "-_"  # a TARGET also has a point or a colon
_OWN_OPTIONS = ("-h", "--help", "--help-all", "-V", "--version")
# Options of the default command that stand beside the list of commands.
_MAIN_OPTIONS = ("batch", "mode", "inputs", "device", "runtime_options")
# Groups of commands, the most used first; a command in no group is listed last.
_GROUPS = {
    "Estimate": ("estimate", "run", "pipeline", "serve", "emulate"),
    "Plan": ("fit", "sweep", "what-if", "advise", "grid", "allocators"),
    "Compare and explain": ("compare", "verify", "report", "explain"),
    "This machine": ("devices", "calibrate", "engine", "mcp", "completion"),
}


class Commands(click.Group):
    """Finds commands by file name (`what-if` is `what_if.py`), and those of extensions."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted({*_own_commands(), *extensions.announced("commands")})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        command: click.Command | None
        if cmd_name in _own_commands():
            command = import_module(f"analyzer.cli.{cmd_name.replace('-', '_')}").command
        else:
            command = extensions.optional("commands", cmd_name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command before a TARGET that names none. Raises UsageError without arguments."""
        if ctx.resilient_parsing and not args:  # a shell asks for completions
            return super().parse_args(ctx, args)
        if not args:
            raise click.UsageError(
                "give a TARGET: model.onnx, file.py[:attr], package.module:attr, program.pt2, config.json or"
                " hf:ORG/NAME"
            )
        if not (args[0] in _OWN_OPTIONS or self._is_command(ctx, args[0])):
            self._check_misspelt(ctx, args[0])
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)

    def _is_command(self, ctx: click.Context, word: str) -> bool:
        """Return whether a word is a command. Raises MissingDependencyError for an absent extension's."""
        if word in _own_commands():
            return True
        if not set(word) <= set(_LETTERS):
            return False
        if word in extensions.COMMANDS and word not in self.list_commands(ctx):
            raise extensions.missing(extensions.COMMANDS[word], f"analyze {word}")
        return word in self.list_commands(ctx)

    def _check_misspelt(self, ctx: click.Context, word: str) -> None:
        """Raise OptionError for a word that is no TARGET and nearly a command."""
        if set(word) <= set(_LETTERS) and not Path(word).exists():
            suggestion = did_you_mean(word, self.list_commands(ctx))
            if suggestion:
                raise OptionError(f"there is no command {word!r}, and no such file", suggestion.strip())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, else files: the first word may be a TARGET. (In bash click's script forgets all else
        where it is told of files.)"""
        return super().shell_complete(ctx, incomplete) or [CompletionItem(incomplete, type="file")]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the default command's help."""
        default = self.get_command(ctx, DEFAULT)
        assert isinstance(default, Command)
        formatter.write_usage("analyze", "TARGET [OPTIONS]  |  COMMAND [OPTIONS]")
        self.format_commands(ctx, formatter)
        default.format_help_text(ctx, formatter)
        context = click.Context(default, ctx, info_name="analyze")
        rows = [
            ("-h, --help", "Options of a command: analyze COMMAND --help."),
            ("--help-all", "Show every option of `analyze TARGET`."),
            ("-V, --version", "Show the version, and the modelled releases."),
            ("--debug", "Show the traceback of an error."),
        ]
        default.format_options(context, formatter, _MAIN_OPTIONS, rows)
        default.format_epilog(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, a line each, by group."""
        names = self.list_commands(ctx)
        grouped = {name for group in _GROUPS.values() for name in group}
        width = max(map(len, names))
        for title, group in {**_GROUPS, "More commands": sorted(set(names) - grouped)}.items():
            commands = {name: self.get_command(ctx, name) for name in group}
            rows = [
                (f"{name:{width}}", each.get_short_help_str(70)) for name, each in commands.items() if each
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


@cache
def _own_commands() -> frozenset[str]:
    files = Path(__file__).parent.glob("[!_]*.py")
    return frozenset(file.stem.replace("_", "-") for file in files) - extensions.COMMANDS.keys()


def _version(context: click.Context, _: click.Parameter, is_set: bool) -> None:
    """Print this version, and the modelled releases with what is installed."""
    if not is_set or context.resilient_parsing:
        return
    from analyzer import releases

    click.echo(f"analyze {__version__}")
    for name, span in releases.MODELLED.items():
        version = releases.installed(name)
        click.echo(f"{releases.DISPLAY_NAMES[name]} {span}" + (f" (installed: {version})" if version else ""))
    context.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def group() -> None:
    """Know a model's GPU memory before you have the GPU."""


group.params.append(every_option())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 it fits, 1 it does not, 2 bad usage or input."""
    if arguments is None:
        # One command, then the process ends: collecting cycles would only cost time.
        gc.disable()
        protection.own_process = True
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
                signal.signal(number, partial(_end, os.getpid()))
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`2>&-`)
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 (it lives as long as the process)
    code = _main(list(sys.argv[1:] if arguments is None else arguments))
    protection.finish(code)
    return code


class _Ended(BaseException):
    """A signal asked this process to end: files and the terminal are put in order on the way out."""


def _end(process: int, number: int, _: object) -> None:
    if os.getpid() != process:  # a fork of it, with nothing to put in order
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    raise _Ended(number)


def _main(words: list[str]) -> int:
    """Run the command line; return the exit code."""
    debug = "--debug" in words
    origin.command = shlex.join(["analyze", *words])
    try:
        result = group.main(_without_debug(words), prog_name="analyze", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except AnalyzerError as error:
        return _failed(error.message, _with_help(error.hint, words), error if debug else None)
    except click.ClickException as error:
        hint = f"{_with_option(error)}see: {_help_of(error)}"
        return _failed(error.format_message(), hint, error if debug else None)
    except _Ended as ended:
        return 128 + int(ended.args[0])
    except (KeyboardInterrupt, click.Abort):
        print("analyze: interrupted", file=sys.stderr)
        return 130
    except SystemExit as error:  # click's own answer to a reader that has gone (`| head`)
        return _reader_gone() if error.code == 1 else int(error.code or 0)
    except BrokenPipeError:
        return _reader_gone()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            return _internal(error, debug)
        _reader_gone()
        return _failed("the result cannot be written: no space left on device", "choose another place", None)
    except Exception as error:
        return _internal(error, debug)
    finally:
        origin.command = ""


def _with_option(error: click.ClickException) -> str:
    """Return which commands have an option that this one does not; "" if none, or it is no such error."""
    if not isinstance(error, click.NoSuchOption):
        return ""
    context, commands = click.Context(group), Commands()
    having = [
        f"analyze {name}"
        for name in commands.list_commands(context)
        if (command := commands.get_command(context, name)) is not None
        if any(error.option_name in param.opts for param in command.params)
    ]
    if not 0 < len(having) < 4:
        return ""
    return f"{' and '.join(having)} {'has' if len(having) == 1 else 'have'} it; "


def _help_of(error: click.ClickException) -> str:
    """Return what shows the help of the command that a user typed wrongly."""
    context = getattr(error, "ctx", None)
    command = "analyze" if context is None else context.command_path.removesuffix(f" {DEFAULT}")
    return f"{command} --help"


def _with_help(hint: str, words: Sequence[str]) -> str:
    """Return a hint with what shows the help of the command that was typed behind it."""
    named = next((word for word in words if word != "--debug"), "")
    is_command = named in Commands().list_commands(click.Context(group)) and named != DEFAULT
    shown = f"analyze {named} --help" if is_command else "analyze --help"
    if shown in hint:
        return hint
    return f"{hint}{' ' if hint.endswith('?') else '; ' if hint else ''}see: {shown}"


def _without_debug(arguments: list[str]) -> list[str]:
    """`--debug` may stand anywhere; behind a program to run it is the program's own."""
    words = arguments[1:] if arguments[:1] == ["--debug"] else arguments
    if words[:1] == ["run"] or words[:2] == ["verify", "run"]:
        return words  # these commands know it as an option of theirs
    return [word for word in words if word != "--debug"]


def _internal(error: Exception, debug: bool) -> int:
    return _failed(
        f"internal error, {type(error).__name__}: {error}",
        f"please report it to {report_to()} with the output of --debug",
        error if debug else None,
    )


def _reader_gone() -> int:
    """Close stdout after the reader has gone, so that buffered output does not raise at exit. Returns the
    shell's code for SIGPIPE, never 1, which means that it does not fit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return 141


def _failed(message: str, hint: str, error: Exception | None) -> int:
    from analyzer.cli._output import complain

    if error is not None:
        import traceback

        traceback.print_exception(error)
    complain("error", message, hint)
    return 2
