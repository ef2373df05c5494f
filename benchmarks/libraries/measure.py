"""On a GPU: what closed libraries take. `python -m benchmarks libraries measure OUT`, some three minutes, at most four.

Each part runs in processes of its own, all at once, and writes its rows as it goes (OUT/PART.jsonl.gz, one JSON list a line, a
process's first line what was measured), so that one that ends early loses nothing of the others:

1. `recurrent`: sizes cuDNN gives for recurrent layers (nothing is launched)
2. `solver`: sizes cuSOLVER gives for its work areas (nothing is launched)
3. `attention`: cuDNN's attention run forward and backward, and what PyTorch allocated for it
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click

# Part -> how many processes share it.
PARTS = {"recurrent": 2, "solver": 4, "attention": 3}
_FLUSH_SECONDS = 5


class Rows:
    """The rows of one part, on disk within seconds. `left`: whether there is time for more.

    share, shares: which process of the part this is, of how many; `mine` deals cases out to them.
    """

    def __init__(self, out: Path, part: str, share: int, seconds: float) -> None:
        self._end, self._flushed = time.monotonic() + seconds, time.monotonic()
        self.share, self.shares = share, PARTS[part]
        self._file = gzip.open(_file(out, part, share), "wt", compresslevel=6)  # noqa: SIM115, closed by `close`

    def left(self) -> bool:
        return time.monotonic() < self._end

    def mine(self, cases: list[Any]) -> list[Any]:
        return cases[self.share :: self.shares]

    def add(self, row: Any) -> None:
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
        if time.monotonic() > self._flushed + _FLUSH_SECONDS:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        self._file.close()


def _file(out: Path, part: str, share: int) -> Path:
    return out / f"{part}_{share}.jsonl.gz"


def about() -> list[Any]:
    """The GPU and the releases that answered."""
    import torch

    return [
        torch.cuda.get_device_name(),
        torch.__version__,
        torch.version.cuda,
        torch.backends.cudnn.version(),
    ]


def library(name: str) -> Any:
    """The library of this name (`libcudnn.so.9`) that torch has loaded."""
    import ctypes

    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}
    return ctypes.CDLL(next((path for path in sorted(loaded) if Path(path).name.startswith(name)), name))


class Recorded:
    """`with Recorded() as requests`: bytes taken (positive) and given back (negative) meanwhile, in order."""

    def __enter__(self) -> list[int]:
        import torch

        torch.cuda.memory._record_memory_history(None)
        torch.cuda.memory._record_memory_history(context=None)
        self._requests: list[int] = []
        return self._requests

    def __exit__(self, *_: object) -> None:
        import torch

        signs = {"alloc": 1, "free_completed": -1}
        for event in torch.cuda.memory._snapshot()["device_traces"][0]:
            if event["action"] in signs:
                self._requests.append(signs[event["action"]] * event["size"])


@click.command("measure")
@click.argument("out", type=Path)
@click.option("--part", type=click.Choice(list(PARTS)), help="this part alone")
@click.option("--share", type=int, help="with --part: as this one of its processes")
@click.option("--seconds", default=150.0, show_default=True, help="time each part may take")
def main(out: Path, part: str | None, share: int | None, seconds: float) -> int:
    """Ask and run everything, and write the rows into the folder OUT."""
    out.mkdir(parents=True, exist_ok=True)
    if part is not None and share is not None:
        rows = Rows(out, part, share, seconds)
        try:
            import_module(f"benchmarks.libraries.{part}").measure(rows)
        finally:
            rows.close()
        return 0
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "libraries",
        "measure",
        str(out),
        "--seconds",
        str(seconds),
    ]
    parts = {part: PARTS[part]} if part is not None else PARTS
    started = {
        (name, index): subprocess.Popen([*command, "--part", name, "--share", str(index)])
        for name, count in parts.items()
        for index in range(count)
    }
    end = time.monotonic() + seconds + 60
    for process in started.values():
        try:
            process.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for (name, index), process in started.items():
        click.echo(
            f"{name} {index}: {'done' if process.returncode == 0 else f'ended with {process.returncode}'}"
        )
    # Files of gzip behind each other are one; what a killed process left is not whole, and stays alone.
    for name, count in parts.items():
        with (out / f"{name}.jsonl.gz").open("wb") as whole:
            for index in range(count):
                if started[name, index].returncode >= 0:
                    whole.write(_file(out, name, index).read_bytes())
                    _file(out, name, index).unlink()
    return 0
