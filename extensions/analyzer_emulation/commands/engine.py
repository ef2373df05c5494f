"""`analyze engine install|list|remove`: environments with a CUDA build of PyTorch, ONNX Runtime or a serving
engine, for programs that tracing cannot follow."""

from __future__ import annotations

import click

from analyzer.cli._help import Command
from analyzer.cli._output import complain
from analyzer.errors import OptionError


@click.command(
    cls=Command,
    short_help="Environments with a CUDA build of PyTorch.",
    examples=("analyze engine install torch==2.11.0", "analyze engine list"),
)
@click.argument("action", type=click.Choice(("install", "list", "remove")))
@click.argument("packages", nargs=-1, metavar="[PACKAGE==VERSION]...")
def command(action: str, packages: tuple[str, ...]) -> int:
    """Install, list or remove environments with a CUDA build of PyTorch, which needs no GPU.

    `analyze run` goes on by one where tracing is not enough. install takes torch==2.11.0 where no PACKAGE is
    named, and says how much it downloads before it does; after an interruption the same command goes on.
    Further packages are what a program imports beside PyTorch. onnxruntime-gpu is for ONNX files.

    They lie in your cache folder; ANALYZER_CACHE names another one. --python or ANALYZER_PYTHON name an
    environment of your own instead.
    """
    from analyzer_emulation import store

    if action == "install":
        engine = store.install(packages or (store.DEFAULT,), lambda text: complain("engine", text))
        click.echo(f"{engine.name} is installed in {engine.folder} ({engine.nbytes / 1e9:.1f} GB)")
        return 0
    if action == "remove":
        if not packages:
            raise OptionError("no engine is named", "analyze engine list shows which there are")
        for name in packages:
            click.echo(f"{store.remove(name).name} is removed")
        return 0
    engines = list(store.every())
    if not engines:
        click.echo(f"no engine is installed; analyze engine install {store.DEFAULT} makes one")
    for engine in engines:
        what = (
            f"{engine.nbytes / 1e9:.1f} GB, {', '.join(engine.packages)}"
            if engine.complete
            else "not complete"
        )
        click.echo(f"{engine.name}: {what}, in {engine.folder}")
    return 0
