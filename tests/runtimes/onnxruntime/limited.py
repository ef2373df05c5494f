"""Sessions of a real ONNX Runtime on the CPU provider whose arena has a limit, and small models to run in them.

The arena is the environment's (`create_and_register_allocator`), of which a process has one: each case is a forked child.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

SIDE = 32  # of the square a channel is

# Each case: file, limit in bytes (0: none), strategy, batches of its runs. Prints, for each: [message of the run that fails
# or "", for each run before: highest in use so far, and held at most].
_REAL = """
import json, os, sys, tempfile
import numpy as np, onnxruntime as ort
ort.set_default_logger_severity(4)

def ran(case):
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(info, ort.OrtArenaCfg(case["limit"], case["strategy"], -1, -1))
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, tempfile.mkdtemp() + "/profile"
    options.intra_op_num_threads, options.graph_optimization_level = 1, ort.GraphOptimizationLevel(2)
    options.add_session_config_entry("session.use_env_allocators", "1")
    session = ort.InferenceSession(case["file"], options, providers=["CPUExecutionProvider"])
    said = ort.RunOptions()
    if case.get("shrinks"):
        said.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    failed, done = "", 0
    for batch in case["batches"]:
        try:
            session.run(None, {"x": np.ones((batch, case["channels"], case["side"], case["side"]), np.float32)}, said)
        except Exception as error:
            failed = str(error)
            break
        done += 1
    events = json.load(open(session.end_profiling()))
    kernels = [e["args"] for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    rows = []
    for run in range(done):
        own = [k for k in kernels[run * case["kernels"] : (run + 1) * case["kernels"]] if "mem_arena_held" in k]
        rows.append([max(int(k["mem_in_use_peak"]) for k in own), max(int(k["mem_arena_held"]) for k in own)])
    return [failed, rows]

answers = []
for case in json.loads(sys.stdin.read()):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, json.dumps(ran(case)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as told:
        answers.append(json.loads(told.read()))
    os.waitpid(child, 0)
print(json.dumps(answers))
"""


def tower(seed: int, path: Path) -> Any:
    """A model of random width whose values differ in size, so that one buffer does not serve another; written to the path.

    Its kernels work on one another's results alone, none in place, so that the pattern is what all of them live in."""
    random_ = random.Random(seed)
    nodes, channels, name = [], random_.choice((2, 4, 8)), "x"
    first = width = channels
    for step in range(random_.randint(2, 5)):
        kind = random_.choice(("Concat", "Concat", "Slice", "Mean"))
        act = f"a{step}"
        nodes.append(helper.make_node(random_.choice(("Sin", "Cos", "Erf")), [name], [act]))
        made = f"b{step}"
        if kind == "Concat" and width <= 64:
            nodes.append(helper.make_node("Concat", [act, name], [made], axis=1))
            width *= 2
        elif kind == "Slice" and width > 2:
            nodes.append(helper.make_node("Split", [act], [made, f"rest{step}"], axis=1))
            width //= 2
        else:
            nodes.append(helper.make_node("ReduceMean", [act], [f"m{step}"], axes=[1], keepdims=1))
            nodes.append(helper.make_node("Mul", [act, f"m{step}"], [made]))
        name = made
    nodes.append(helper.make_node("ReduceMean", [name], ["y"], axes=[1, 2, 3], keepdims=0))
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "tower",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", first, SIDE, SIDE])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    onnx.save(model, path)
    return model


def case(
    model: Any, path: Path, limit: int, strategy: int, batches: list[int], **more: Any
) -> dict[str, Any]:
    """One case of `real`."""
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    return {
        "file": str(path), "limit": limit, "strategy": strategy, "batches": batches, "channels": channels, "side": SIDE,
        "kernels": len(model.graph.node), **more,
    }  # fmt: skip


def real(cases: list[dict[str, Any]]) -> list[tuple[str, list[list[int]]]]:
    """The failure of each case, "" where all runs ended, and highest in use so far and held at most of every run before."""
    done = subprocess.run(
        [sys.executable, "-c", _REAL],
        input=json.dumps(cases), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [(failed, rows) for failed, rows in json.loads(done.stdout)]
