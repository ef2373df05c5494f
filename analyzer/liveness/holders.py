"""Holders: the owner that keeps a storage alive at a moment, read off the graph's view.

1. The **model** holds its parameters, their gradients (`.grad`) and its buffers, the **optimizer** its state,
   the **caller** the inputs of a step: all that has a name of its own.
2. A storage with readers to come is kept for the last of them; where autograd has saved it for one of the
   backward pass, **autograd** keeps it, until the function that saved it is through.
3. A storage that is not read again is held by the **program**: a variable, until it is bound to something
   else or goes out of scope.
4. If it then dies together with a later result that was computed from it with gradients, and no backward pass
   goes through that computation, the **graph** behind the result keeps it: autograd saved it in vain, and a
   variable holds the result.

5. A storage that is not read again, and that only Python's collector freed, is held by a reference **cycle**
   (`Graph.garbage`); one that only the frames of an **exception** kept, by that (`Graph.excepted`).
6. In a program that ended before its end (`Graph.unfinished`) nothing that was alive then is held in vain:
   what lies behind a living result, computed with gradients, waits for **autograd**'s backward pass, where
   the program trains; everything else for what was **ahead**.

Moments are places in `Graph.program`, edges those of the view (`graph/view.py`).

Source: PyTorch's "Autograd mechanics", section "Saved tensors": a result's `grad_fn` holds what the operators
before it saved, until backward has passed through them or the result goes.

Not modelled: which variable it is. A capture knows when the last reference goes (`Death`), and not its name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from analyzer.graph import Category, Graph, Phase, Run, Storage, view_of

Kind: TypeAlias = Literal[
    "model", "optimizer", "caller", "reader", "autograd", "program", "graph", "ahead", "cycle", "exception"
]

_OWNERS: dict[Category, Kind] = {
    Category.PARAMETER: "model",
    Category.BUFFER: "model",
    Category.OPTIMIZER_STATE: "optimizer",
    Category.INPUT: "caller",
}
_COMPUTES = (Phase.FORWARD, Phase.LOSS)  # with gradients


@dataclass(frozen=True, slots=True)
class Holder:
    """kind: by the rules of the module docstring. operator: the last that will read it ("reader",
    "autograd"), or the one whose result it is the graph of ("graph"). until: of what nothing reads again, the
    operator that ran last before it died (None: it never did).
    """

    kind: Kind
    operator: int | None = None
    until: int | None = None


def holders(graph: Graph, position: int, storages: Collection[int]) -> dict[int, Holder]:
    """Return who holds each of these storages, all alive at that moment."""
    view = view_of(graph)
    by_storage: dict[int, Holder] = {}
    unread: list[int] = []
    end = last_run(graph)
    for index in storages:
        storage = graph.storages[index]
        readers = [~operator for operator in view.succ[index] if view.nodes[operator]["position"] >= position]
        if owner := _owner(storage):
            by_storage[index] = Holder(owner)
        elif index in graph.excepted:
            by_storage[index] = Holder("exception")
        elif readers:
            last = max(readers)
            backward = storage.saved and graph.operators[last].phase is Phase.BACKWARD
            by_storage[index] = Holder("autograd" if backward else "reader", last)
        elif index in graph.garbage:
            by_storage[index] = Holder("cycle")
        elif graph.unfinished and _outlives(view.nodes[index], end):
            by_storage[index] = Holder("autograd" if storage.saved else "ahead")
        else:
            unread.append(index)
    return by_storage | _unread(graph, position, unread) if unread else by_storage


def _owner(storage: Storage) -> Kind | None:
    """Return the kind of object that has the storage as an attribute, None if none has."""
    if storage.category is Category.GRADIENT:
        return "model" if storage.name.endswith(".grad") else None
    return None if storage.name.startswith("aten::") else _OWNERS.get(storage.category)


def last_run(graph: Graph) -> int:
    """Return the place of the last operator that ran, of an unfinished program the one whose request failed;
    -1 if none did."""
    places = range(len(graph.program) - 1, -1, -1)
    return next((place for place in places if isinstance(graph.program[place], Run)), -1)


def _outlives(node: dict[str, Any], place: int) -> bool:
    """Return whether a storage was alive at that place: what an exception lets go dies behind it."""
    return node["death"] is None or bool(node["death"] > place)


def awaiting_backward(graph: Graph) -> frozenset[int]:
    """Return the storages that an unfinished program was computing gradients through when it ended: alive
    then, behind a living result."""
    import networkx as nx

    view, tape, end = view_of(graph), _tape(graph), last_run(graph)
    alive = {
        storage.index
        for storage in graph.storages
        if storage.index in tape
        and (node := view.nodes[storage.index])["birth"] is not None
        and _outlives(node, end)
    }
    behind: set[int] = set()
    for result in sorted(alive, reverse=True):
        makers = [operator for operator in view.pred[result] if operator in tape]
        if result not in behind and any(graph.operators[~maker].phase in _COMPUTES for maker in makers):
            behind |= nx.ancestors(tape, result)
    return frozenset(behind & alive)


def _tape(graph: Graph) -> Any:
    """Return the part of the view that autograd records: operators with an input that requires gradients, and
    what has no owner of its own."""
    import networkx as nx

    view = view_of(graph)

    @cache
    def tracked(node: int) -> bool:
        if node >= 0:
            return _owner(graph.storages[node]) is None
        return any(tensor.requires_grad for tensor in graph.operators[~node].inputs)

    return nx.subgraph_view(view, filter_node=tracked, filter_edge=lambda a, b: view[a][b]["kind"] != "write")


def _unread(graph: Graph, position: int, storages: Collection[int]) -> dict[int, Holder]:
    """Return the holders of storages that nothing reads from that moment on."""
    import networkx as nx

    view, tape = view_of(graph), _tape(graph)
    runs = [(place, moment.operator) for place, moment in enumerate(graph.program) if isinstance(moment, Run)]

    def until(index: int) -> int | None:
        died = view.nodes[index]["death"]
        before = -1 if died is None else bisect_left(runs, (died,)) - 1
        return None if before < 0 else runs[before][1]

    ends = {index: until(index) for index in storages}
    together = set(ends.values())
    results = []
    for index in range(len(graph.storages)):
        born, died = view.nodes[index]["birth"], view.nodes[index]["death"]
        if born is not None and born <= position and (died is None or died > position):
            maker = graph.program[born]
            if (
                isinstance(maker, Run)
                and index in tape
                and ~maker.operator in tape
                and until(index) in together
            ):
                results.append((born, index, maker.operator))
    behind: dict[int, int] = {}
    visited: set[int] = set()
    for _, result, made_by in sorted(results, reverse=True):
        if result not in visited:
            before = nx.ancestors(tape, result) - visited
            visited |= before
            if not any(graph.storages[node].saved for node in before if node >= 0):
                behind |= {index: made_by for index in before & ends.keys() if ends[index] == until(result)}
    held: dict[int, Holder] = {}
    for index, end in ends.items():
        if graph.storages[index].saved and end is not None and graph.operators[end].phase is Phase.BACKWARD:
            held[index] = Holder("autograd", end)
        else:
            held[index] = Holder("graph" if index in behind else "program", behind.get(index), end)
    return held
