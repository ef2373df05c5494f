"""Shapes through If, Loop and Scan: their bodies are graphs of their own.

1. **If**: both branches are inferred. A condition that follows from constants and shapes, or that the user
   assumes, chooses one; otherwise the one whose results take more bytes in all counts. A branch that these
   shapes do not fit cannot be taken, and is named. Where the branches' results differ in shape, the larger
   one is the bound, and noted.
2. **Loop**: the body is inferred once, with the shapes of the first iteration. A carried value that comes out
   with another shape is taken to grow (or shrink) by the same amount in each iteration, and the body is
   inferred again with the shapes of the last one. Scan outputs get the trip count in front. A trip count that
   is no constant is noted: the body then counts once, and its scan outputs as one iteration.
3. **Scan**: the body sees slices; scan outputs get the sequence's length at their axis.
4. In ONNX Runtime's view (`symbolic`) carried values have unknown shapes, as ONNX's Loop inference leaves
   them, and branches that differ make unknown dimensions.

Source: operator definitions of ONNX (`docs/Operators.md`; `onnx/defs/controlflow/`).
Not modelled: Scan of operator set 8 (with a batch axis), SequenceMap: results as declared or guessed, and
noted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, TargetError
from analyzer.graph import nbytes_of
from analyzer.onnx.node import DEFAULT_DOMAINS, node_name
from analyzer.onnx.structure import Structure
from analyzer.onnx.types import ValueType, display, display_shape, element_count

if TYPE_CHECKING:
    from analyzer.onnx.shapes.infer import InferFunction, Inferred
    from analyzer.onnx.shapes.native import Context

# Trip counts from here on mean "until the condition is false".
_ENDLESS = 1 << 31
_BRANCHES = {True: "then_branch", False: "else_branch"}


def infer_control(
    structure: Structure, place: int, result: Inferred, context: Context, infer: InferFunction
) -> bool:
    """Infer node `place` by its subgraphs; False if the node is none that this file knows."""
    node = structure.nodes[place]
    if node.domain not in DEFAULT_DOMAINS:
        return False
    rule = RULES.get(node.op_type)
    if rule is not None:
        return rule(structure, place, result, context, infer)
    result.notes.append(f"{node_name(node)}: its body is not followed")
    return False


def _infer_if(
    structure: Structure, place: int, result: Inferred, context: Context, infer: InferFunction
) -> bool:
    """Infer an If: both branches, and results as large as the larger. Returns whether that was possible."""
    node = structure.nodes[place]
    branches = structure.subgraphs[place]
    if set(branches) != {"then_branch", "else_branch"}:
        return False
    for attribute, branch in branches.items():
        if len(branch.outputs) != len(node.output):
            raise TargetError(
                f"{node_name(node)} has {len(node.output)} results, its {attribute} {len(branch.outputs)}",
                "both branches must give all results: export the model again",
            )
    condition = result.values.get(node.input[0]) if result.values is not None and node.input else None
    branch_index: bool | None
    if condition is not None and condition.size == 1:
        branch_index = bool(condition.reshape(-1)[0])
    else:
        branch_index = next(
            (context.assumed[key] for key in (node.input[0], node.name) if key in context.assumed), None
        )
    children, problems = {}, {}
    for name, branch in branches.items():
        try:
            children[name] = infer(branch, _captured(branch, result), context, result.values)
        except InputError as error:
            problems[name] = error
    result.children[place] = dict(children)
    if branch_index is not None:  # the other branch decides nothing, but is there: its weights are
        only = _BRANCHES[branch_index]
        children = {name: child for name, child in children.items() if name == only}
        problems = {name: problem for name, problem in problems.items() if name == only}
    if not children:
        raise next(iter(problems.values()))
    for name, problem in problems.items():
        result.notes.append(
            f"{node_name(node)}: its {name} cannot run with these shapes ({problem.message}); the other one"
            " is counted"
        )
    sizes = {name: _results_bytes(branches[name], child) for name, child in children.items()}
    chosen = max(sizes, key=lambda name: sizes[name])
    result.chosen[place] = chosen
    for position, name in enumerate(node.output):
        if not name:
            continue
        types = {
            branch: child.types[branches[branch].outputs[position]] for branch, child in children.items()
        }
        first = types[chosen]
        shapes = {value.shape for value in types.values()}
        if len(shapes) == 1:
            result.types[name] = first
        elif context.symbolic:
            result.types[name] = ValueType(first.dtype, _agreed([value.shape for value in types.values()]))
        else:
            result.types[name] = max(types.values(), key=_bytes)
            result.inexact.add(name)
            result.notes.append(
                f"{node_name(node)}: the branches make {display(name)!r}"
                f" {' or '.join(display_shape(value.shape) for value in types.values())}; the larger is"
                " counted"
            )
        if any(branches[branch].outputs[position] in child.inexact for branch, child in children.items()):
            result.inexact.add(name)
    return True


def _infer_loop(
    structure: Structure, place: int, result: Inferred, context: Context, infer: InferFunction
) -> bool:
    """Infer a Loop: one iteration of its body, scan outputs by the trip count. Returns whether possible."""
    node = structure.nodes[place]
    body = structure.subgraphs[place].get("body")
    carried_count = len(node.input) - 2
    if (
        body is None
        or carried_count < 0
        or len(body.inputs) != len(node.input)
        or len(body.outputs) <= carried_count
    ):
        return False
    trips = _trip_count(node, result)
    formal = list(body.inputs)
    start = [result.types[name] for name in node.input[2:] if name in result.types]
    if len(start) != carried_count:
        return False
    carried = (
        [ValueType(value.dtype, None, value.kind, value.proto) for value in start]
        if context.symbolic
        else start
    )

    def run(values: list[ValueType]) -> Inferred:
        outer_values = _captured(body, result)
        outer_values[formal[0]] = ValueType("int64", ())
        outer_values[formal[1]] = ValueType("bool", ())
        outer_values |= dict(zip(formal[2:], values, strict=True))
        return infer(body, outer_values, context, result.values)

    child = run(carried)
    after = [child.types[name] for name in body.outputs[1 : 1 + carried_count]]
    growing = not context.symbolic and any(a.shape != b.shape for a, b in zip(start, after, strict=True))
    final = after
    if growing:
        count = trips if trips is not None else 1
        before_last = [_grown(a, b, count - 1) for a, b in zip(start, after, strict=True)]
        final = [_grown(a, b, count) for a, b in zip(start, after, strict=True)]
        child = run(before_last)
        result.notes.append(
            f"{node_name(node)}: a carried value changes its shape in each iteration; counted at its largest,"
            f" after {count}"
        )
        result.inexact.update(node.output)
    if trips is None and not context.symbolic:
        result.notes.append(
            f"{node_name(node)}: the number of iterations is not constant; its body counts once"
            + (
                ", its scan outputs as one iteration: no bound, memory may be more"
                if len(node.output) > carried_count
                else ""
            )
        )
        if len(node.output) > carried_count:
            result.inexact.update(node.output[carried_count:])
    result.children[place] = {"body": child}
    scans = [child.types[name] for name in body.outputs[1 + carried_count :]]
    length: int | str = "" if context.symbolic else 1 if trips is None else trips
    types = final + [_with_axis(value, length, 0) for value in scans]
    if trips == 0:
        types[:carried_count] = start
    result.types.update({name: value for name, value in zip(node.output, types, strict=False) if name})
    return True


def _infer_scan(
    structure: Structure, place: int, result: Inferred, context: Context, infer: InferFunction
) -> bool:
    """Infer a Scan: its body on one slice of each scan input. Returns whether possible."""
    node = structure.nodes[place]
    body = structure.subgraphs[place].get("body")
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if body is None or context.opset < 9 or "num_scan_inputs" not in attributes:
        return False
    scan_count = attributes["num_scan_inputs"].i
    state_count = len(node.input) - scan_count
    if scan_count < 1 or state_count < 0 or len(body.inputs) != len(node.input):
        return False
    input_axes = _axes(attributes, "scan_input_axes", scan_count)
    output_axes = _axes(attributes, "scan_output_axes", len(node.output) - state_count)
    outer_values = _captured(body, result)
    length: int | str = ""
    for position, (formal, name) in enumerate(zip(body.inputs, node.input, strict=True)):
        value = result.types.get(name)
        if value is None:
            return False
        if position >= state_count:
            if not value.shape:
                return False
            axis = input_axes[position - state_count] % len(value.shape)
            length = value.shape[axis]
            value = ValueType(value.dtype, (*value.shape[:axis], *value.shape[axis + 1 :]))
        outer_values[formal] = value
    child = infer(body, outer_values, context, result.values)
    result.children[place] = {"body": child}
    for position, (name, inner) in enumerate(zip(node.output, body.outputs, strict=False)):
        value = child.types[inner]
        if position >= state_count:
            value = _with_axis(value, length, output_axes[position - state_count])
        if name:
            result.types[name] = value
    return True


def _captured(inner: Structure, result: Inferred) -> dict[str, ValueType]:
    return {name: result.types[name] for name in inner.captured if name in result.types}


def _trip_count(node: Any, result: Inferred) -> int | None:
    if not node.input[0] or result.values is None:
        return None
    value = result.values.get(node.input[0])
    if value is None or value.size != 1:
        return None
    trips = max(0, int(value.reshape(-1)[0]))
    return trips if trips < _ENDLESS else None


def _axes(attributes: dict[str, Any], name: str, count: int) -> list[int]:
    axes = list(attributes[name].ints) if name in attributes else []
    return (axes + [0] * count)[:count]


def _with_axis(value: ValueType, length: int | str, axis: int) -> ValueType:
    if value.shape is None:
        return value
    axis %= len(value.shape) + 1
    return ValueType(value.dtype, (*value.shape[:axis], length, *value.shape[axis:]))


def _grown(first: ValueType, second: ValueType, times: int) -> ValueType:
    """Return the carried type after `times` iterations that each change it as the first one did."""
    a, b = first.sizes, second.sizes
    if a is None or b is None or len(a) != len(b):
        return second
    return ValueType(second.dtype, tuple(max(x, y, x + times * (y - x)) for x, y in zip(a, b, strict=True)))


def _agreed(shapes: list[Any]) -> tuple[int | str, ...] | None:
    if any(shape is None for shape in shapes) or len({len(shape) for shape in shapes}) != 1:
        return None
    return tuple(sizes[0] if len(set(sizes)) == 1 else "" for sizes in zip(*shapes, strict=True))


def _bytes(value: ValueType) -> int:
    return nbytes_of(element_count(value.sizes or ()), value.dtype or "float32")


def _results_bytes(structure: Structure, inferred: Inferred) -> int:
    return sum(_bytes(inferred.types[name]) for name in structure.producers if name in inferred.types)


RULES: dict[str, Callable[[Structure, int, Inferred, Context, InferFunction], bool]] = {
    "If": _infer_if,
    "Loop": _infer_loop,
    "Scan": _infer_scan,
}
