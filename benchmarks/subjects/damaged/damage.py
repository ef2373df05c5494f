"""A damaged model for every number: `damaged(seed)` is the same file wherever the same onnx package is installed.

1. **Bytes**: some bytes of a sound model are changed, cut out, doubled, moved or lost at its end; the whole may be no
   protobuf any more.
2. **Fields**: a well-formed file in which fields hold what their kind can hold and no exporter writes: sizes at the edges of
   their types, other operators, element types, names and versions, doubled, missing and exchanged parts, locations of data
   outside the folder.
3. **Splices**: parts of one model in another: nodes, weights, inputs, whole graphs as subgraphs, functions.
Several rounds of 2 and 3 may meet in one file, and one of 1 on top.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx

from benchmarks.subjects.damaged.models import WEIGHTS, bases

OUTSIDE = "../outside"  # a pipe nobody writes to: who opens it hangs
LINK = "link"  # beside the model, and leads there
_NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    -1,
    -2,
    255,
    65536,
    2**31 - 1,
    2**31,
    -(2**31),
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
_TEXTS = ("", "x", "y", "N", "0", "-1", "\n", "\x1b[31m", "a" * 300, "é\u202e", "ai.onnx", "com.microsoft", "axis", "value",
          "then_branch", "body", "NHWC")  # fmt: skip
_LOCATIONS = (OUTSIDE, LINK, "/etc/passwd", "..", ".", "", "a\0b", "weights.bin/../../outside", "C:\\x", "short.bin",
              "missing.bin", WEIGHTS, "m" * 5000, f"./{WEIGHTS}", "folder")  # fmt: skip
_BATCHES = (None, None, 1, 2, 3, 17, 10**6, 2**40, 2**63 - 1)
_ROUNDS = (1, 1, 1, 2, 2, 3, 5)
_CHANGES = 8


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file, and how it is asked about. base: the model it began as. provider: ONNX Runtime's, "cuda" or "cpu"."""

    seed: int
    base: str
    data: bytes
    batch: int | None
    provider: str


def damaged(seed: int) -> Damaged:
    """The file of this number."""
    draw = random.Random(seed)
    base = draw.choice(bases())
    kind = draw.random()
    data = base.data
    if kind >= 0.15:
        model = base.model()
        for _ in range(draw.choice(_ROUNDS)):
            (_spliced if draw.random() < 0.4 else _field)(draw, model)
        data = model.SerializeToString()
    if kind < 0.15 or kind > 0.98:
        data = _bytes(draw, data)
    provider = "cpu" if draw.random() < 0.3 else "cuda"
    return Damaged(seed, base.name, data, draw.choice(_BATCHES), provider)


def _bytes(draw: random.Random, data: bytes) -> bytes:
    """Some bytes changed."""
    found = bytearray(data)
    for _ in range(draw.randint(1, _CHANGES)):
        if not found:
            break
        at, length = draw.randrange(len(found)), draw.randint(1, 12)
        match draw.randrange(7):
            case 0:
                found[at] ^= 1 << draw.randrange(8)
            case 1:
                found[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
            case 2:
                del found[at : at + length]
            case 3:
                found[at:at] = found[at : at + length] * draw.randint(1, 3)
            case 4:
                other = draw.randrange(len(found))
                found[at : at + length] = found[other : other + length]
            case 5:
                found[at:at] = draw.randbytes(length)
            case _:
                if draw.random() < 0.3:
                    del found[at:]
    return bytes(found)


def _field(draw: random.Random, model: Any) -> None:
    """One field of one message, somewhere in the model, holds something else."""
    message, field = draw.choice(fields_of(model))
    value = getattr(message, field.name)
    if field.is_repeated:
        _repeated(draw, value, field)
    elif field.message_type is not None:
        if draw.random() < 0.5:
            message.ClearField(field.name)
        else:
            others = [m for m, _ in fields_of(model) if m.DESCRIPTOR is field.message_type]
            if others:
                value.CopyFrom(draw.choice(others).__deepcopy__())
    elif draw.random() < 0.1:
        message.ClearField(field.name)
    else:
        _put(message, field.name, _scalar(draw, message, field, value))


def _repeated(draw: random.Random, value: Any, field: Any) -> None:
    """A list loses, doubles, exchanges or changes an item."""
    if not len(value):
        return
    at = draw.randrange(len(value))
    what = draw.randrange(5)
    if what == 0:
        del value[at]
    elif what == 1:
        items = [*value[: at + 1], *value[at:]]
        _set(value, items, field)
    elif what == 2:
        items = list(value)
        draw.shuffle(items)
        _set(value, items, field)
    elif what == 3:
        del value[draw.randrange(len(value)) :]
    elif field.message_type is None:
        items = list(value)
        items[at] = _scalar(draw, None, field, items[at])
        try:
            _set(value, items, field)
        except (ValueError, TypeError):
            return


def _set(value: Any, items: list[Any], field: Any) -> None:
    """The list holds these items instead."""
    if field.message_type is not None:
        items = [item.__deepcopy__() for item in items]
    before = list(value)
    del value[:]
    try:
        value.extend(items)
    except (ValueError, TypeError):
        del value[:]
        value.extend(before)


def _scalar(draw: random.Random, message: Any, field: Any, value: Any) -> Any:
    """Something this field could hold."""
    kind = message.DESCRIPTOR.name if message is not None else ""
    if isinstance(value, bytes):
        return draw.choice(
            (b"", b"\xff\xfe", b"NOTSET", b"SAME_UPPER", b"bij,bjk->bik", b"..", draw.randbytes(8), value * 2)
        )
    if isinstance(value, str):
        if kind == "NodeProto" and field.name == "op_type" and draw.random() < 0.8:
            return draw.choice(_operators())
        if kind == "StringStringEntryProto" and field.name == "value":
            return draw.choice((*_LOCATIONS, *map(str, _NUMBERS)))
        return draw.choice(_TEXTS)
    if isinstance(value, float):
        return draw.choice((0.0, -1.0, 1e38, float("inf"), float("nan"), 0.5))
    if field.name in ("data_type", "elem_type") or field.enum_type is not None:
        return draw.randrange(30)
    if field.name in ("ir_version", "version"):
        return draw.choice((*range(30), *_NUMBERS))
    return draw.choice((*_NUMBERS, value + 1, value - 1, value * 2))


def _put(message: Any, name: str, value: Any) -> None:
    """Set a field, unless its type cannot hold the value."""
    try:
        setattr(message, name, value)
    except (ValueError, TypeError):
        return


def _spliced(draw: random.Random, model: Any) -> None:
    """A part of another model comes into this one."""
    other = draw.choice(bases()).model()
    draw.choice(_SPLICES)(draw, model, other)


def _nodes(draw: random.Random, model: Any, other: Any) -> None:
    """Some of its nodes, reading what is here and what one another makes; sometimes the model's own name is taken again."""
    graph, names = model.graph, _names(model.graph)
    again = draw.random() < 0.1
    for node in other.graph.node[draw.randrange(len(other.graph.node) or 1) :]:
        copy = graph.node.add()
        copy.CopyFrom(node)
        for place in range(len(copy.input)):
            if names and copy.input[place] and (not again or draw.random() < 0.6):
                copy.input[place] = draw.choice(names)
        for place in range(len(copy.output)):
            if not again and copy.output[place]:
                copy.output[place] += f"_{len(graph.node)}"
        names += [name for name in copy.output if name]
    if draw.random() < 0.1 and names:
        nodes = list(graph.node)
        draw.shuffle(nodes)
        copies = [node.__deepcopy__() for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _weights(draw: random.Random, model: Any, other: Any) -> None:
    """Its weights in the place of this model's, or beside them under a name that is taken."""
    here = model.graph.initializer
    for tensor in other.graph.initializer:
        copy = draw.choice(here) if len(here) and draw.random() < 0.9 else here.add(name="added")
        name = copy.name
        copy.CopyFrom(tensor)
        copy.name = name


def _ends(draw: random.Random, model: Any, other: Any) -> None:
    """Its inputs, outputs or declared types, on values of this model."""
    for name in ("input", "output", "value_info"):
        here = getattr(model.graph, name)
        for item in getattr(other.graph, name):
            if len(here) and draw.random() < 0.7:
                draw.choice(here).type.CopyFrom(item.type)
            elif draw.random() < 0.1:
                here.add().CopyFrom(item)


def _subgraph(draw: random.Random, model: Any, other: Any) -> None:
    """The whole graph as a subgraph of one of this model's nodes, or of one that has it."""
    if draw.random() < 0.5 or not model.graph.node:
        name = draw.choice(("If", "Loop", "Scan", "SequenceMap", "Relu"))
        node = model.graph.node.add(op_type=name)
        node.input.extend(draw.sample(_names(model.graph), min(2, len(_names(model.graph)))))
        node.output.append("spliced")
    else:
        node = draw.choice(model.graph.node)
    for _ in range(draw.randint(1, 2)):
        attribute = node.attribute.add(name=draw.choice(("then_branch", "else_branch", "body")))
        attribute.type = onnx.AttributeProto.GRAPH
        graph = draw.choice((other.graph, model.graph))
        attribute.g.CopyFrom(graph.__deepcopy__())


def _functions(draw: random.Random, model: Any, other: Any) -> None:
    """Its functions, one made of this model's nodes, and calls of it."""
    model.functions.extend(other.functions)
    function = model.functions.add(name=draw.choice(("f", "Relu", "Conv")), domain=draw.choice(("", "local")))
    function.input.extend([item.name for item in model.graph.input])
    function.output.extend([item.name for item in model.graph.output])
    function.node.extend([node.__deepcopy__() for node in model.graph.node])
    function.opset_import.extend(model.opset_import)
    node = (function if draw.random() < 0.3 else model.graph).node.add(
        op_type=function.name, domain=function.domain
    )
    node.input.extend([item.name for item in model.graph.input])
    node.output.append("called")


_SPLICES: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    _nodes,
    _weights,
    _ends,
    _subgraph,
    _functions,
)


def _names(graph: Any) -> list[str]:
    """Every value of a graph."""
    found = [item.name for item in (*graph.input, *graph.initializer)]
    return found + [name for node in graph.node for name in node.output if name]


def fields_of(message: Any) -> list[tuple[Any, Any]]:
    """Every set field of a message and of the messages in it."""
    found = []
    for field, value in message.ListFields():
        found.append((message, field))
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                found += fields_of(inner)
    return found


@cache
def _operators() -> tuple[str, ...]:
    """The names of ONNX's own operators."""
    return tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
