"""ONNX files: runs of ONNX Runtime's CUDA provider on an H200 (`tests/data/ort/h200_runs.json.gz`), and onnx-tool.

onnx-tool reads weights, which the recorded graphs do not have: it is given the graphs with random ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import analyzer
from benchmarks.peers.tool import FIGURES, Case, Tool
from tests.runtimes.onnxruntime import ort_reference as reference

Question = Callable[[], tuple[int, ...]]


def cases() -> Iterator[Case]:
    """Every recorded run. device: what NVML counted for the process at its end."""
    for name in ("cases", "heldout"):
        for row in reference.recorded()[name]:
            case = row["case"]
            more = [f"{k}={v}" for k, v in reference.options_of(case).items()]
            tag = " ".join([case["model"], str(case["batch"]), *more])
            measured = {"allocated": row["peak"], "reserved": row["held"], "device": row["nvml"][-1]}
            yield Case("file", tag, measured, case)


def _analyzer(case: dict[str, Any]) -> Question:
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / f"{case['model']}.onnx"
    path.write_bytes(reference.serialized(reference.graph(case["model"])))

    def question() -> tuple[int, ...]:
        with folder:
            found = analyzer.analyze(
                path,
                batch=case["batch"],
                device="h200",
                runtime="onnxruntime",
                runtime_options=reference.options_of(case),
            )
        return found.peak_allocated, found.peak_reserved, found.device_used

    return question


def _onnx_tool(case: dict[str, Any]) -> Question:
    """Weights, and the arena `Graph.compress_memory` needs for everything else."""
    import onnx_tool

    model = reference.graph(case["model"])
    reference.with_weights(model)  # in place
    constants = {item.name for item in model.graph.initializer}
    inputs = {}
    for item in model.graph.input:
        if item.name not in constants:
            tensor = item.type.tensor_type
            shape = [size.dim_value or case["batch"] for size in tensor.shape.dim]
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            inputs[item.name] = np.zeros(shape, dtype=kind)

    def question() -> tuple[int, ...]:
        graph = onnx_tool.Model(model, {"verbose": False}).graph
        graph.graph_reorder_nodes()
        graph.shape_infer(inputs)
        graph.profile()
        _, activations = graph.compress_memory()
        weights = sum(graph.tensormap[name].get_memsize() for name in graph.initials)
        return (int(activations + weights),)

    return question


TOOLS = (
    Tool("analyzer", "analyzer", "file", FIGURES, _analyzer),
    Tool("onnx-tool", "onnx-tool", "file", ("allocated",), _onnx_tool),
)
