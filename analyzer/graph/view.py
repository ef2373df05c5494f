"""The graph as networkx sees it: operators and storages as nodes, reads and writes as edges.

1. Nodes are ("operator", i) and ("storage", i), with the frozen value as attribute `value` and with places in
   `Graph.program`: an operator's `position` is its `Run` (None if it never runs); a storage's `birth` is its `Birth`
   or the `Run` that makes it, and its `death` is its `Death` (None if there is none).
2. An edge storage → operator is a read, of `kind` "saved" where an operator of the backward pass reads what autograd
   saved for it, else "read". An edge operator → storage is of `kind` "birth" where the operator makes the storage,
   else "write".
3. Several reads of one storage by one operator are one edge. In-place operators make cycles of two nodes; without
   the "write" edges the graph is acyclic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from analyzer.graph.model import Birth, Death, Graph, Phase, Run, storages_in

if TYPE_CHECKING:
    import networkx as nx

Node: TypeAlias = tuple[str, int]


def to_networkx(graph: Graph) -> nx.DiGraph:
    """A bipartite directed graph of operators and storages (see the module docstring)."""
    storages = graph.storages
    birth: list[int | None] = [None] * len(storages)
    death: list[int | None] = [None] * len(storages)
    ran: list[int | None] = [None] * len(graph.operators)
    made: set[tuple[int, int]] = set()
    for position, moment in enumerate(graph.program):
        match moment:
            case Birth(storage):
                birth[storage] = position
            case Run(index):
                ran[index] = position
                for output in graph.operators[index].outputs:
                    if output is not None and birth[output.storage] is None:
                        birth[output.storage] = position
                        made.add((index, output.storage))
            case Death(storage):
                death[storage] = position
    import networkx as nx  # most runs never need it, and importing it takes longer than reading a model

    view = nx.DiGraph(framework=graph.framework, batch=graph.batch)
    storage_nodes: list[Node] = [("storage", index) for index in range(len(storages))]
    for node, storage_value, born, died in zip(storage_nodes, storages, birth, death, strict=True):
        view.add_node(node, value=storage_value, birth=born, death=died)
    edges: list[tuple[Node, Node, dict[str, str]]] = []
    for operator in graph.operators:
        node = ("operator", operator.index)
        view.add_node(node, value=operator, position=ran[operator.index])
        backward = operator.phase is Phase.BACKWARD
        for storage in storages_in(operator):
            kind = _SAVED if backward and storages[storage].saved else _READ
            edges.append((storage_nodes[storage], node, kind))
        changed = {output.storage for output in operator.outputs if output is not None}.union(operator.writes)
        for storage in changed:
            if (operator.index, storage) in made:
                edges.append((node, storage_nodes[storage], _BIRTH))
            elif storage in operator.writes:
                edges.append((node, storage_nodes[storage], _WRITE))
    view.add_edges_from(edges)
    return view


_SAVED, _READ, _BIRTH, _WRITE = ({"kind": kind} for kind in ("saved", "read", "birth", "write"))
