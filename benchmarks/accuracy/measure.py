"""Measure a held-out set, as it is recorded, on this machine's GPU: `python -m benchmarks accuracy measure OUT_FOLDER [--workers N] [--set held_out_3]`.

Each case runs in a process of its own: the step of `analyzer/capture/pytorch/module/step.py` on real CUDA tensors, random weights.
Written: `SET.json` (a row a case: peaks, marks, NVML, versions) and `SET_histories.npz` (the allocator's own sequence of
allocations and frees, `NNN_act` +1/-1 and `NNN_size`, in order; `NNN_id` pairs a free with its allocation).
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch

from analyzer.capture.pytorch.module.step import Step, run
from analyzer_verify.runs import machine
from analyzer_verify.runs.observer import Observer
from analyzer_verify.runs.program import watched
from benchmarks.accuracy.sets import NAMES, load, zoo
from benchmarks.harness.processes import ProcessError, answer

_PACKAGES = ("timm", "transformers", "torchvision", "monai")
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def measure(case: dict[str, Any], set_name: str) -> tuple[dict[str, Any], list[int]]:
    """One case of a set in this process: its row and its allocation history."""
    torch.manual_seed(0)
    models = zoo(set_name)
    make_model, make_batch, loss = models.M[case["model"]]
    train = case["mode"] == "train"
    dtype = TYPES.get(case.get("dtype", ""))

    def script(observer: Observer) -> None:
        model = make_model()
        inputs, target = make_batch(case["batch"])
        if dtype:
            model = model.to(dtype)
            inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
        if case.get("channels_last"):
            model = model.to(memory_format=torch.channels_last)
            inputs = tuple(x.to(memory_format=torch.channels_last) for x in inputs)
        step = Step(
            model,
            inputs,
            (target,) if train else (),
            loss,
            models.OPT[case["opt"]],
            train,
            case.get("amp"),
            case.get("accum", 1),
            3,
        )
        run(step, observer)

    found = watched(script)
    if "out_of_memory" in found:
        raise RuntimeError(found["out_of_memory"]["message"])
    marked = ("event", "allocated", "peak_allocated", "reserved")
    row = {
        "case": case,
        "peak_allocated": max(peak["peak_allocated"] for peak in found["peaks"]),
        "peak_reserved": max(peak["peak_reserved"] for peak in found["peaks"]),
        "marks": [[mark[name] for name in marked] for mark in found["marks"]],
        "nvml_process": {name: [found["nvml_process"][name]] for name in ("context", "end")},
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "driver": machine.gpu("a case").driver,
        "packages": {name: sys.modules[name].__version__ for name in _PACKAGES if name in sys.modules},
        "date": time.strftime("%Y-%m-%d"),
    }
    return row, found["history"]


def pairs(history: list[int]) -> dict[str, np.ndarray[Any, Any]]:
    """As arrays: `act` +1 allocation, -1 completed free; `size` requested bytes; `id` the allocation's number."""
    sizes = [entry for entry in history if entry >= 0]
    numbers = itertools.count()
    rows = [
        (1, entry, next(numbers)) if entry >= 0 else (-1, sizes[-1 - entry], -1 - entry) for entry in history
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return {"act": table[:, 0].astype(np.int8), "size": table[:, 1], "id": table[:, 2].astype(np.int32)}


def child(case: dict[str, Any], set_name: str, out: str) -> dict[str, Any]:
    """The row of one case; its history is written to OUT.npz."""
    try:
        row, history = measure(case, set_name)
        np.savez_compressed(out + ".npz", **pairs(history))
        return row
    except Exception as error:
        return {"case": case, "error": repr(error)[:400], "traceback": traceback.format_exc()[-1200:]}


@click.command("measure")
@click.argument("folder", type=Path)
@click.option("--workers", default=6)
@click.option("--set", "name", type=click.Choice(NAMES[1:]), default="held_out")
@click.option("--seconds", default=3600.0, help="no case is begun after these")
def main(folder: Path, workers: int, name: str, seconds: float) -> None:
    """Run every case of a set in a process of its own, and write rows and histories."""
    cases = [row.case for row in load(name)]
    end = time.monotonic() + seconds
    work = Path(tempfile.mkdtemp(prefix=name))

    def one(numbered: tuple[int, dict[str, Any]]) -> dict[str, Any]:
        number, case = numbered
        if time.monotonic() > end:
            return {"case": case, "error": "no time left"}
        try:
            found = answer(
                "benchmarks.accuracy.measure:child", case, name, str(work / f"{number:03d}"), seconds=200
            )
            return dict(found)
        except ProcessError as error:
            return {"case": case, "error": str(error)}

    with ThreadPoolExecutor(workers) as pool:
        rows = list(pool.map(one, enumerate(cases)))
    (folder / f"{name}.json").write_text(json.dumps(rows))
    histories = {}
    for number in range(len(cases)):
        path = work / f"{number:03d}.npz"
        if path.exists():
            loaded = np.load(path)
            histories.update({f"{number:03d}_{member}": loaded[member] for member in loaded.files})
    np.savez_compressed(folder / f"{name}_histories.npz", **histories)
    for row in rows:
        tag = " ".join(str(v) for v in row["case"].values())
        print(tag, row.get("error") or f"{row['peak_allocated']} {row['peak_reserved']}", flush=True)
