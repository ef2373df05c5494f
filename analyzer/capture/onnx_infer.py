"""Shapes of every value of one ONNX graph, for given input shapes.

1. ONNX's own inference runs over the whole graph first, with data propagation. (ONNX Runtime's view, `symbolic`, is
   without: its graph resolution calls the same functions but propagates no values, and keeps the file's value_info.)
2. Then every node in order whose results are not known yet is repaired: control flow by its body
   (`onnx_control`), contrib operators by rule (`onnx_contrib`), the rest by ONNX's inference again with the constants
   that `onnx_values` can compute, then by bound (`onnx_bounds`).
3. A result that depends on data gets its largest possible size; one that nothing is known of gets what the file
   declares, else the size of the node's largest input. Either is noted by name, and so is everything derived from it.
4. A node whose inputs contradict each other is an error with its name; so is a Reshape that changes the number of
   elements, which ONNX's inference lets pass.

Not modelled: dimensions above 2^63 (batches that large are extrapolated, `onnx_shapes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.capture.onnx_structure import DEFAULT_DOMAINS, Structure, node_name, tensor_type
from analyzer.capture.onnx_types import (
    ValueType,
    display,
    display_shape,
    element_count,
    from_type_proto,
    to_type_proto,
)
from analyzer.capture.onnx_values import Values
from analyzer.errors import AnalyzerError, InputError

_CONSTANT_COUNT = 4096  # elements of a constant worth telling inference about
_INFERENCE_HINT = "check the given shapes; a size baked in at export must be exported as dynamic"


@dataclass(frozen=True, slots=True)
class Context:
    """What stays the same over a model. `symbolic`: ONNX Runtime's view. `rebound`: the hard-coded batch, if any."""

    opsets: Mapping[str, int]
    ir_version: int
    folder: Path | None = None
    symbolic: bool = False
    symbols: Mapping[str, int] = field(default_factory=dict)
    rebound: int | None = None
    batch: int | None = None


@dataclass(slots=True)
class Inferred:
    """Types of one graph's values; `inexact` values are bounds or guesses.

    children: types inside the subgraphs of the node at a place, by attribute. chosen: the branch an If is counted as.
    """

    types: dict[str, ValueType]
    notes: list[str] = field(default_factory=list)
    children: dict[int, dict[str, Inferred]] = field(default_factory=dict)
    inexact: set[str] = field(default_factory=set)
    chosen: dict[int, str] = field(default_factory=dict)
    values: Values | None = None


def infer(
    structure: Structure, given: Mapping[str, ValueType], context: Context, outer: Values | None = None
) -> Inferred:
    """Types of all values. `given`: inputs, and for a subgraph the outer values it reads. Raises AnalyzerError (rule 4)."""
    result = Inferred(dict(given))
    for name, tensor in structure.initializers.items():
        result.types[name] = tensor_type(tensor)
    result.values = Values(
        structure.initializers,
        structure.producers,
        result.types.get,
        folder=context.folder,
        opsets=dict(context.opsets),
        outer=outer,
    )
    _whole(structure, result, context)
    _repair(structure, result, context)
    return result


def _whole(structure: Structure, result: Inferred, context: Context) -> None:
    """Rule 1."""
    import onnx

    graph = onnx.GraphProto(name="g", node=structure.nodes)
    own = {"", *structure.producers}
    for name, value in result.types.items():
        tensor = structure.initializers.get(name)
        if tensor is not None and has_data(tensor):
            graph.initializer.append(tensor)
        elif name not in own:
            graph.input.append(onnx.ValueInfoProto(name=name, type=to_type_proto(value)))
    for name in structure.outputs:
        declared = structure.declared[name] if context.symbolic else ValueType("", None)
        graph.output.append(
            onnx.ValueInfoProto(name=name, type=to_type_proto(declared) if declared.dtype else None)
        )
    names = {size for value in result.types.values() for size in value.shape or () if isinstance(size, str)}
    if context.symbolic:
        names |= {
            size
            for value in structure.declared.values()
            for size in value.shape or ()
            if isinstance(size, str)
        }
        graph.value_info.extend(
            onnx.ValueInfoProto(name=name, type=to_type_proto(value))
            for name, value in structure.declared.items()
            if name in structure.producers and name not in structure.outputs and value.dtype
        )
    inferred = _run_inference(graph, context, strict=False, data_prop=not context.symbolic)
    for item in (*inferred.graph.value_info, *inferred.graph.output):
        if item.name in structure.producers:
            result.types[item.name] = _anonymous(from_type_proto(item.type), names)


def _run_inference(graph: Any, context: Context, strict: bool, data_prop: bool) -> Any:
    import onnx

    model = onnx.ModelProto(ir_version=context.ir_version, graph=graph)
    model.opset_import.extend(
        onnx.OperatorSetIdProto(domain=domain, version=version) for domain, version in context.opsets.items()
    )
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=data_prop)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, MemoryError) as error:
        if strict:
            raise
        raise InputError(
            f"ONNX cannot infer this model's shapes: {_message(error)}", _INFERENCE_HINT
        ) from None


def has_data(tensor: Any) -> bool:
    """Whether a tensor's contents are in the proto (they may have been left out on loading, or lie outside)."""
    return tensor.data_location != 1 and bool(
        tensor.raw_data or tensor.int64_data or tensor.float_data or tensor.int32_data or tensor.double_data
        or tensor.uint64_data or tensor.string_data or 0 in tensor.dims
    )  # fmt: skip


def _anonymous(value: ValueType, names: Iterable[str]) -> ValueType:
    """The type without the names that inference made up for unknown dimensions."""
    if value.shape is None or all(isinstance(size, int) or size in names for size in value.shape):
        return value
    shape = tuple(size if isinstance(size, int) or size in names else "" for size in value.shape)
    return ValueType(value.dtype, shape, value.kind, value.proto)


def _repair(structure: Structure, result: Inferred, context: Context) -> None:
    """Rules 2 to 4."""
    changed: set[str] = set()
    for place, node in enumerate(structure.nodes):
        outputs = [name for name in node.output if name]
        types = result.types
        settled = all(name in types and types[name].known for name in outputs)
        if place in structure.subgraphs and _control(structure, place, result, context):
            changed.update(outputs)
            continue
        if settled:
            if not context.symbolic and node.op_type == "Reshape" and node.domain in DEFAULT_DOMAINS:
                _check_reshape(node, result, context)
            continue
        default = node.domain in DEFAULT_DOMAINS
        if (
            context.symbolic
            and default
            and not any(name in changed for name in node.input)
            and outputs[0] in types
        ):
            continue
        before = [types.get(name) for name in outputs]
        _repair_node(node, structure, result, context)
        changed.update(name for name, old in zip(outputs, before, strict=True) if types.get(name) != old)


def _control(structure: Structure, place: int, result: Inferred, context: Context) -> bool:
    from analyzer.capture import onnx_control

    return onnx_control.infer_control(structure, place, result, context, infer)


def _repair_node(node: Any, structure: Structure, result: Inferred, context: Context) -> None:
    """Find the types of one node's results, whatever it takes (rules 2 and 3)."""
    from analyzer.capture import onnx_bounds, onnx_contrib

    types = result.types
    outputs = list(node.output)
    inputs = [types.get(name) if name else None for name in node.input]
    inexact = any(name in result.inexact for name in node.input)
    found: dict[str, ValueType] = {}
    problem = ""

    def delegate(stand_in: Any) -> dict[str, ValueType]:
        return single(stand_in, types, result.values, context)

    try:
        if node.domain in DEFAULT_DOMAINS and not onnx_contrib.overrides(node):
            found = delegate(node)
        else:
            found = onnx_contrib.infer_contrib(node, inputs, delegate)
    except _NodeError as error:
        problem = str(error)
    if context.symbolic:
        for name in filter(None, outputs):
            if name in found:
                types[name] = found[name]
            elif name not in types and name in structure.declared:
                types[name] = structure.declared[name]
        return
    if problem and not inexact:
        raise _contradiction(node, inputs, problem, structure, context)
    bounds = onnx_bounds.bounds(node, inputs, result.values.get if result.values else (lambda _: None))
    for position, name in enumerate(outputs):
        if not name:
            continue
        value = found.get(name)
        if value is None or not value.known:
            exact = result.values.get(name) if result.values is not None and value is not None else None
            if exact is not None and value is not None:
                value = ValueType(value.dtype, tuple(exact.shape))
            elif position in bounds:
                bound = bounds[position]
                value = ValueType(
                    bound.dtype or (value.dtype if value else ""),
                    bound.shape,
                    bound.kind,
                    value.proto if value else None,
                )
                if bound.kind == "tensor":
                    result.inexact.add(name)
                    result.notes.append(
                        f"{node_name(node)}: the shape of {display(name)!r} depends on data; "
                        f"counted at its largest, {display_shape(value.shape)}"
                    )
            else:
                declared = structure.declared.get(name)
                dtype = (value.dtype if value else "") or (declared.dtype if declared else "")
                value = _as_declared(declared, context) or _guessed(node, name, dtype, result)
                result.inexact.add(name)
        elif inexact:
            result.inexact.add(name)
        types[name] = value
    if node.op_type == "Reshape" and node.domain in DEFAULT_DOMAINS:
        _check_reshape(node, result, context)


def _as_declared(declared: ValueType | None, context: Context) -> ValueType | None:
    """The type the file declares, its names bound, if that makes it known (rule 3)."""
    if declared is None or declared.shape is None:
        return None
    shape = tuple(
        context.symbols.get(size, size) if isinstance(size, str) else size for size in declared.shape
    )
    if context.rebound is not None and context.batch is not None and shape[:1] == (context.rebound,):
        shape = (context.batch, *shape[1:])
    value = ValueType(declared.dtype, shape, declared.kind, declared.proto)
    return value if value.known else None


def _guessed(node: Any, name: str, dtype: str, result: Inferred) -> ValueType:
    """A type like the largest input's, for a result nothing is known of (rule 3); `dtype` if that is known."""
    inputs = [result.types[item] for item in node.input if item in result.types]
    tensors = [item for item in inputs if item.sizes is not None]
    largest = max(tensors, key=lambda item: element_count(item.sizes or ()), default=ValueType("float32", ()))
    dtype = dtype or largest.dtype
    result.notes.append(
        f"{node_name(node)}: nothing is known of the shape of {display(name)!r}; "
        f"counted like its largest input, {dtype} {display_shape(largest.shape)}, which is a guess, not a bound"
    )
    return ValueType(dtype, largest.shape)


class _NodeError(Exception):
    """A node's inputs contradict each other."""


def single(
    node: Any, types: Mapping[str, ValueType], values: Values | None, context: Context
) -> dict[str, ValueType]:
    """ONNX's inference of one node, told the constants it reads. Raises _NodeError on a contradiction."""
    import onnx

    graph = onnx.GraphProto(name="n", node=[node])
    for name in dict.fromkeys(node.input):
        value = types.get(name)
        if not name or value is None:
            continue
        array = None
        if values is not None and (value.sizes is None or element_count(value.sizes) <= _CONSTANT_COUNT):
            array = values.get(name)
        if array is not None and array.size <= _CONSTANT_COUNT and array.dtype.kind in "biuf":
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        else:
            graph.input.append(onnx.ValueInfoProto(name=name, type=to_type_proto(value)))
    for name in node.output:
        if name:
            graph.output.append(onnx.ValueInfoProto(name=name))
    try:
        inferred = _run_inference(graph, context, strict=True, data_prop=not context.symbolic)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError, MemoryError) as error:
        raise _NodeError(_message(error)) from None
    names = (
        {size for value in types.values() for size in value.shape or () if isinstance(size, str)}
        if context.symbolic
        else ()
    )
    found = {}
    for item in (*inferred.graph.value_info, *inferred.graph.output):
        value = _anonymous(from_type_proto(item.type), names)
        if value.dtype or value.proto is not None:
            found[item.name] = value
    return found


def _message(error: Exception) -> str:
    """The last, specific part of ONNX's message, on one line."""
    text = display(" ".join(str(error).split()))
    return text.rsplit("] ", 1)[-1] or "no reason given"


def _check_reshape(node: Any, result: Inferred, context: Context) -> None:
    """Rule 4: a Reshape keeps the number of elements."""
    source, target = result.types.get(node.input[0]), result.types.get(node.output[0])
    if source is None or target is None or source.sizes is None or target.sizes is None:
        return
    if element_count(source.sizes) == element_count(target.sizes):
        return
    if node.input[0] in result.inexact or node.output[0] in result.inexact:
        result.inexact.add(node.output[0])
        return
    raise InputError(
        f"{node_name(node)} cannot hold {display_shape(source.shape)} as {display_shape(target.shape)}"
        + (f" at batch {context.batch}" if context.batch else ""),
        "a batch is baked into its shape: export with a dynamic batch (torch.onnx.export(..., dynamic_shapes=... or "
        "dynamic_axes=...)) and reshape with -1 or x.shape[0] in front instead of a number",
    )


def _contradiction(
    node: Any, inputs: list[ValueType | None], problem: str, structure: Structure, context: Context
) -> AnalyzerError:
    shapes = ", ".join(display_shape(item.shape) if item is not None else "?" for item in inputs)
    hint = _INFERENCE_HINT
    absent = [
        name
        for name in node.input
        if name in structure.initializers and structure.initializers[name].data_location == 1
    ]
    if absent and node.op_type in ("Reshape", "Expand", "Slice", "Resize", "Tile", "ConstantOfShape"):
        hint = f"its shape is stored in absent external data ({display(absent[0])}): keep small tensors in the file"
    elif context.rebound is not None:
        fixed = [
            display(item.name or item.output[0]) for item in structure.nodes if item.op_type == "Reshape"
        ][:3]
        hint = f"the export has a hard-coded batch of {context.rebound}: export with a dynamic batch" + (
            f"; look at the Reshape nodes before it ({', '.join(fixed)})" if fixed else ""
        )
    return InputError(f"{node_name(node)} does not fit its inputs {shapes}: {problem}", hint)


InferFunction = Callable[[Structure, Mapping[str, ValueType], Context, "Values | None"], Inferred]
