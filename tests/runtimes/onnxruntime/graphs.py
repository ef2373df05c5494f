"""Small runtime graphs written as text: `build("MatMul x w -> a; Add a b -> y", ...)`, and back: `shown`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.plan.order import topological

NUMBERS = {"n": 4, "m": 5}


def build(
    text: str,
    shapes: Mapping[str, Sequence[int | str] | None],
    constants: Mapping[str, Any] | None = None,
    *,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    dtype: str = "float32",
    dtypes: Mapping[str, str] | None = None,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    provider: str = "cuda",
) -> RuntimeGraph:
    """A graph of nodes "Op in in -> out out", separated by ";"; "_" is an absent input or output.

    shapes: of values by name, with names such as "n" for dimensions; a result that is not named is shaped like its
    node's first input, None is unknown. constants: their elements; a tuple is a shape without elements known.
    attributes: by the node's first output. Operators of other domains are written "domain.Op".
    """
    constants = constants or {}
    values: dict[str, Value] = {}

    def add(name: str, symbols: Sequence[int | str] | None, kind: str, data: Any = None) -> None:
        known = None if symbols is None else tuple(symbols)
        shape = (
            None
            if known is None or "" in known
            else tuple(NUMBERS[size] if isinstance(size, str) else size for size in known)
        )
        values[name] = Value(name, (dtypes or {}).get(name, kind), shape, known, data)

    for name, content in constants.items():
        if isinstance(content, tuple):
            add(name, content, dtype)
        else:
            data = np.asarray(content)
            add(name, data.shape, dtype if data.dtype.kind == "f" else "int64", data)
    for name, symbols in shapes.items():
        add(name, symbols, dtype)
    nodes: dict[int, Node] = {}
    made: set[str] = set()
    for index, line in enumerate(text.split(";")):
        left, _, right = line.partition("->")
        operator, *inputs = left.split()
        domain, _, op = operator.rpartition(".")
        names = ["" if name == "_" else name for name in inputs]
        results = ["" if name == "_" else name for name in right.split()]
        for name in filter(None, results):
            if name not in values:
                like = values[names[0]]
                add(name, like.symbols, like.dtype)
        own = dict((attributes or {}).get(next(filter(None, results)), {}))
        nodes[index] = Node(index, f"n{index}", op, domain, names, results, own, provider=provider)
        made.update(results)
    given = [name for name in values if name not in made and name not in constants]
    return RuntimeGraph(nodes, values, given, list(outputs), dict.fromkeys(constants), opset, len(nodes))


def line(node: Node) -> str:
    """The node as `build` reads it."""
    names = [" ".join(name or "_" for name in side) for side in (node.inputs, node.outputs)]
    return f"{node.operator} {names[0]} -> {names[1]}"


def shown(graph: RuntimeGraph) -> list[str]:
    """Every node, in execution order."""
    return [line(node) for node in topological(graph)]


def made(graph: RuntimeGraph, name: str) -> Node:
    """The node that makes a value."""
    return graph.producers()[name]
