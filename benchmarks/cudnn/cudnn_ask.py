"""Ask cuDNN on this machine's GPU which plans it has for a list of calls (`cudnn_calls.py`), and what they take.

Run: `python benchmarks/cudnn/cudnn_ask.py CALLS.npz ANSWERS.npz [--plans first] [--seconds 300] [--processes 10]`. Nothing is
executed; a call takes some milliseconds of one CPU core, which is what limits it. Calls are asked in the order of the
list (most wanted first), each process every n-th, until the time is over. `ANSWERS.npz` holds the list (`families`,
`entries`) and `rows`: int64 [answers, 2 + figures], each the call's place in `entries`, the operation's in `OPERATIONS`,
then one number of bytes for each of `FIGURES`.

--plans: "whole" builds all plans of a call, which benchmark mode needs; "settings" those up to the first of each setting;
"first" the first alone, several times as fast: what the other settings take is then left open.
"""

from __future__ import annotations

import argparse
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
from cudnn_calls import GROUPS, Calls

from analyzer.libraries.cudnn.answers import figures
from analyzer.libraries.cudnn.table import (
    FIGURES,
    FIRST,
    NO_PLAN,
    NOT_ASKED,
    OPERATIONS,
    Convolution,
    convolution_of,
)
from analyzer.runs.cudnn import Cudnn, CudnnError

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


def ask(path: Path, part: int, parts: int, seconds: float, plans: str) -> Integers:
    """The rows of every `parts`-th call of a list, as far as the time goes."""
    import torch

    calls = Calls.read(path)
    begin = time.monotonic()
    torch.zeros(1, device="cuda")
    cudnn = Cudnn()
    rows: list[tuple[int, ...]] = []
    for number in range(part, len(calls.entries), parts):
        if time.monotonic() - begin > seconds:
            break
        family, group, batch = (int(value) for value in calls.entries[number])
        dtype, layout = GROUPS[group].split(".")
        for place, operation in enumerate(OPERATIONS):
            like = Convolution(operation, dtype, layout == "nhwc", (1, 1), (1, 1), (), (), ())
            call = convolution_of(calls.families[family], batch, like)
            rows.append((number, place, *answer(cudnn, call, plans)))
    return np.array(rows, np.int64).reshape(-1, 2 + len(FIGURES))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("calls", type=Path)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--plans", choices=PLANS, default="settings")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--processes", type=int, default=10)
    options = parser.parse_args()
    parts = options.processes
    work = [(options.calls, part, parts, options.seconds, options.plans) for part in range(parts)]
    # Each process has a CUDA context of its own, so none may be inherited.
    with get_context("spawn").Pool(parts) as pool:
        rows = np.concatenate(pool.starmap(ask, work))
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    calls = Calls.read(options.calls)
    np.savez_compressed(
        options.answers, allow_pickle=False, families=calls.families, entries=calls.entries, rows=rows
    )
    print(f"{len(rows):,} answers to {len(calls.entries):,} calls")


if __name__ == "__main__":
    main()
