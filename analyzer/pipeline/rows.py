"""Rows of the peak: each tensor alive at it, in the user's terms, and its holder.

1. An allocation is described by its runtime, or by the captured graph's operators and storages; the place of
   a node in its model's file (line, scope) is added.
2. A block in which many tensors lie (a memory pattern) has a row for each of them, and one for the rest.
3. The **holder** follows from the graph (`liveness/holders.py`), nearest first. Where a runtime runs a graph
   of its own, tensors are found by their names, and those it made itself have no holder. Scratch memory is
   held by the operator that runs, a workspace by its library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from analyzer.graph import Category, Graph, Operator, TensorMeta, view_of
from analyzer.liveness.holders import Holder, Kind, holders
from analyzer.results.estimate import UNREAD, TensorRow
from analyzer.runtimes.base import Description, Prediction
from analyzer.runtimes.events import AllocationEvent, Malloc
from analyzer.runtimes.timeline import Alive, Simulation

_WORDS: dict[Kind, str] = {
    "model": "the model",
    "optimizer": "the optimizer",
    "caller": "the caller",
    "reader": "its last reader",
    "autograd": "the backward pass",
    "program": UNREAD[0],
    "graph": UNREAD[1],
    "ahead": "what was still to come",
    "cycle": UNREAD[2],
    "exception": UNREAD[3],
}
# Where a file is run there are no variables, and what nothing reads is a result.
_OF_FILES = {**_WORDS, "model": "the session", "program": "the caller"}


def peak_rows(
    graph: Graph, prediction: Prediction, simulation: Simulation, describe: Callable[[Malloc], Description]
) -> tuple[TensorRow, ...]:
    """Return every tensor alive at the peak, largest first; their bytes sum to the allocated bytes."""
    add = _file_words(graph)
    parts = [
        (alive.malloc, description, nbytes)
        for alive in simulation.alive
        if alive.block_bytes
        for description, nbytes in _parts(alive, prediction, describe, add)
    ]
    parts.sort(key=lambda part: -part[2])
    paths = _paths(graph, prediction, simulation, [part[:2] for part in parts])
    return tuple(
        TensorRow(
            nbytes=nbytes, category=malloc.category.value, rule=malloc.rule, path=path, **description.by_name
        )
        for (malloc, description, nbytes), path in zip(parts, paths, strict=True)
    )


def _parts(
    alive: Alive,
    prediction: Prediction,
    describe: Callable[[Malloc], Description],
    add: Callable[[Description], Description],
) -> list[tuple[Description, int]]:
    """Return the tensors in a block with their bytes."""
    block = describe(alive.malloc)
    inside = () if prediction.contents is None else prediction.contents(alive.malloc)
    rest = alive.block_bytes - sum(nbytes for _, nbytes in inside)
    if not inside:
        return [(block, rest)]
    parts = [(add(description), nbytes) for description, nbytes in inside]
    return parts + ([(dataclasses.replace(block, name=f"rest of the {block.name}"), rest)] if rest else [])


def _paths(
    graph: Graph,
    prediction: Prediction,
    simulation: Simulation,
    tensors: Sequence[tuple[Malloc, Description]],
) -> list[tuple[str, ...]]:
    """Return who keeps each tensor alive at the peak, nearest first; () if unknown."""
    if prediction.describe is None:
        storages = [malloc.storage for malloc, _ in tensors]
        position = _moment(graph, prediction.events[simulation.peak_position]) if tensors else 0
    else:
        named = {storage.name: storage.index for storage in graph.storages}
        storages = [named.get(description.name, -1) for _, description in tensors]
        position = 0  # the runtime has an order of its own: whoever reads it
    by_storage = holders(graph, position, {index for index in storages if index >= 0})
    return [
        _holder_path(graph, by_storage[index]) if index in by_storage else _holder_in_runtime(graph, malloc)
        for index, (malloc, _) in zip(storages, tensors, strict=True)
    ]


def _moment(graph: Graph, event: AllocationEvent) -> int:
    """Return the place in the program of the request that reaches the peak."""
    nodes = view_of(graph).nodes
    if isinstance(event, Malloc) and event.operator >= 0:
        return int(nodes[~event.operator]["position"] or 0)
    return int(nodes[event.storage]["birth"] or 0) if isinstance(event, Malloc) and event.storage >= 0 else 0


def holder_words(kind: Kind) -> str:
    """Return what a holder of a program's tensors is called."""
    return _WORDS[kind]


def _holder_path(graph: Graph, holder: Holder) -> tuple[str, ...]:
    words = (_OF_FILES if graph.framework == "onnx" else _WORDS)[holder.kind]
    path = [words] if holder.operator is None else [words, _operator_label(graph.operators[holder.operator])]
    if holder.kind == "graph":
        path.append(_WORDS["program"])
    return (
        *path,
        *(() if holder.until is None else [f"until {_operator_label(graph.operators[holder.until])}"]),
    )


def _holder_in_runtime(graph: Graph, malloc: Malloc) -> tuple[str, ...]:
    """Return the holder of memory that belongs to no storage of the graph."""
    if not graph.operators:  # an emulated run: nobody saw who reads what
        return ()
    if malloc.category is Category.WORKSPACE:
        return ("its library",)
    return ("the operator that runs",) if malloc.category is Category.SCRATCH or malloc.storage < 0 else ()


def _operator_label(operator: Operator) -> str:
    """Return an operator's label: "convolution layer1.0.conv3 resnet50.py:43"."""
    name = operator.name.removeprefix("aten::").partition(".")[0]
    return " ".join(filter(None, (name, operator.module, operator.source)))


def described(prediction: Prediction, graph: Graph) -> Callable[[Malloc], Description]:
    """Return a function that describes an allocation, with what the model's file says of a node."""
    describe, add = prediction.describe or graph_describer(graph), _file_words(graph)
    return lambda malloc: add(describe(malloc))


def _file_words(graph: Graph) -> Callable[[Description], Description]:
    """Return a function that adds a file's source line and scope to a node's description."""
    recorded = {
        operator.module: (operator.source, operator.scope)
        for operator in graph.operators
        if graph.framework == "onnx" and (operator.source or operator.scope)
    }

    def add(description: Description) -> Description:
        source, scope = recorded.get(description.module, ("", ""))
        return dataclasses.replace(
            description, source=description.source or source, scope=description.scope or scope
        )

    return add if recorded else lambda description: description


def graph_describer(graph: Graph) -> Callable[[Malloc], Description]:
    """Return a function that describes allocations of a captured graph."""

    def describe(malloc: Malloc) -> Description:
        operator = graph.operators[malloc.operator] if malloc.operator >= 0 else None
        meta: TensorMeta | None = None
        name = malloc.label
        if malloc.storage >= 0:
            name = graph.storages[malloc.storage].name or name
            if operator is not None:
                meta = next(
                    (o for o in operator.outputs if o is not None and o.storage == malloc.storage), None
                )
        module = operator.module if operator is not None else ""
        if not module and name.endswith((".weight", ".bias", ".grad")) and "." in name:
            module = name.removesuffix(".grad").rpartition(".")[0]
        return Description(
            name=name,
            dtype=meta.dtype if meta else "",
            shape=meta.shape if meta else (),
            operator=operator.name if operator else "",
            module=module,
            source=operator.source if operator else "",
            phase=operator.phase.value if operator else "",
        )

    return describe
