"""The bare structure of an ONNX graph: who makes each value, in an order in which everything is made before
it is read.

1. Nodes keep file order where that is a topological order, otherwise they are sorted stably (ONNX Runtime
   sorts too).
2. Constant nodes are initializers: ONNX Runtime stores them so. Sparse initializers count dense, as it
   unpacks them.
3. Every value has one maker. A value made twice, read but never made, or depending on itself is a
   TargetError.
4. Subgraphs (If, Loop, Scan, SequenceMap) are structures of their own that may read (`captured`) outer
   values.
5. A node without what its operator demands (`node`) is a TargetError.
6. An initializer that is a graph input as well is, from IR version 4 on, only the input's default: a caller
   may give another value, so it is no constant (`overridable`). Up to IR version 3 every initializer had to
   be an input.

Source: IR specification of ONNX (`docs/IR.md`), single static assignment, name scopes, initializers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.errors import TargetError
from analyzer.graph import nbytes_of
from analyzer.onnx.file import read_external
from analyzer.onnx.node import DAMAGED, DEFAULT_DOMAINS, check_node, node_name
from analyzer.onnx.types import (
    DTYPES,
    Shape,
    ValueType,
    display,
    display_shape,
    element_count,
    from_type_proto,
)
from analyzer.onnx.values import constant_tensor

_INTEGERS = (6, 7)  # int32, int64: the tensors that decide shapes
_DEEPEST = 50
Scope = tuple[Container[str], ...]  # names, in any of these
OVERRIDABLE_IR = 4  # from this IR version on, an initializer that is an input is only its default


@dataclass(slots=True)
class Structure:
    """One graph. `initializers` are TensorProtos by name; `declared` the types the file declares for values.

    overridable: initializers that are an input's default, and so no constants.
    """

    nodes: list[Any]
    producers: dict[str, Any]
    initializers: dict[str, Any]
    inputs: dict[str, ValueType]
    outputs: tuple[str, ...]
    declared: dict[str, ValueType]
    subgraphs: dict[int, dict[str, Structure]] = field(default_factory=dict)
    captured: tuple[str, ...] = ()
    overridable: frozenset[str] = frozenset()


def prepare(
    graph: Any,
    opset: int,
    folder: Path | None = None,
    outer: Scope = (),
    depth: int = 0,
    *,
    ir_version: int = OVERRIDABLE_IR,
) -> Structure:
    """Return the structure of a `GraphProto`. opset: version of ONNX's own operators; outer: values visible
    around a subgraph, of each graph by itself (5,000 subgraphs would each copy the names of the graph they
    are in); ir_version: of the file.

    Raises TargetError for a value without one maker, and for a node without what its operator demands.
    """
    if depth > _DEEPEST:
        raise TargetError(f"subgraphs are nested more than {_DEEPEST} deep", "export the model again")
    for tensor in graph.initializer:
        _check_data(tensor)
    initializers = {tensor.name: _readable(tensor, folder) for tensor in graph.initializer}
    initializers |= {sparse.values.name: _dense(sparse) for sparse in graph.sparse_initializer}
    if len(initializers) != len(graph.initializer) + len(graph.sparse_initializer):
        raise _duplicate_error([tensor.name for tensor in graph.initializer], "initializer")
    inputs = {item.name: from_type_proto(item.type) for item in graph.input}
    if len(inputs) != len(graph.input):
        raise _duplicate_error([item.name for item in graph.input], "input")
    overridable = frozenset(inputs) & initializers.keys() if ir_version >= OVERRIDABLE_IR else frozenset()
    inputs = {name: value for name, value in inputs.items() if name not in initializers}
    producers: dict[str, Any] = {}
    nodes: list[Any] = []

    def shape_of(name: str) -> Shape | None:
        if name in initializers:
            return tuple(initializers[name].dims)
        return inputs[name].shape if name in inputs else None

    for node in graph.node:
        check_node(node, opset)
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS and len(node.output) == 1:
            tensor = constant_tensor(node)
            if tensor is not None:
                _check_unique_producer(node.output[0], node, producers, initializers, inputs)
                initializers[node.output[0]] = _readable(tensor, folder)
                continue
        for name in node.output:
            if name:
                _check_unique_producer(name, node, producers, initializers, inputs)
                producers[name] = node
        nodes.append(node)
        check_rank(node, shape_of)
    scope: Scope = (inputs, initializers, *outer)
    visible: Scope = (producers, *scope)
    subgraphs: dict[int, dict[str, Structure]] = {}
    for node in nodes:
        _check_subgraphs(node)
        inner = {
            attribute.name: prepare(attribute.g, opset, folder, visible, depth + 1, ir_version=ir_version)
            for attribute in node.attribute
            if attribute.HasField("g")
        }
        if inner:
            subgraphs[id(node)] = inner
    reads = {id(node): _reads(node, subgraphs.get(id(node), {})) for node in nodes} if subgraphs else {}
    order = _ordered(nodes, scope, reads, producers)
    outputs = tuple(item.name for item in graph.output)
    for name in outputs:
        if not _is_in(visible, name):
            raise TargetError(f"output {display(name)!r} is made by no node", "export the model again")
    declared = {item.name: from_type_proto(item.type) for item in (*graph.value_info, *graph.output)}
    own = (producers, initializers, inputs)
    used = {name for node in order for name in reads.get(id(node)) or node.input if name} | set(outputs)
    captured = tuple(sorted(name for name in used if not _is_in(own, name))) if depth else ()
    places = {id(node): place for place, node in enumerate(order)}
    nested = {places[key]: inner for key, inner in subgraphs.items()}
    values = (initializers, inputs, outputs, declared)
    return Structure(order, producers, *values, nested, captured, overridable)


def _is_in(scope: Scope, name: str) -> bool:
    return any(name in names for names in scope)


def _check_subgraphs(node: Any) -> None:
    """Refuse two subgraphs of one name, and branches of an If with inputs."""
    graphs = [attribute for attribute in node.attribute if attribute.HasField("g")]
    if len({attribute.name for attribute in graphs}) < len(graphs):
        raise TargetError(f"{node_name(node)} has two subgraphs of one name", DAMAGED)
    if node.op_type == "If" and any(attribute.g.input for attribute in graphs):
        raise TargetError(f"a branch of {node_name(node)} has inputs, which a branch cannot have", DAMAGED)


def reads(structure: Structure, place: int) -> tuple[str, ...]:
    """Return the outer values that node `place`'s subgraphs read besides its inputs."""
    inner = structure.subgraphs.get(place, {})
    return tuple(dict.fromkeys(name for sub in inner.values() for name in sub.captured))


def _reads(node: Any, inner: Mapping[str, Structure]) -> list[str]:
    return [*node.input, *(name for sub in inner.values() for name in sub.captured)]


def _check_unique_producer(
    name: str,
    node: Any,
    producers: Mapping[str, Any],
    initializers: Mapping[str, Any],
    inputs: Mapping[str, Any],
) -> None:
    """Raise TargetError if another node, an initializer or an input has the same name."""
    if name in producers or name in initializers or name in inputs:
        first = producers.get(name)
        other = (
            node_name(first)
            if first is not None
            else "an initializer"
            if name in initializers
            else "an input"
        )
        raise TargetError(
            f"value {display(name)!r} is made twice: by {other} and by {node_name(node)}",
            "every name may be made once: export the model again, or rename one",
        )


def _duplicate_error(names: list[str], what: str) -> TargetError:
    known: set[str] = set()
    twice = (name for name in names if name in known or known.add(name))  # type: ignore[func-returns-value]
    name = next(twice, names[0] if names else "")
    return TargetError(f"two {what}s are called {display(name)!r}", "export the model again, or rename one")


def _ordered(
    nodes: list[Any], scope: Scope, reads: Mapping[int, list[str]], producers: Mapping[str, Any]
) -> list[Any]:
    """Return the nodes in an order that makes values before they are read, in file order if possible."""
    done = {""}
    for node in nodes:
        if not all(name in done or _is_in(scope, name) for name in reads.get(id(node)) or node.input):
            break
        done.update(node.output)
    else:
        return nodes
    done = {""}
    place = {id(node): position for position, node in enumerate(nodes)}
    readers: dict[int, list[int]] = {}
    open_count = [0] * len(nodes)
    for position, node in enumerate(nodes):
        for name in set(reads.get(id(node)) or node.input):
            if not name or _is_in(scope, name):
                continue
            maker = producers.get(name)
            if maker is None:
                raise TargetError(
                    f"{node_name(node)} reads {display(name)!r}, which nothing makes",
                    "export the model again; a cut-out subgraph needs its inputs declared",
                )
            open_count[position] += 1
            readers.setdefault(place[id(maker)], []).append(position)
    ready = [position for position, count in enumerate(open_count) if not count]
    order: list[Any] = []
    while ready:
        position = heapq.heappop(ready)
        order.append(nodes[position])
        done.update(nodes[position].output)
        for reader in readers.get(position, ()):
            open_count[reader] -= 1
            if not open_count[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(nodes):
        raise _cycle_error(
            next(node for node, count in zip(nodes, open_count, strict=True) if count),
            (done, *scope),
            reads,
            producers,
        )
    return order


def _cycle_error(
    node: Any, done: Scope, reads: Mapping[int, list[str]], producers: Mapping[str, Any]
) -> TargetError:
    """Return the error for a graph with a cycle, found by walking back from a node that is never ready."""
    visited: dict[int, Any] = {}
    while id(node) not in visited:
        visited[id(node)] = node
        name = next(name for name in reads.get(id(node)) or node.input if not _is_in(done, name))
        node = producers[name]
    path = list(visited.values())[list(visited).index(id(node)) :]
    cycle = " <- ".join(node_name(item) for item in path[:5])
    return TargetError(
        f"the graph has a cycle: {cycle}", "a model's graph must be acyclic: export the model again"
    )


# Operators whose input at a position has an element for each dimension of a tensor.
_SHAPE_INPUTS = {
    "ConstantOfShape": 0,
    "Expand": 1,
    "Pad": 1,
    "Reshape": 1,
    "Resize": 3,
    "Tile": 1,
    "Unsqueeze": 1,
}
_LARGEST_RANK = 1024


def check_rank(node: Any, shape_of: Callable[[str], Shape | None]) -> None:
    """Refuse shapes of thousands of dimensions, which inference would expand."""
    place = _SHAPE_INPUTS.get(node.op_type)
    if place is None or place >= len(node.input):
        return
    shape = shape_of(node.input[place])
    if shape and isinstance(shape[0], int) and shape[0] > _LARGEST_RANK:
        raise TargetError(
            f"{node_name(node)} takes a shape of {shape[0]} dimensions", "export the model again"
        )


def _check_data(tensor: Any) -> None:
    """Refuse a tensor whose contents do not match its shape (contents left out are fine)."""
    value = tensor_type(tensor)
    if tensor.raw_data and tensor.data_location != 1:
        expected = nbytes_of(element_count(value.sizes or ()), value.dtype)
        if len(tensor.raw_data) != expected:
            raise TargetError(
                f"initializer {display(tensor.name)!r} holds {len(tensor.raw_data)} bytes, its shape "
                f"{display_shape(value.shape)} of {value.dtype} needs {expected}",
                DAMAGED,
            )


def _readable(tensor: Any, folder: Path | None) -> Any:
    """Return the tensor, with its data taken from the external file if it may decide shapes."""
    if tensor.data_location == 1 and tensor.data_type in _INTEGERS:
        data = read_external(tensor, folder)
        if data is not None:
            import onnx

            return onnx.TensorProto(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=data
            )
    return tensor


def _dense(sparse: Any) -> Any:
    import onnx

    return onnx.TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=sparse.dims)


def tensor_type(tensor: Any) -> ValueType:
    """Return an initializer's type. Raises TargetError for an impossible shape or type."""
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None or any(size < 0 for size in tensor.dims):
        raise TargetError(
            f"initializer {display(tensor.name)!r} has element type {tensor.data_type} and shape"
            f" {list(tensor.dims)}",
            "the file is damaged, or made by a newer ONNX: upgrade the onnx package",
        )
    return ValueType(dtype, tuple(tensor.dims))
