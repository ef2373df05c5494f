"""`python -m benchmarks`: every benchmark by name; `python -m benchmarks NAME`: what it can do. README.md says how to add one.

The same words mean the same everywhere: *measure* runs something and records it, mostly on a GPU; *score* puts predictions beside
what was recorded, on the terminal; *table* writes the page or the file.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

import click

from benchmarks import ROOT


@dataclass(frozen=True)
class Benchmark:
    """answers: the question. writes: the page, or what is recorded. verbs: each one's "module:function" below this package, a
    click command, which is imported when it is asked for: on a GPU's machine there may be little besides torch."""

    answers: str
    writes: str
    verbs: dict[str, str]


BENCHMARKS = {
    name: Benchmark(**said)
    for name, said in json.loads((ROOT / "benchmarks/benchmarks.json").read_text(encoding="utf-8")).items()
}


def said(place: str) -> str:
    """The first line of a verb's docstring, read without importing it."""
    module, function = place.split(":")
    path = ROOT / "benchmarks" / f"{module.replace('.', '/')}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


class Verbs(click.Group):
    """What one benchmark can do."""

    def __init__(self, name: str, benchmark: Benchmark) -> None:
        super().__init__(name, help=f"{benchmark.answers}. Writes {benchmark.writes}.")
        self.benchmark = benchmark

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.benchmark.verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.benchmark.verbs:
            return None
        where, function = self.benchmark.verbs[cmd_name].split(":")
        module = import_module(f"benchmarks.{where}")
        command: click.Command = getattr(module, function)
        command.help = f"{command.help}\n\n\b\n" + (module.__doc__ or "").strip().replace("\n\n", "\n\n\b\n")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(verb, said(place)) for verb, place in self.benchmark.verbs.items()])


class Benchmarks(click.Group):
    """Every benchmark of the list."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(BENCHMARKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return Verbs(cmd_name, BENCHMARKS[cmd_name]) if cmd_name in BENCHMARKS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, f"{one.answers} ({one.writes})") for name, one in BENCHMARKS.items()])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code is what the verb returns."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    words += ["--help"] if len(words) < 2 else []  # a name alone: what it can do
    try:
        return (
            Benchmarks("benchmarks", help=__doc__).main(words, "python -m benchmarks", standalone_mode=False)
            or 0
        )
    except click.ClickException as error:
        error.show()
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
