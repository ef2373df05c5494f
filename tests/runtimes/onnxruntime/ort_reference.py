"""What a real ONNX Runtime does, for comparison: recorded runs (H200), and runs here on the CPU provider.

Graphs in `tests/data/ort/graphs.tar.gz` have no weights (external data left out); `with_weights` fills them at random.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from analyzer import devices
from analyzer.runtimes.onnxruntime import parse, prepare
from analyzer.runtimes.onnxruntime.session import RUNS, record
from analyzer.runtimes.timeline import simulate
from tests.paths import DATA

RECORDED = DATA / "ort"


@lru_cache(maxsize=1)
def _archive() -> dict[str, bytes]:
    with tarfile.open(RECORDED / "graphs.tar.gz") as archive:
        return {item.name.removesuffix(".onnx"): archive.extractfile(item).read() for item in archive}  # type: ignore[union-attr]


def graph(name: str) -> Any:
    """The `onnx.ModelProto` of a recorded graph."""
    return onnx.ModelProto.FromString(_archive()[name])


@lru_cache(maxsize=1)
def recorded() -> dict[str, Any]:
    """`cases` and `heldout`: the runs on the H200."""
    with gzip.open(RECORDED / "h200_runs.json.gz", "rt") as stream:
        return json.load(stream)


@lru_cache(maxsize=1)
def kernels() -> dict[str, Any]:
    """`scratch` and `sharing`: single kernels."""
    with gzip.open(RECORDED / "kernels.json.gz", "rt") as stream:
        return json.load(stream)


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    """The options a recorded case ran with."""
    options = dict(case.get("prov", {}))
    if "opt_level" in case:
        options["graph_optimization_level"] = case["opt_level"]
    if "mem_pattern" in case:
        options["enable_mem_pattern"] = int(case["mem_pattern"])
    return {**options, **case.get("so", {})}


@dataclass(frozen=True)
class Row:
    """A kernel's arena figures in bytes; `requested` counts what was asked for, not whole chunks."""

    name: str
    op: str
    peak: int
    in_use: int
    held: int
    requested: int


@dataclass(frozen=True)
class Simulation:
    """A prediction kernel by kernel (top-level nodes): first and second run, then peak in use and held at the end."""

    first: list[Row]
    second: list[Row]
    peak: int
    held: int


def predicted(model: Any, batch: int | None, options: dict[str, Any], provider: str) -> Simulation:
    """The prediction with initializers in the file's order."""
    parsed = parse({**options, "provider": provider})
    recording = record(prepare(model, batch, parsed), parsed, devices.load("h200"))
    arena = parsed.arena()
    simulation = simulate(recording.events, arena)
    peaks = list(accumulate(simulation.allocated, max))
    rows: dict[int, list[Row]] = {number: [] for number in RUNS}
    for mark in recording.kernels:
        if mark.top:
            at = mark.last_event - 1
            rows[mark.run].append(
                Row(
                    mark.node.name,
                    mark.node.op,
                    peaks[at],
                    simulation.allocated[at],
                    simulation.reserved[at],
                    simulation.requested[at],
                )
            )
    return Simulation(rows[1], rows[2], arena.peak_allocated, arena.reserved)


def with_weights(model: Any) -> bytes:
    """The model with random values for weights that lie outside the file."""
    random = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            floating = np.issubdtype(kind, np.floating)
            shape = tuple(tensor.dims)
            values = (
                (random.standard_normal(shape) * 0.02).astype(kind) if floating else np.zeros(shape, kind)
            )
            name = tensor.name
            tensor.Clear()
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, name))
    return model.SerializeToString()


def feeds(model: Any, batch: int) -> dict[str, Any]:
    """Random inputs; symbolic dimensions are the batch."""
    random = np.random.default_rng(0)
    constants = {item.name for item in model.graph.initializer}
    result = {}
    for item in model.graph.input:
        if item.name in constants:
            continue
        tensor = item.type.tensor_type
        shape = [size.dim_value if size.HasField("dim_value") else batch for size in tensor.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if item.name == "boxes":
            low = np.arange(np.prod(shape[:-1]), dtype=np.float32).reshape(shape[:-1]) * 10
            result[item.name] = np.stack([low, low, low + 1, low + 1], axis=-1)
        elif np.issubdtype(kind, np.floating):
            result[item.name] = random.standard_normal(shape).astype(kind)
        else:
            result[item.name] = random.integers(0, 100, shape).astype(kind)
    return result


def measured(content: bytes, batch: int, level: int, strategy: str) -> Simulation:
    """Three runs of a real session on `CPUExecutionProvider` with profiling on; every kernel of runs 1 and 2."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(level)
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/profile"
        if strategy == "kSameAsRequested":
            memory = onnxruntime.OrtMemoryInfo(
                "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
            )
            # Arguments: no limit, strategy 1, default chunk sizes.
            onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(0, 1, -1, -1))
            options.add_session_config_entry("session.use_env_allocators", "1")
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        model = onnx.ModelProto.FromString(content)
        inputs = feeds(model, batch)
        for _ in range(3):
            session.run(None, inputs)
        profile = json.loads(Path(session.end_profiling()).read_text())
    top = [
        Row(
            entry["name"].removesuffix("_kernel_time"), entry["args"]["op_name"], int(entry["args"]["mem_in_use_peak"]),
            int(entry["args"]["mem_bytes_in_use"]), int(entry["args"]["mem_arena_held"]),
            int(entry["args"]["mem_bytes_requested_in_use"]),
        )
        for entry in profile
        if entry.get("cat") == "Node" and entry["name"].endswith("_kernel_time")
    ]  # fmt: skip
    inside = {node.name for outer in model.graph.node for part in outer.attribute for node in part.g.node}
    top = [row for row in top if row.name not in inside]
    count = len(top) // 3
    last = top[2 * count :]
    return Simulation(top[:count], top[count : 2 * count], max(row.peak for row in last), last[-1].held)


def serialized(model: Any) -> bytes:
    """The model's bytes."""
    buffer = io.BytesIO()
    onnx.save(model, buffer)
    return buffer.getvalue()
