"""Ask cuDNN on this machine's GPU which plans it has for a list of calls (`calls.py`), and what they take.

Run: `python -m benchmarks cudnn ask CALLS.npz ANSWERS.npz [--plans first] [--seconds 300] [--processes 10]`. Nothing is
executed; a call takes some milliseconds of one CPU core, which is what limits it. Calls are asked in the order of the
list (most wanted first), each process every n-th, until the time is over. `ANSWERS.npz` holds the list (`families`,
`entries`) and `rows`: int64 [answers, 2 + figures], each the call's place in `entries`, the operation's in `OPERATIONS`,
then one number of bytes for each of `FIGURES`.

--plans: "whole" builds all plans of a call, which benchmark mode needs; "settings" those up to the first of each setting;
"first" the first alone, several times as fast: what the other settings take is then left open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from analyzer.libraries.cudnn.answers import figures
from analyzer.libraries.cudnn.table import (
    FIGURES,
    FIRST,
    NO_PLAN,
    NOT_ASKED,
    Convolution,
)
from analyzer.runs.cudnn import Cudnn, CudnnError
from benchmarks.cudnn.calls import Calls
from benchmarks.harness.processes import in_parts

Integers = npt.NDArray[np.int64]
PLANS = ("first", "settings", "whole")


def answer(cudnn: Cudnn, call: Convolution, plans: str) -> tuple[int, ...]:
    """One number of bytes for each of `FIGURES`; plans: one of `PLANS`."""
    try:
        if plans != "first":
            return figures(cudnn.plans(call), call.dtype, whole=plans == "whole")
        first = next(cudnn.plans(call), None)
    except CudnnError:
        if plans != "first":
            return figures((), call.dtype, whole=plans == "whole")
        first = None
    told = {FIRST: NO_PLAN if first is None else first.workspace_bytes}
    return tuple(told.get(figure, NOT_ASKED) for figure in FIGURES)


def ask(part: int, parts: int, path: Path, seconds: float, plans: str) -> Integers:
    """The rows of every `parts`-th call of a list, as far as the time goes."""
    import torch

    end = time.monotonic() + seconds
    torch.zeros(1, device="cuda")
    cudnn = Cudnn()
    return rows_of(path, part, parts, end, lambda call: answer(cudnn, call, plans))


def rows_of(
    path: Path, part: int, parts: int, end: float, told: Callable[[Convolution], Sequence[int] | None]
) -> Integers:
    """A row for each operation of every `parts`-th call of a list, until the end (`time.monotonic`); told: one number for each of
    `FIGURES`, None: no row."""
    calls = Calls.read(path)
    rows: list[tuple[int, ...]] = []
    for number in range(part, len(calls.entries), parts):
        if time.monotonic() > end:
            break
        for place, call in enumerate(calls.convolutions(number)):
            figures_told = told(call)
            if figures_told is not None:
                rows.append((number, place, *figures_told))
    return np.array(rows, np.int64).reshape(-1, 2 + len(FIGURES))


def gather(task: Callable[..., Integers], path: Path, answers: Path, processes: int, *more: Any) -> None:
    """Run the task (part, parts, list, *more) in so many processes, and write their rows with the list."""
    rows = np.concatenate(in_parts(task, processes, path, *more))
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    calls = Calls.read(path)
    calls.write(answers, rows=rows)
    print(f"{len(rows):,} answers")


@click.command("ask")
@click.argument("calls", type=Path)
@click.argument("answers", type=Path)
@click.option("--plans", type=click.Choice(PLANS), default="settings")
@click.option("--seconds", default=300.0)
@click.option("--processes", default=10)
def main(calls: Path, answers: Path, plans: str, seconds: float, processes: int) -> None:
    """Ask for the workspaces of every call of a list."""
    gather(ask, calls, answers, processes, seconds, plans)
