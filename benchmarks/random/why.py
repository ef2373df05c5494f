"""The first request in which a prediction differs from a recorded history.

    python -m benchmarks random why ROWS.json HISTORIES.tgz NAME [--folder FOLDER ...] [--device h100]

ROWS.json: rows with "name", one a program that ran on a GPU. HISTORIES.tgz: the allocator's history of each as NAME.npz (or x_NAME.npz:
arrays "actions", "act", "addr", "size", "base", as `torch.cuda.memory._snapshot()` recorded them). FOLDER: where NAME.py lies; those
named "cases" and "programs" beside ROWS.json unless others are given. The program is followed in this process.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.options import Options
from analyzer_programs.program import follow
from analyzer_verify.history import compare_history
from analyzer_verify.runs import program
from benchmarks.subjects.networks.torchvision_cpu import enable


def trace(file: io.BytesIO) -> Iterator[dict[str, Any]]:
    """Yield the entries of a recorded history."""
    arrays = np.load(file, allow_pickle=False)
    names, bases = [str(name) for name in arrays["actions"]], arrays["base"].tolist()
    for action, place, size in zip(*(arrays[name].tolist() for name in ("act", "addr", "size")), strict=True):
        yield {"action": names[action], "addr": bases[place], "size": size}


def first_difference(path: Path, history: io.BytesIO, device: str) -> str:
    """Return where the requests of a program, followed, part from its history."""
    predicted, _ = follow(path, (), Options.of({"device": device}), {}, whole=True)
    compared = compare_history(predicted.events, program.encode(trace(history)), predicted.graph)
    first = compared.first
    if first is None:
        return "the same requests: the allocator's doing"
    at = " | ".join((first.what, str(first.event), str(first.operator), str(first.source)))
    return f"{at}; missing {compared.missing} extra {compared.extra}"


@click.command("why")
@click.argument("rows", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("histories", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("name")
@click.option(
    "--folder", "folders", multiple=True, type=click.Path(exists=True, file_okay=False, path_type=Path)
)
@click.option("--device", default="h100", show_default=True)
def why(rows: Path, histories: Path, name: str, folders: tuple[Path, ...], device: str) -> None:
    """Print the first request of NAME that differs from the one recorded on a GPU."""
    if name not in {row["name"] for row in json.loads(rows.read_text("utf-8"))}:
        raise click.BadParameter(f"{rows} has no row of it", param_hint="NAME")
    places = [
        folder / f"{name}.py" for folder in folders or (rows.parent / "cases", rows.parent / "programs")
    ]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        raise click.BadParameter(
            f"no {name}.py in {', '.join(str(place.parent) for place in places)}", param_hint="NAME"
        )
    with tarfile.open(histories) as archive:
        wanted = {f"{name}.npz", f"x_{name}.npz"}
        member = next((one for one in archive.getmembers() if Path(one.name).name in wanted), None)
        file = None if member is None else archive.extractfile(member)
        if file is None:
            raise click.BadParameter(f"{histories} has no history of it", param_hint="NAME")
        history = io.BytesIO(file.read())
    enable()
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what the program prints
        os.dup2(nowhere, stream)
    text = first_difference(path, history, device)
    os.write(answer, f"{text}\n".encode())
    os._exit(0)  # threads that the program left
