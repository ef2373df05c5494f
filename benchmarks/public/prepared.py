"""A job made ready to run: a copy of its repository of its own, its data in it, its command and environment.

Both sides use it, the measured (`measure.py`) and the followed (`score.py`), so that they differ in nothing but the GPU:
python -m benchmarks public prepare SOURCES COPIES NAME makes one ready and prints how it is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import pty
import shutil
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks import SUBJECTS
from benchmarks.public import job_files

STAND_INS = SUBJECTS / "public/stand_ins"
# Nothing may reach a network, and nothing may wait for somebody to type.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled",
    "WANDB_DISABLED": "true", "MPLBACKEND": "Agg", "TOKENIZERS_PARALLELISM": "false", "TQDM_MININTERVAL": "5",
}  # fmt: skip


@dataclass(frozen=True)
class Prepared:
    """script: what follows `python`: a file's path, or "-m" and a module. folder: where it is started."""

    script: str
    module: bool
    args: list[str]
    folder: Path
    environment: dict[str, str]


@contextlib.contextmanager
def terminal() -> Iterator[int]:
    """What a program's standard input is: a terminal of 80 columns, as some ask for its width, at which nobody types."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.write(ours, b"\x04")  # who reads is at the end
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def maker(name: str) -> Any:
    """The function `data/FILE.py` calls FUNCTION, of "FILE.FUNCTION"."""
    file, function = name.split(".")
    return getattr(importlib.import_module(f"benchmarks.subjects.public.data.{file}"), function)


def prepare(job: dict[str, Any], sources: Path, copies: Path) -> Prepared:
    """A fresh copy of the job's repository in COPIES/NAME with its data."""
    copy = copies / job["name"]
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(sources / job["repo"].replace("/", "+"), copy)
    folder = copy / job["folder"]
    folder.mkdir(parents=True, exist_ok=True)
    for name, where, *settings in job["data"]:
        place = (folder / where.replace("{copy}", str(copy))).resolve()
        place.mkdir(parents=True, exist_ok=True)
        maker(name)(place, **(settings[0] if settings else {}))
    return found(job, copies)


def found(job: dict[str, Any], copies: Path) -> Prepared:
    """The job as `prepare` left it."""
    copy = (copies / job["name"]).resolve()
    told = {name: value.replace("{copy}", str(copy)) for name, value in job["environment"].items()}
    # A home of its own: caches of weights and data sets lie in it.
    home = {
        "TORCH_HOME": str(copy / ".torch"),
        "HF_HOME": str(copy / ".huggingface"),
        "XDG_CACHE_HOME": str(copy / ".cache"),
    }
    added = [str(STAND_INS), told.pop("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    module = job["script"].startswith("-m ")
    return Prepared(
        script=job["script"].removeprefix("-m ").strip() if module else str(copy / job["script"]),
        module=module,
        args=[word.replace("{copy}", str(copy)) for word in job["args"]],
        folder=copy / job["folder"],
        environment={**_ENVIRONMENT, **home, **told, "PYTHONPATH": os.pathsep.join(filter(None, added))},
    )


def started(sources: str, copies: str, name: str) -> str:
    """Make a job's copy, and how it is started then. In a process of its own: what data makers load, and leave behind, stays there."""
    job = next(job for job in job_files.load()[1] if job["name"] == name)
    ready = prepare(job, Path(sources).resolve(), Path(copies).resolve())
    named = {**job["environment"], "PYTHONPATH": ready.environment["PYTHONPATH"]}
    settings = " ".join(f"{name}={ready.environment[name]}" for name in named)
    return f"cd {ready.folder}; {settings} python {'-m ' * ready.module}{ready.script} {' '.join(ready.args)}"


@click.command("prepare")
@click.argument("sources")
@click.argument("copies")
@click.argument("name")
def main(sources: str, copies: str, name: str) -> None:
    """Make one job's copy and data, and print how it is started."""
    print(started(sources, copies, name))
