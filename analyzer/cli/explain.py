"""`analyze explain`: the rule behind a number of the output, in words, with its source."""

from __future__ import annotations

import click

from analyzer.cli._help import Command
from analyzer.cli._options import format_option
from analyzer.cli._output import deliver


@click.command(
    cls=Command,
    short_help="The rule behind a number of the output.",
    examples=("analyze explain cublas-workspace", "analyze explain aten::convolution"),
)
@click.argument("name", required=False)
@format_option("explanation", help_text="Form of the explanation.")
def command(name: str | None, form: str) -> None:
    """Explain the rule NAME that the output cites, or the rules behind an operator; without NAME, list all
    rules.

    NAME is a rule ("cublas-workspace"), a PyTorch operator ("aten::convolution") or an ONNX one ("Conv").
    """
    from analyzer.report import formats
    from analyzer.rules import catalogue, find

    if name is None:
        deliver(formats.render("rules", form, tuple(catalogue().values())), None)
    else:
        deliver(formats.render("explanation", form, find(name)), None)
