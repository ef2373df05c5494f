"""An ONNX model as ONNX Runtime first holds it: before any optimizer, shapes beside the planner's symbols.

1. Constant nodes are initializers and take no index (`graph.py`).
2. Initializers nothing reads are dropped, as ONNX Runtime does when it resolves the graph.
3. Function bodies are inlined first. Values whose shape is a bound or a guess are marked `bounded`.

Source: `core/graph/graph.cc` (`Graph::Graph`, `CleanUnusedInitializersAndNodeArgs`).
"""

from __future__ import annotations

from typing import Any

from analyzer.capture.onnx import plain
from analyzer.onnx.model import read
from analyzer.onnx.shapes.infer import Inferred
from analyzer.onnx.structure import Structure, reads
from analyzer.onnx.types import ValueType
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value


def load(path_or_model: Any, batch: int | None, inputs: Any = None) -> RuntimeGraph:
    """Return the graph of what `onnx_model.read` takes. Raises TargetError and InputError."""
    model = read(path_or_model, batch, inputs)
    shapes = model.shapes
    graph = build(model.structure, shapes.actual, shapes.symbolic, model.opset)
    graph.functions_first = model.has_functions
    graph.notes.extend(dict.fromkeys((*shapes.binding.notes, *shapes.actual.notes)))
    return graph


def build(
    structure: Structure,
    actual: Inferred,
    symbolic: Inferred,
    opset: int,
    outer: frozenset[str] = frozenset(),
) -> RuntimeGraph:
    """Return a graph of these types. outer: values a subgraph reads from around it."""
    values: dict[str, Value] = {}
    for name, kind in actual.types.items():
        values[name] = _value(name, kind, symbolic.types.get(name), name in actual.inexact)
    nodes: dict[int, Node] = {}
    read: set[str] = set(structure.outputs)
    for place, proto in enumerate(structure.nodes):
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        attributes = {item.name: _attribute(item) for item in proto.attribute}
        operands = list(proto.input), list(proto.output)
        node = Node(place, proto.name, proto.op_type, domain, *operands, attributes)
        while node.inputs and not node.inputs[-1]:
            node.inputs.pop()
        own = {name for name in node.inputs if name}
        node.implicit = [name for name in reads(structure, place) if name not in own]
        for attribute, inner in structure.subgraphs.get(place, {}).items():
            if attribute in actual.children.get(place, {}):
                node.bodies[attribute] = build(
                    inner,
                    actual.children[place][attribute],
                    symbolic.children.get(place, {}).get(attribute, actual.children[place][attribute]),
                    opset,
                    frozenset(inner.captured),
                )
        node.counted = actual.chosen.get(place, "")
        read.update(node.inputs, node.implicit)
        nodes[place] = node
        for name in proto.output:
            if name and name not in values:
                values[name] = Value(name, "", None, None)
    initializers = {name: None for name in structure.initializers if name in read}
    for name in outer:
        values.setdefault(name, Value(name, "", None, None))
    graph = RuntimeGraph(
        nodes,
        values,
        list(structure.inputs),
        list(structure.outputs),
        initializers,
        opset,
        len(nodes),
        outer=outer,
        overridable=structure.overridable,
    )
    for node in nodes.values():
        for body in node.bodies.values():
            for name in body.outer:
                if name in values and body.values[name].shape is None:
                    body.values[name] = values[name]
    # A constant's elements are the same at any batch: asked for are only initializers, and what they were
    # folded to.
    if actual.values is not None:
        graph.known = actual.values.get
    return graph


def _value(name: str, kind: ValueType, symbolic: ValueType | None, bounded: bool) -> Value:
    symbols = symbolic.shape if symbolic is not None else None
    if kind.kind != "tensor":
        return Value(name, kind.dtype, None, None)
    return Value(name, kind.dtype, kind.sizes, symbols, bounded=bounded)


def _attribute(proto: Any) -> Any:
    """Return an attribute as a plain value; tensors stay protos, graphs are left out (they are `bodies`)."""
    import onnx

    if proto.type == onnx.AttributeProto.TENSOR:
        return proto.t
    if proto.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return None
    return plain(proto)
