"""`python -m analyzer.emulation [--python PATH] [--device NAME] SCRIPT [args]`: the program alone, nothing recorded; for trying a function."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import click

from analyzer.devices import resolve
from analyzer.emulation import launch
from analyzer.emulation.cudnn import Cudnn
from analyzer.emulation.questions import Questions


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--python")
@click.option("--device")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(python: str | None, device: str | None, script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT under the emulated runtime, and end with its exit code."""
    torch, profile = launch.find_torch(python), resolve(device)[0]
    with (
        tempfile.TemporaryDirectory() as folder,
        Questions(Cudnn(profile).topics) as questions,
        launch.environment(torch, profile, questions.environment) as variables,
    ):
        job = Path(folder) / "job.json"
        job.write_text(json.dumps({"script": script, "module": False, "arguments": list(arguments)}), "utf-8")
        sys.exit(launch.run([torch.python, launch.INSIDE, job], variables))


if __name__ == "__main__":
    main()
