"""Shapes of every value of one ONNX graph, for given input shapes.

1. ONNX's own inference runs over the whole graph first (`native`).
2. Then every node in order whose results are not known yet is repaired: control flow by its body
   (`control`), contrib operators by rule (`contrib`), the rest by ONNX's inference again with the constants
   that `onnx_values` can compute, then by bound (`bounds`).
3. A result that depends on data gets its largest possible size; one that nothing is known of, and what
   follows from it, gets what the file declares, else the size of the node's largest input. Either is noted by
   name, and so is everything derived from it.
4. A node whose inputs contradict each other is an error with its name; so is a Reshape that changes the
   number of elements, which ONNX's inference lets pass.

Not modelled: dimensions above 2^63 (batches that large are extrapolated, `any_batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.errors import AnalyzerError, InputError, TargetError
from analyzer.onnx.node import DEFAULT_DOMAINS, node_name
from analyzer.onnx.shapes.native import Context, NodeError, dimension_names, infer_graph, infer_node
from analyzer.onnx.structure import Structure, tensor_type
from analyzer.onnx.types import ELEMENT_TYPES, ValueType, display, display_shape, element_count
from analyzer.onnx.values import Values

_INFERENCE_HINT = "check the given shapes; a size baked in at export must be exported as dynamic"


@dataclass(slots=True)
class Inferred:
    """Types of one graph's values; `inexact` values are bounds or guesses.

    children: types inside the subgraphs of the node at a place, by attribute. chosen: the branch an If is
    counted as.
    names: the dimension names that mean something.
    """

    types: dict[str, ValueType]
    notes: list[str] = field(default_factory=list)
    children: dict[int, dict[str, Inferred]] = field(default_factory=dict)
    inexact: set[str] = field(default_factory=set)
    chosen: dict[int, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    values: Values | None = None


def infer(
    structure: Structure, input_types: Mapping[str, ValueType], context: Context, outer: Values | None = None
) -> Inferred:
    """Types of all values. `input_types`: inputs, and for a subgraph the outer values it reads.

    Raises AnalyzerError for a node whose inputs contradict each other.
    """
    result = Inferred(dict(input_types))
    for name, tensor in structure.initializers.items():
        result.types[name] = tensor_type(tensor)
    # ONNX Runtime does not look into initializers that a caller may override; for this analysis the default
    # is the value.
    hidden = structure.overridable if context.symbolic else frozenset()
    given_numbers = {
        name: _number(name, result.types[name], context.numbers[name])
        for name in structure.inputs
        if name in context.numbers and outer is None
    }
    result.values = Values(
        {name: tensor for name, tensor in structure.initializers.items() if name not in hidden}
        | given_numbers,
        structure.producers,
        result.types.get,
        folder=context.folder,
        opsets=dict(context.opsets),
        outer=outer,
    )
    result.types |= infer_graph(structure, result.types, context)
    if context.symbolic:
        result.names = dimension_names((*result.types.values(), *structure.declared.values()))
    _repair(structure, result, context)
    return result


def _number(name: str, kind: ValueType, number: float) -> Any:
    """Return a one-element input as a tensor. Raises InputError for more elements or other types."""
    import numpy
    import onnx

    if kind.sizes is None or element_count(kind.sizes) != 1 or kind.dtype in ("string", ""):
        raise InputError(
            f"input {display(name)} is {kind.dtype} {display_shape(kind.shape)}, not one number",
            "leave --value out",
        )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(ELEMENT_TYPES[kind.dtype])
    return onnx.numpy_helper.from_array(numpy.full(kind.sizes, number, dtype), name)


def _repair(structure: Structure, result: Inferred, context: Context) -> None:
    """Repair every node without known results, in order; contradictions are errors."""
    changed: set[str] = set()
    for place, node in enumerate(structure.nodes):
        outputs = [name for name in node.output if name]
        types = result.types
        settled = all(name in types and types[name].known for name in outputs)
        if place in structure.subgraphs and _control(structure, place, result, context):
            if not context.symbolic and not all(name in types for name in outputs):
                raise TargetError(
                    f"{node_name(node)} has more results than its subgraph makes",
                    "the file is damaged: export it again",
                )
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
    from analyzer.onnx.shapes import control

    return control.infer_control(structure, place, result, context, infer)


def _merged(inferred: ValueType, declared: ValueType | None) -> ValueType:
    """Inferred, with the file's names for dimensions that inference says nothing of: what comes back from
    integers, which the file says nothing of, has the names it had before quantization. Recorded: ViT,
    DistilBERT and an encoder, quantized, on both providers; behind other operators the names are not taken
    up."""
    if (
        declared is None
        or inferred.shape is None
        or declared.shape is None
        or len(inferred.shape) != len(declared.shape)
    ):
        return inferred
    pairs = zip(inferred.shape, declared.shape, strict=True)
    return ValueType(inferred.dtype, tuple(old if new == "" else new for new, old in pairs))


def _repair_node(node: Any, structure: Structure, result: Inferred, context: Context) -> None:
    """Find a node's result types by its body, its rule, constants, a bound or a guess."""
    from analyzer.onnx.shapes import bounds, contrib

    types = result.types
    outputs = list(node.output)
    inputs = [types.get(name) if name else None for name in node.input]
    inexact = any(name in result.inexact for name in node.input)
    repaired: dict[str, ValueType] = {}
    problem = ""
    constant = result.values.get if result.values else (lambda _: None)

    def delegate(stand_in: Any) -> dict[str, ValueType]:
        return infer_node(stand_in, types, result.values, context, result.names)

    try:
        if node.domain in DEFAULT_DOMAINS and not contrib.overrides(node, context.opset):
            repaired = delegate(node)
        else:
            repaired = contrib.infer_contrib(node, inputs, delegate, constant)
    except NodeError as error:
        problem = str(error)
    if context.symbolic:
        for name in filter(None, outputs):
            if name in repaired:
                back = node.op_type == "DequantizeLinear"
                types[name] = (
                    _merged(repaired[name], structure.declared.get(name)) if back else repaired[name]
                )
            elif name not in types and name in structure.declared:
                types[name] = structure.declared[name]
        return
    if problem and not inexact:
        raise _contradiction_error(node, inputs, problem, structure, context)
    bound_of = bounds.bounds(node, inputs, constant)
    for position, name in enumerate(outputs):
        if not name:
            continue
        value = repaired.get(name)
        if value is None or not value.known:
            exact = result.values.get(name) if result.values is not None and value is not None else None
            if exact is not None and value is not None:
                value = ValueType(value.dtype, tuple(exact.shape))
            elif position in bound_of:
                bound = bound_of[position]
                value = ValueType(
                    bound.dtype or (value.dtype if value else ""),
                    bound.shape,
                    bound.kind,
                    value.proto if value else None,
                )
                if bound.kind == "tensor" and (node.op_type, position) not in bounds.EXACT:
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
            # The file's own type goes before one that follows from a bound or a guess.
            value = _as_declared(structure.declared.get(name), context) or value
            result.inexact.add(name)
        types[name] = value
    if node.op_type == "Reshape" and node.domain in DEFAULT_DOMAINS:
        _check_reshape(node, result, context)


def _as_declared(declared: ValueType | None, context: Context) -> ValueType | None:
    """Return the type the file declares, its names bound, if that makes it known."""
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
    """Return a type like the largest input's, for a result nothing is known of; `dtype` if that is known."""
    inputs = [result.types[item] for item in node.input if item in result.types]
    tensors = [item for item in inputs if item.sizes is not None]
    largest = max(tensors, key=lambda item: element_count(item.sizes or ()), default=ValueType("float32", ()))
    dtype = dtype or largest.dtype
    result.notes.append(
        f"{node_name(node)}: nothing is known of the shape of {display(name)!r}; counted like its largest"
        f" input, {dtype} {display_shape(largest.shape)}, which is a guess, not a bound: memory may be more"
    )
    return ValueType(dtype, largest.shape)


def _check_reshape(node: Any, result: Inferred, context: Context) -> None:
    """Raise an error if a Reshape changes the number of elements."""
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
        "a batch is baked into its shape: export with a dynamic batch (torch.onnx.export(...,"
        " dynamic_shapes=... or dynamic_axes=...)) and reshape with -1 or x.shape[0] in front instead of a"
        " number",
    )


def _contradiction_error(
    node: Any, inputs: list[ValueType | None], problem: str, structure: Structure, context: Context
) -> AnalyzerError:
    """Return the error for a node that does not fit its inputs, with the likeliest cause as hint."""
    shapes = ", ".join(display_shape(item.shape) if item is not None else "?" for item in inputs)
    hint = _INFERENCE_HINT
    absent = [
        name
        for name in node.input
        if name in structure.initializers and structure.initializers[name].data_location == 1
    ]
    if absent and node.op_type in ("Reshape", "Expand", "Slice", "Resize", "Tile", "ConstantOfShape"):
        hint = (
            f"its shape is stored in absent external data ({display(absent[0])}): keep small tensors in the"
            " file"
        )
    elif context.rebound is not None:
        fixed = [
            display(item.name or item.output[0]) for item in structure.nodes if item.op_type == "Reshape"
        ][:3]
        hint = f"the export has a hard-coded batch of {context.rebound}: export with a dynamic batch" + (
            f"; look at the Reshape nodes before it ({', '.join(fixed)})" if fixed else ""
        )
    return InputError(f"{node_name(node)} does not fit its inputs {shapes}: {problem}", hint)


InferFunction = Callable[[Structure, Mapping[str, ValueType], Context, "Values | None"], Inferred]
