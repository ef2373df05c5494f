"""Shapes inferred anew, as ONNX Runtime does whenever the graph has changed.

1. A constant that folding has made may decide a shape nobody knew before (the axes of a reduction, the target
   of a Reshape). Every node with a result whose dimensions are not all known is inferred again, in execution
   order, by ONNX's own function; what is known already stays.
2. Dimension names that inference makes up are dropped (`onnx/shapes/native.py`).

Source: `core/graph/graph.cc` (`Resolve`, `InferAndVerifyTypeMatch`), `core/optimizer/constant_folding.cc`.
"""

from __future__ import annotations

from typing import Any

from analyzer.onnx.shapes.native import Context, NodeError, infer_node
from analyzer.onnx.structure import OVERRIDABLE_IR
from analyzer.onnx.types import ValueType
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Symbols
from analyzer.runtimes.onnxruntime.rewrite.editor import Editor

_LARGEST_CONSTANT = 1024  # elements of a constant that a shape may depend on


class _Constants:
    """The graph's constants as inference asks for them."""

    def __init__(self, graph: RuntimeGraph) -> None:
        self._graph = graph

    def get(self, name: str) -> Any:
        data = self._graph.constant(name)
        return data if data is not None and data.size <= _LARGEST_CONSTANT else None


def refresh(editor: Editor) -> None:
    """Infer what ONNX Runtime has not known of the graph's shapes so far."""
    graph = editor.graph
    names = {size for value in graph.values.values() for size in value.symbols or () if isinstance(size, str)}
    context = Context({"": graph.opset}, OVERRIDABLE_IR, symbolic=True)
    constants: Any = _Constants(graph)
    learned: set[str] = set()
    for node in editor.order():
        if node.bodies or node.domain:
            continue
        if learned.isdisjoint(node.inputs) and not any(_open(graph, name) for name in node.outputs if name):
            continue
        types = {
            name: ValueType(graph.values[name].dtype, graph.values[name].symbols)
            for name in node.inputs
            if name
        }
        try:
            inferred = infer_node(proto_of(node), types, constants, context, names - {""})
        except NodeError:
            continue
        for name, kind in inferred.items():
            value = graph.values[name]
            if kind.kind == "tensor" and kind.shape is not None and value.shape is not None:
                merged = _merged(value.symbols, kind.shape)
                if merged != value.symbols:
                    learned.add(name)
                value.symbols = merged


def proto_of(node: Node) -> Any:
    """Return the node as a `NodeProto`, without its subgraphs."""
    import onnx

    call = onnx.helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain)
    for name, attribute in node.attributes.items():
        if attribute is not None and not (isinstance(attribute, tuple | list) and not attribute):
            call.attribute.append(onnx.helper.make_attribute(name, attribute))
    return call


def _open(graph: RuntimeGraph, name: str) -> bool:
    symbols = graph.values[name].symbols
    return symbols is None or "" in symbols


def _merged(declared: Symbols | None, inferred: Symbols) -> Symbols:
    """Merge shapes: found numbers replace names and unknowns (`mergeInShapeInfo` of ONNX)."""
    if declared is None or len(declared) != len(inferred):
        return inferred if declared is None else declared
    return tuple(
        new if old == "" or (isinstance(old, str) and isinstance(new, int)) else old
        for old, new in zip(declared, inferred, strict=True)
    )
