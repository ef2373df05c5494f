"""The bytes at the peak grouped by module, line, operator, category, tensor or holder, to any depth.

1. Every table is the same allocations (`Estimate.tensors`) grouped another way: each sums to
   `peak_allocated`, to the byte.
2. A module's path is its names from the outside in. For ONNX it is the scope the exporter recorded, then the
   node's name. A line's path is its file, then its number; a holder's who keeps a tensor alive, then for
   what. The others have one level.
3. Allocations without such a name (a parameter has no line) are a row of their own, never left out: its name
   is empty here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from analyzer.report.words import clean, operator_name, size, tail
from analyzer.results.estimate import UNREAD

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate, Origin, TensorRow

KINDS = ("module", "line", "operator", "category", "tensor", "holder")
# Which part of the peak must be held in vain to be worth a line.
_WORTH_PERCENT = 2
_LONGEST_NAME = 100
_NUMBER = re.compile(r"(?:(?<=\.)|^)\d+(?=\.|$)")  # a part of a module's path
# Labels of the row whose name is empty.
NAMELESS = {
    "module": "(outside any module)",
    "line": "(no line)",
    "operator": "(no operator)",
    "category": "(no category)",
    "tensor": "(no name)",
    "holder": "(not known)",
}


def path(row: TensorRow | Origin, kind: str, framework: str) -> tuple[str, ...]:
    """Return an allocation's names from the outside in, () without. Raises KeyError for no kind."""
    match kind:
        case "module":
            if framework != "onnx":
                return tuple(row.module.split(".")) if row.module else ()
            scope = row.scope.split(".") if row.scope else []
            return (*scope, row.module) if row.module else tuple(scope)
        case "line":
            file, _, number = row.source.rpartition(":")
            return (file, number) if file else (row.source,) if row.source else ()
        case "operator":
            return (operator_name(row.operator),) if row.operator else ()
        case "category":
            return (row.category,)
        case "tensor":
            return (row.name,) if row.name else ()
        case "holder":
            return getattr(row, "path", ())
    raise KeyError(kind)


def joined(names: tuple[str, ...], kind: str) -> str:
    """Return a path as one name: "layer1.0.conv1", "train.py:12"; "" for none."""
    return {"line": ":", "holder": ", "}.get(kind, ".").join(names)


def rows(estimate: Estimate, kind: str, depth: int | None = None) -> list[tuple[str, int]]:
    """Return (name, bytes at the peak), largest first; depth: names of a path, None: all."""
    sums = Counter[str]()
    for row in estimate.tensors:
        sums[joined(path(row, kind, estimate.framework)[:depth], kind)] += row.nbytes
    return sums.most_common()


def name_and_origin(row: TensorRow) -> tuple[str, str]:
    """Return (name, origin) of a tensor: its or its module's name; operator and source line."""
    name, module = clean(row.name), clean(row.module)
    if row.name == row.operator:
        name = module or operator_name(row.operator)
    elif module and not name.startswith(module):
        name = f"{module}: {name}"
    moved = row.phase in ("setup", "input")
    return name, " ".join(filter(None, ("" if moved else operator_name(row.operator), clean(row.source))))


def shape_and_type(row: TensorRow, room: int | None = None) -> str:
    """Return a tensor's shape and type; of one in an arena's chunk, which may be larger than it, also its own
    bytes. room: characters there are for it."""
    shape = "x".join(map(str, row.shape)) or ("scalar" if row.dtype else "-")
    in_chunk = row.rule.startswith("ort-") and row.own_bytes and size(row.own_bytes) != size(row.nbytes)
    own = f", {size(row.own_bytes)}" if in_chunk else ""
    kind = clean(row.dtype)
    width = 20 if room is None else max(8, min(20, room - len(kind) - len(own) - 1))
    return f"{tail(shape, width)} {kind}{own}".rstrip()


def grouped(rows: Iterable[TensorRow]) -> list[tuple[TensorRow, int]]:
    """Return rows with how many are equal but for numbers in their modules' paths (the blocks of a model), in
    the order of the first of each. Their numbers that differ are "*"."""
    groups: dict[tuple[object, ...], list[TensorRow]] = {}
    for row in rows:
        same = replace(row, name=_pattern(row.name), module=_pattern(row.module), path=())
        groups.setdefault((same.name, same.module, replace(same, name="", module="")), []).append(row)
    return [
        (
            replace(
                equal[0],
                name=_common([row.name for row in equal]),
                module=_common([row.module for row in equal]),
            ),
            len(equal),
        )
        for equal in groups.values()
    ]


def counted(row: TensorRow, count: int) -> tuple[str, str]:
    """Return the name of a tensor, with how many are equal to it, and its origin."""
    name, maker = name_and_origin(row)
    return f"{name} x{count:,}" if count > 1 else name, maker


def _pattern(name: str) -> str:
    return _NUMBER.sub("*", name)


def _common(names: list[str]) -> str:
    """Return what names of one pattern have in common; the first where they have nothing."""
    parts = [
        part[0] if len(set(part)) == 1 else "*" for part in zip(*(n.split(".") for n in names), strict=True)
    ]
    return ".".join(parts) if set(parts) != {"*"} else names[0]


def unread(estimate: Estimate) -> str:
    """Return a sentence on memory that nothing reads again: how much, which, why; "" if little."""
    held = [row for row in estimate.tensors if row.path[:1] and row.path[0] in UNREAD]
    nbytes = sum(row.nbytes for row in held)
    if 100 * nbytes < _WORTH_PERCENT * estimate.peak_allocated or not held:
        return ""
    sums = Counter[tuple[str, ...]]()
    for row in held:
        sums[row.path] += row.nbytes
    ((most, _),) = sums.most_common(1)
    row = next(row for row in held if row.path == most)
    detail = tail(clean("".join(most[1:2])), _LONGEST_NAME)
    if most[0] == UNREAD[1]:
        why = f"the graph of {detail} keeps it, and a variable its result (torch.no_grad or detach)"
    elif most[0] == UNREAD[2]:
        name = f"{name_and_origin(row)[0]} {clean(row.source)}".strip()
        why = f"{name}, in a reference cycle until Python collects garbage"
    else:
        name = tail(" ".join(filter(None, (name_and_origin(row)[0], clean(row.source)))), _LONGEST_NAME)
        made = " of an evaluation" if row.phase in ("evaluation", "generation") else ""
        why = f"{name}{made}, which a variable holds {detail}".rstrip()
    return f"{size(nbytes)} is never used again: {why}"


def held_by(row: TensorRow) -> tuple[str, str]:
    """Return (holder, reason or end) of a tensor in words; empty where unknown."""
    return (f"held by {clean(row.path[0])}", clean("".join(row.path[1:2]))) if row.path else ("", "")
