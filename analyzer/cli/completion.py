"""`analyze completion bash|zsh|fish`: what a shell needs to complete commands, options, their values and
files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from analyzer.cli._help import Command
from analyzer.cli._output import deliver

# click answers a shell that asks with this variable set (click's documentation, "Shell Completion").
_VARIABLE = "_ANALYZE_COMPLETE"


@click.command(
    cls=Command,
    short_help="The completion of `analyze` for a shell.",
    examples=("analyze completion bash", "analyze completion zsh"),
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Write the completion of `analyze` for a SHELL, to be read by it when it starts.

    \b
    bash: analyze completion bash \\
            > ~/.local/share/bash-completion/completions/analyze
    zsh:  echo 'eval "$(analyze completion zsh)"' >> ~/.zshrc
    fish: analyze completion fish > ~/.config/fish/completions/analyze.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(ctx.find_root().command, {}, "analyze", _VARIABLE)
    # Not `source`: for bash that first runs bash, to see its version.
    deliver(completion.source_template % completion.source_vars() + "\n", None)
