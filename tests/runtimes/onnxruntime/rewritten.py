"""A graph as ONNX Runtime and the analyzer rewrite it, told alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from analyzer.releases import Release, parse
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.plan.order import topological
from analyzer.runtimes.onnxruntime.rewrite import optimise

INSTALLED = parse(ort.__version__)
BATCH = 5
SHAPED = ("Reshape", "Unsqueeze", "Squeeze", "Split")


def described(op: str, perm: Any, target: Any) -> str:
    """A node as both sides tell it: its operator, a Transpose's permutation, what is known of a target shape."""
    return f"{op}{list(perm) if op == 'Transpose' else ''}{target if op in SHAPED else ''}".replace(" ", "")


def theirs(proto: onnx.ModelProto, level: int, folder: Path) -> tuple[list[str], list[tuple[int, ...]]]:
    """Nodes and shapes of constants of the graph ONNX Runtime saves, sorted."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel(level)
    options.optimized_model_filepath, options.log_severity_level = str(folder / "optimised.onnx"), 4
    ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    graph = onnx.load(options.optimized_model_filepath).graph
    held = {tensor.name: onnx.numpy_helper.to_array(tensor).tolist() for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        perm = next((a.ints for a in node.attribute if a.name == "perm"), ())
        domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
        nodes.append(
            described(domain + node.op_type, perm, held.get(node.input[1]) if len(node.input) > 1 else None)
        )
    return sorted(nodes), sorted(tuple(tensor.dims) for tensor in graph.initializer)


def mine(
    proto: onnx.ModelProto, level: int, release: Release = INSTALLED
) -> tuple[list[str], list[tuple[int, ...]]]:
    """The same of the analyzer's."""
    named = any(size.dim_param for item in proto.graph.input for size in item.type.tensor_type.shape.dim)
    graph = load(proto.SerializeToString(), BATCH if named else None)
    optimise(graph, "cpu", level, release=release)
    nodes = []
    for node in topological(graph):
        data = graph.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        target = None if data is None else data.tolist()
        nodes.append(described(node.operator, node.attributes.get("perm", ()), target))
    return sorted(nodes), sorted(graph.values[name].shape or () for name in graph.initializers)
