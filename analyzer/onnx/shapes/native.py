"""ONNX's own shape inference, called so that no file can make it run away.

1. `infer_graph` runs it over a whole graph: first without data propagation; then, if anything is still
   unknown and `symbolic` is off, once more with it over the nodes that can take part in shape arithmetic.
   (Data propagation spells out a dimension for every element of a 1-D tensor, so large ones are kept away
   from it: `LARGEST_PROPAGATED`.)
2. ONNX Runtime's view (`symbolic`) is the first run with the file's value_info: its graph resolution calls
   the same functions and merges the same way, without propagation (`graph.cc`, `InferAndVerifyTypeMatch`). It
   does not look into initializers that a caller may override. A shape of thousands of dimensions (an input
   bound to a huge batch, read as a shape) is refused before.
3. `infer_node` runs it on one node, told the constants the node reads; a contradiction is a `NodeError`.
4. Dimension names inference makes up for unknown sizes are dropped; initializers whose contents are absent
   are passed as inputs, so that their contents are not missed.

Source: `onnx/shape_inference/implementation.cc`, onnx 1.23.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.errors import InputError
from analyzer.onnx.structure import Structure, check_rank
from analyzer.onnx.types import ValueType, display, element_count, from_type_proto, to_type_proto
from analyzer.onnx.values import Values

LARGEST_PROPAGATED = 4096  # elements
_NUMBERS = frozenset({"int64", "int32", "bool"})  # what shape arithmetic is done in


@dataclass(frozen=True, slots=True)
class Context:
    """Constants of one inference. `symbolic`: ONNX Runtime's view. `rebound`: the hard-coded batch, if any.

    `assumed`: what the user says of conditions, by the value's or the If node's name; `numbers`: what is in
    inputs of one element.
    """

    opsets: Mapping[str, int]
    ir_version: int
    folder: Path | None = None
    symbolic: bool = False
    symbols: Mapping[str, int] = field(default_factory=dict)
    rebound: int | None = None
    batch: int | None = None
    assumed: Mapping[str, bool] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return self.opsets.get("", self.opsets.get("ai.onnx", 9))


class NodeError(Exception):
    """A node's inputs contradict each other."""


def infer_graph(
    structure: Structure, types: Mapping[str, ValueType], context: Context
) -> dict[str, ValueType]:
    """Types of the nodes' results, as far as ONNX finds them, with data propagation where it is safe.

    `types`: inputs and initializers.
    """
    names = dimension_names(types.values())
    declared: dict[str, ValueType] = {}
    if context.symbolic:
        declared = {name: value for name, value in structure.declared.items() if name in structure.producers}
        names |= dimension_names(declared.values())
    inferred = _run_nodes(structure, structure.nodes, types, context, declared=declared)
    if not context.symbolic and any(
        not inferred[name].known for name in structure.producers if name in inferred
    ):
        nodes = [
            node for node in structure.nodes if any(_propagates(inferred.get(name)) for name in node.output)
        ]
        more = _run_nodes(structure, nodes, {**types, **inferred}, context, data_prop=True)
        inferred |= {name: value for name, value in more.items() if value.known}
    return {name: without_made_up_names(value, names) for name, value in inferred.items()}


def _propagates(value: ValueType | None) -> bool:
    """Return whether data propagation may need, or find, the value."""
    if value is None or value.shape is None:
        return True
    if len(value.shape) < 2 and value.dtype not in _NUMBERS:
        return False
    return value.sizes is None or (
        value.dtype in _NUMBERS and element_count(value.sizes) <= LARGEST_PROPAGATED
    )


def _run_nodes(
    structure: Structure,
    nodes: list[Any],
    types: Mapping[str, ValueType],
    context: Context,
    *,
    declared: Mapping[str, ValueType] | None = None,
    data_prop: bool = False,
) -> dict[str, ValueType]:
    """Run ONNX's inference on some nodes alone; return the types of their results."""
    import onnx

    for node in nodes:
        check_rank(node, lambda name: types[name].shape if name in types else None)
    graph = onnx.GraphProto(name="g", node=nodes)
    outputs = {name for node in nodes for name in node.output}
    for name, value in types.items():
        tensor = structure.initializers.get(name)
        constant = tensor is not None and not (context.symbolic and name in structure.overridable)
        if constant and has_data(tensor) and element_count(value.sizes or ()) <= LARGEST_PROPAGATED:
            graph.initializer.append(tensor)
            # Tensors of Constant nodes carry no name, or another.
            graph.initializer[-1].name = name
        elif name and name not in outputs:
            if (
                data_prop
                and value.sizes is not None
                and len(value.sizes) == 1
                and value.sizes[0] > LARGEST_PROPAGATED
            ):
                value = ValueType(value.dtype, None)  # noqa: PLW2901
            graph.input.append(onnx.ValueInfoProto(name=name, type=to_type_proto(value)))
    declared = declared or {}
    final = frozenset(structure.outputs)
    for name in structure.outputs:
        if name in outputs:
            kind = to_type_proto(declared[name]) if name in declared and declared[name].dtype else None
            graph.output.append(onnx.ValueInfoProto(name=name, type=kind))
    graph.value_info.extend(
        onnx.ValueInfoProto(name=name, type=to_type_proto(value))
        for name, value in declared.items()
        if name not in final and value.dtype
    )
    try:
        inferred = _infer(graph, context, strict=False, data_prop=data_prop)
    except NodeError as error:
        raise InputError(
            f"ONNX cannot infer this model's shapes: {error}",
            "check the given shapes, or export the model again",
        ) from None
    items = (*inferred.graph.value_info, *inferred.graph.output)
    return {item.name: from_type_proto(item.type) for item in items if item.name in outputs}


def infer_node(
    node: Any, types: Mapping[str, ValueType], values: Values | None, context: Context, names: Collection[str]
) -> dict[str, ValueType]:
    """Types of one node's results, from the constants it reads.

    `names`: the dimension names that mean something. Raises NodeError.
    """
    import onnx

    check_rank(node, lambda name: types[name].shape if name in types else None)
    graph = onnx.GraphProto(name="n", node=[node])
    for name in dict.fromkeys(node.input):
        value = types.get(name)
        if not name or value is None:
            continue
        array = None
        if values is not None and (value.sizes is None or element_count(value.sizes) <= LARGEST_PROPAGATED):
            array = values.get(name)
        if array is not None and array.size <= LARGEST_PROPAGATED and array.dtype.kind in "biuf":
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        else:
            graph.input.append(onnx.ValueInfoProto(name=name, type=to_type_proto(value)))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    inferred = _infer(graph, context, strict=True, data_prop=False)
    result = {}
    # A name that means something came with an operand; one made up for this node may be spelt like another
    # value's.
    symbols = dimension_names(types[name] for name in node.input if types.get(name) is not None)
    for item in (*inferred.graph.value_info, *inferred.graph.output):
        value = without_made_up_names(from_type_proto(item.type), symbols.intersection(names))
        if value.dtype or value.proto is not None:
            result[item.name] = value
    return result


def _infer(graph: Any, context: Context, *, strict: bool, data_prop: bool) -> Any:
    """Return the graph with ONNX's own inference run on it. Raises NodeError with ONNX's reason."""
    import onnx

    model = onnx.ModelProto(ir_version=context.ir_version, graph=graph)
    model.opset_import.extend(
        onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in context.opsets.items()
    )
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=data_prop)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, MemoryError) as error:
        # The last, specific part of ONNX's message, on one line.
        text = display(" ".join(str(error).split()))
        raise NodeError(text.rsplit("] ", 1)[-1] or "no reason given") from None


def has_data(tensor: Any) -> bool:
    """Return whether a tensor's contents are in the proto (not left out, not external)."""
    whole = (tensor.int32_data, tensor.int64_data, tensor.uint64_data)
    others = (tensor.raw_data, tensor.float_data, tensor.double_data, tensor.string_data)
    return tensor.data_location != 1 and (any((*whole, *others)) or 0 in tensor.dims)


def dimension_names(values: Iterable[ValueType]) -> set[str]:
    """Return all dimension names in these types."""
    return {size for value in values for size in value.shape or () if isinstance(size, str) and size}


def without_made_up_names(value: ValueType, names: Collection[str]) -> ValueType:
    """Return the type with every dimension name that is not among `names` unknown: inference made it up."""
    if value.shape is None or all(isinstance(size, int) or size in names for size in value.shape):
        return value
    shape = tuple(size if isinstance(size, int) or size in names else "" for size in value.shape)
    return ValueType(value.dtype, shape, value.kind, value.proto)
