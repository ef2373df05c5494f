"""Who holds the bytes at the peak: by module, line, operator, category or tensor, to any depth.

1. Every table is the same allocations (`Estimate.tensors`) grouped another way: each sums to `peak_allocated`, to the byte.
2. A module's path is its names from the outside in. For ONNX it is the scope the exporter recorded, then the node's name.
   A line's path is its file, then its number. The others have one level.
3. What has no such name (a parameter has no line) is a row of its own, never left out: its name is empty here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from analyzer.report.words import operator_name

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate, Origin, TensorRow

KINDS = ("module", "line", "operator", "category", "tensor")
# What a row is called whose name is empty.
NAMELESS = {
    "module": "(outside any module)",
    "line": "(no line)",
    "operator": "(no operator)",
    "category": "(no category)",
    "tensor": "(no name)",
}


def path(row: TensorRow | Origin, kind: str, framework: str) -> tuple[str, ...]:
    """The names of one allocation from the outside in; () where it has none. Raises KeyError for a kind that is none."""
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
    raise KeyError(kind)


def joined(names: tuple[str, ...], kind: str) -> str:
    """A path as one name: "layer1.0.conv1", "train.py:12"; "" for none."""
    return (":" if kind == "line" else ".").join(names)


def rows(estimate: Estimate, kind: str, depth: int | None = None) -> list[tuple[str, int]]:
    """(name, bytes at the peak), largest first; depth: how many names of a path, None: all. Raises KeyError for no kind."""
    sums = Counter[str]()
    for row in estimate.tensors:
        sums[joined(path(row, kind, estimate.framework)[:depth], kind)] += row.nbytes
    return sums.most_common()
