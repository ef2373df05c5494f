"""Largest possible shapes of results that depend on data.

1. Each rule gives, by output position, the largest shape the operator's definition allows for its inputs'
   shapes.
2. A sequence holds at most the elements put into it; its `shape` is that number.

Source: the operators' definitions in ONNX (`docs/Operators.md`).
Not modelled: operators whose results have no bound but their data (StringSplit, Range and Expand of computed
values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from analyzer.onnx.node import DEFAULT_DOMAINS
from analyzer.onnx.types import ValueType, element_count

_Inputs = list["ValueType | None"]
_Value = Callable[[str], Any]


def bounds(node: Any, inputs: _Inputs, value: _Value) -> dict[int, ValueType]:
    """Output position -> largest type, for operators this file knows; dtype "" means as inferred."""
    rule = RULES.get(node.op_type) if node.domain in DEFAULT_DOMAINS else None
    if rule is None:
        return {}
    if any(item is None or item.sizes is None for item in inputs[: _NEEDED.get(node.op_type, 1)]):
        return {}
    return rule(node, inputs, value)


def _sizes(inputs: _Inputs, position: int) -> tuple[int, ...]:
    item = inputs[position] if position < len(inputs) else None
    return (item.sizes or ()) if item is not None else ()


def _attributes(node: Any) -> dict[str, Any]:
    return {attribute.name: attribute for attribute in node.attribute}


def _non_zero(_node: Any, inputs: _Inputs, _value: _Value) -> dict[int, ValueType]:
    sizes = _sizes(inputs, 0)
    return {0: ValueType("int64", (len(sizes), element_count(sizes)))}


def _non_max_suppression(node: Any, inputs: _Inputs, value: _Value) -> dict[int, ValueType]:
    """Bound the rows: batches times classes times boxes kept of each, at most all boxes."""
    boxes, scores = _sizes(inputs, 0), _sizes(inputs, 1)
    spatial = boxes[1] if len(boxes) > 1 else 1
    chosen = spatial
    if len(node.input) > 2 and node.input[2]:
        limit = value(node.input[2])
        if limit is not None and limit.size == 1:
            chosen = min(spatial, max(0, int(limit.reshape(-1)[0])))
    elif len(node.input) <= 2 or not node.input[2]:
        chosen = 0  # the definition's default: no output
    classes = scores[1] if len(scores) > 1 else 1
    return {0: ValueType("int64", (scores[0] * classes * chosen if scores else chosen, 3))}


def _compress(node: Any, inputs: _Inputs, _value: _Value) -> dict[int, ValueType]:
    sizes = _sizes(inputs, 0)
    attributes = _attributes(node)
    return {0: ValueType("", sizes if "axis" in attributes else (element_count(sizes),))}


def _unique(node: Any, inputs: _Inputs, _value: _Value) -> dict[int, ValueType]:
    sizes = _sizes(inputs, 0)
    attributes = _attributes(node)
    count = element_count(sizes)
    if "axis" in attributes and sizes:
        count = sizes[attributes["axis"].i % len(sizes)]
        first = ValueType("", sizes)
    else:
        first = ValueType("", (count,))
    counts = ValueType("int64", (count,))
    return {0: first, 1: counts, 2: counts, 3: counts}


def _same(node: Any, inputs: _Inputs, _value: _Value) -> dict[int, ValueType]:
    return {position: ValueType("", _sizes(inputs, 0)) for position in range(len(node.output))}


def _reshape(_node: Any, inputs: _Inputs, _value: _Value) -> dict[int, ValueType]:
    rank = (_sizes(inputs, 1) or (1,))[0]
    count = element_count(_sizes(inputs, 0))
    return {0: ValueType("", (count, *(1,) * (min(rank, 64) - 1)) if rank else ())}


def _sequence(node: Any, inputs: _Inputs, _value: _Value) -> dict[int, ValueType]:
    """Bound results of sequence operators by the types of their elements."""
    held = [item for item in inputs if item is not None and item.sizes is not None]
    if node.op_type in (
        "SplitToSequence",
        "SequenceErase",
        "SequenceAt",
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
    ):
        held = held[:1]
    count = sum(element_count(item.sizes or ()) for item in held)
    kind = "tensor" if node.op_type in ("SequenceAt", "ConcatFromSequence") else "sequence"
    if node.op_type in ("Optional", "OptionalGetElement", "Identity"):
        return (
            {0: ValueType(held[0].dtype, held[0].shape, held[0].kind)}
            if held
            else {0: ValueType("", (0,), "optional")}
        )
    return {0: ValueType(held[0].dtype if held else "", (count,), kind)}


RULES: dict[str, Callable[[Any, _Inputs, _Value], dict[int, ValueType]]] = {
    "NonZero": _non_zero,
    "NonMaxSuppression": _non_max_suppression,
    "Compress": _compress,
    "Unique": _unique,
    "TopK": _same,
    "Slice": _same,
    "Split": _same,
    "Reshape": _reshape,
    "SequenceEmpty": _sequence,
    "SequenceConstruct": _sequence,
    "SequenceInsert": _sequence,
    "SequenceErase": _sequence,
    "SequenceAt": _sequence,
    "SplitToSequence": _sequence,
    "ConcatFromSequence": _sequence,
    "Optional": _sequence,
    "OptionalGetElement": _sequence,
    "Identity": _sequence,
}
# Results whose bound is their shape: where each element of the input went.
EXACT = frozenset({("Unique", 2)})
# Inputs that must be known for the rule to bound anything.
_NEEDED = {"NonMaxSuppression": 2, "SequenceEmpty": 0, "SequenceInsert": 2, "Optional": 0, "Reshape": 2}
