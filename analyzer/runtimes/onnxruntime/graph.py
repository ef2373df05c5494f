"""The graph as ONNX Runtime holds it: nodes with stable indices, values with what the runtime knows of their
shapes.

1. A node's **index** is its place in the file, `Constant` nodes not counted; a node an optimizer adds takes
   the next free index. Indices are never used twice, and order depends on them (`order.py`).
   Source: `core/graph/graph.cc`, `Graph::Graph`, `Graph::AddNode`.
2. A value has two shapes: `shape`, with numbers at the batch asked for, and `symbols`, as the runtime's
   planner sees them when the session is made (numbers, names like "batch", or "" for unknown).
3. A **constant** is an initializer that no caller may override (`onnx/structure.py`). Its elements are kept
   when the file holds them and they are few (axes, scales, shapes); otherwise only its type and shape are
   known.
4. A subgraph (the body of If, Loop, Scan) belongs to a node; what it reads from outside are implicit inputs.

Not modelled: sequence and map values' sizes (they live on the host), sparse initializers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analyzer.graph import nbytes_of
from analyzer.releases import RECORDED, Release

Symbols = tuple[int | str, ...]
# Domains that ONNX Runtime puts ONNX's own operators in when a provider runs them in another layout.
LAYOUT_DOMAINS = ("com.ms.internal.nhwc", "com.microsoft.nchwc")


@dataclass(slots=True)
class Value:
    """A tensor by name. shape: at this batch, None if unknown. data: elements of a small constant. origin: of
    a constant that was computed from others, what tells how; two of one origin are equal."""

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    symbols: Symbols | None
    data: np.ndarray[Any, Any] | None = None
    bounded: bool = False
    origin: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; 0 if the shape is unknown."""
        if self.shape is None or not self.dtype:
            return 0
        count = 1
        for size in self.shape:
            count *= size
        return nbytes_of(count, self.dtype)


@dataclass(slots=True)
class Node:
    """One kernel call. counted: the branch of an If that is followed. provider: "cuda" or "cpu", set by
    `placement`."""

    index: int
    name: str
    op: str
    domain: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any] = field(default_factory=dict)
    bodies: dict[str, RuntimeGraph] = field(default_factory=dict)
    implicit: list[str] = field(default_factory=list)
    counted: str = ""
    provider: str = ""

    @property
    def operator(self) -> str:
        """The operator's name, behind its domain unless that is ONNX's own ("com.microsoft.FusedMatMul")."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    @property
    def kernel(self) -> str:
        """The operator whose kernel runs it, without the provider's own layout."""
        return self.op if self.domain.startswith(LAYOUT_DOMAINS) else self.operator

    def input(self, place: int) -> str:
        """Return the name of an input; "" where it is left out, as optional ones may be."""
        return self.inputs[place] if place < len(self.inputs) else ""

    def ints(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Return an integer-list attribute."""
        return tuple(self.attributes.get(name, default))


@dataclass(slots=True)
class RuntimeGraph:
    """Nodes by index, values by name. `inputs` excludes `initializers`, which it holds itself.

    release: of ONNX Runtime, whose rewrites these are. functions_first: whether functions are replaced by
    their bodies before anything else (`rewrite/bodies.py`).
    overridable: initializers that are only an input's default. outer: what a subgraph reads from around it;
    `fixed`: those of them that are constants there. `refusals`: why ONNX Runtime does not run it.
    """

    nodes: dict[int, Node]
    values: dict[str, Value]
    inputs: list[str]
    outputs: list[str]
    initializers: dict[str, None]
    opset: int
    next_index: int
    notes: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    outer: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()
    tokens: int = 0
    known: Callable[[str], Any] | None = None
    overridable: frozenset[str] = frozenset()
    functions_first: bool = False
    release: Release = RECORDED["onnxruntime"]

    def producers(self) -> dict[str, Node]:
        """Value name to the node that makes it."""
        return {name: node for node in self.nodes.values() for name in node.outputs if name}

    def consumers(self) -> dict[str, list[Node]]:
        """Value name to the nodes that read it, once a use, implicit uses included."""
        readers: dict[str, list[Node]] = {}
        for node in self.nodes.values():
            for name in (*node.inputs, *node.implicit):
                if name:
                    readers.setdefault(name, []).append(node)
        return readers

    def add(
        self,
        name: str,
        op: str,
        inputs: list[str],
        outputs: list[str],
        attributes: dict[str, Any] | None = None,
        domain: str = "",
    ) -> Node:
        """Add a node with the next index; indices are never used twice."""
        node = Node(self.next_index, name, op, domain, inputs, outputs, attributes or {})
        self.nodes[node.index] = node
        self.next_index += 1
        return node

    def is_constant(self, name: str) -> bool:
        """Return whether the value is an initializer that cannot be overridden, also around a subgraph."""
        return (name in self.initializers and name not in self.overridable) or name in self.fixed

    def constant(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the elements of a constant, None if it is none or they are not known."""
        if not self.is_constant(name):
            return None
        value = self.values[name]
        if value.data is None and self.known is not None:
            value.data = self.known(name)
        return value.data

    def origin(self, name: str) -> str:
        """Return a key of a constant's contents: equal keys mean equal elements."""
        value = self.values[name]
        return value.origin or name

    def integers(self, name: str) -> list[int] | None:
        """Return the elements of a constant of whole numbers (axes, sizes), None if they are not known."""
        data = self.constant(name)
        return None if data is None else [int(element) for element in data.reshape(-1)]

    def axes(self, node: Node, place: int = 1) -> list[int] | None:
        """Return the axes of a node's attribute or constant input; None if absent or unknown."""
        return list(node.ints("axes")) if "axes" in node.attributes else self.integers(node.input(place))

    def new_constant(self, stem: str, data: np.ndarray[Any, Any]) -> str:
        """Add a constant of the optimizer's; return its name."""
        name = self.fresh(stem)
        shape = tuple(int(size) for size in data.shape)
        self.values[name] = Value(name, str(data.dtype), shape, shape, data)
        self.initializers[name] = None
        return name

    def fresh(self, stem: str) -> str:
        """Return an unused value name."""
        name = stem
        while name in self.values:
            self.tokens += 1
            name = f"{stem}_token_{self.tokens}"
        return name

    def walk(self) -> Iterator[Node]:
        """Yield every node, including those of subgraphs."""
        for node in self.nodes.values():
            yield node
            for body in node.bodies.values():
                yield from body.walk()
