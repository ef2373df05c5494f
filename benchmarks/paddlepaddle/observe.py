"""Watch PaddlePaddle on a CPU: `python -m benchmarks paddlepaddle measure -o tests/data/paddle_cpu.json`, in an environment
with `paddlepaddle`.

Written down: every flag with its default; the operators that have an in-place variant; which memory statistics the
build answers; the peak of `Allocated` host memory in the runs of small static programs (`programs.py`), by garbage
threshold with and without in-place operators; and, from the executor's log, in what order it runs and deletes.

On a CPU the executor frees in a thread of its own, when it comes to it. The least peak of many runs is that of an
executor which frees at once, as it does on a GPU (`FLAGS_fast_eager_deletion_mode`).
"""

from __future__ import annotations

import datetime
import gc
import json
import platform
import re
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.harness.processes import ended
from benchmarks.subjects.paddlepaddle import PROGRAMS, SIDE, THRESHOLDS_GB

RUN_COUNT, REPEAT_COUNT = 4, 4
# Programs whose order of deletions is written down.
ORDERED = ("residual", "reshape")


def peaks(name: str, threshold_gb: float, in_place: bool, repeats: int = REPEAT_COUNT) -> list[int]:
    """Bytes of host memory allocated at the peak of each of the first runs: the least of several repetitions."""
    import numpy as np
    import paddle
    from paddle.base import core

    paddle.enable_static()
    paddle.set_flags(
        {
            "FLAGS_eager_delete_tensor_gb": threshold_gb,
            "FLAGS_pir_apply_inplace_pass": in_place,
            "FLAGS_new_executor_serial_run": True,
        }
    )
    program, optimizer = PROGRAMS[name]
    given = np.zeros([SIDE, SIDE], "float32")

    def repetition() -> list[int]:
        main, start = paddle.static.Program(), paddle.static.Program()
        before = core.host_memory_stat_current_value("Allocated", 0)
        with paddle.static.scope_guard(paddle.static.Scope()):
            with paddle.static.program_guard(main, start):
                x = paddle.static.data("x", [SIDE, SIDE], "float32")
                out = program(paddle, x)
                if optimizer:
                    getattr(paddle.optimizer, optimizer)(0.01).minimize(out)
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(start)
            seen = []
            for _ in range(RUN_COUNT):
                time.sleep(0.02)  # for the thread that frees
                core.host_memory_stat_reset_peak_value("Allocated", 0)
                executor.run(main, feed={"x": given}, fetch_list=[out])
                seen.append(core.host_memory_stat_peak_value("Allocated", 0) - before)
            executor.close()
        return seen

    found = []
    for _ in range(repeats):
        found.append(repetition())
        gc.collect()
        time.sleep(0.05)
    return [min(of_run) for of_run in zip(*found, strict=True)]


def order(name: str) -> list[dict[str, Any]]:
    """The executor's first run by its log: each operator, and the numbers of the variables deleted after it.

    Variables are numbered as they are made, the feed first.
    """
    said = {"GLOG_vmodule": "pir_interpreter=4", "GLOG_logtostderr": "1", "OMP_NUM_THREADS": "1"}
    ran = ended("benchmarks.paddlepaddle.observe:peaks", name, 0.0, False, environment=said)
    program = ran.stderr.split("Done BuildInstructionDependences")[2].partition("Done MultiThreadRun")[0]
    steps: list[dict[str, Any]] = []
    for found in re.finditer(r"done: RunInstructionBase OP id:\d+ name:(\S+)|GC:\S+ id:(\d+)", program):
        if found[1]:
            steps.append({"operator": found[1], "deletes": []})
        else:
            steps[-1]["deletes"].append(int(found[2]))
    return steps


def flags() -> dict[str, Any]:
    """Every flag that names memory or its allocators, with its default."""
    from paddle.base import core

    known = core.globals()
    words = ("memory", "alloc", "chunk", "eager_delet", "inplace", "conv_workspace")
    return {name: known.get_default(name) for name in sorted(known.keys()) if any(w in name for w in words)}


def in_place_operators() -> list[str]:
    """Operators with an in-place variant, by the variant's name without its "_"."""
    import paddle

    return sorted(name[:-1] for name in dir(paddle._C_ops) if name.endswith("_") and not name.startswith("_"))


def statistics() -> dict[str, str]:
    """What the memory statistics answer in this build."""
    import paddle
    from paddle.base import core

    answers = {}
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        try:
            answers[f"paddle.device.cuda.{name}"] = str(getattr(paddle.device.cuda, name)())
        except Exception as error:  # what it says is what is wanted
            answers[f"paddle.device.cuda.{name}"] = (
                f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
            )
    answers["host_memory_stat_current_value"] = str(core.host_memory_stat_current_value("Allocated", 0) >= 0)
    return answers


@click.command("measure")
@click.option("-o", "--output", type=Path)
def main(output: Path | None) -> None:
    """Watch everything, and write the file, or print it."""
    import paddle

    document = {
        "paddlepaddle": paddle.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "command": "python -m benchmarks paddlepaddle measure -o tests/data/paddle_cpu.json",
        "side": SIDE,
        "flags": flags(),
        "in_place": in_place_operators(),
        "statistics": statistics(),
        "order": {name: order(name) for name in ORDERED},
        "peaks": [
            {
                "program": name,
                "eager_delete_tensor_gb": threshold,
                "in_place": in_place,
                "runs": peaks(name, threshold, in_place),
            }
            for name in PROGRAMS
            for threshold in THRESHOLDS_GB
            for in_place in (False, True)
        ],
    }
    text = json.dumps(document, indent=1) + "\n"
    if output:
        output.write_text(text)
    else:
        print(text)
