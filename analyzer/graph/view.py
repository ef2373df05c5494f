"""The graph as networkx sees it: operators and storages as nodes, reads and writes as edges. Liveness walks
it.

1. Storage i is the node i, operator j the node ~j (-1 - j): small integers, which networkx finds quickest and
   which cost nothing. Places in `Graph.program` are attributes: an operator's `position` is its `Run` (None
   if it never runs: it has no edges); a storage's `birth` is its `Birth` or the `Run` that makes it, and its
   `death` its `Death` (None where there is none).
2. An edge storage → operator is a read, of `kind` "saved" where an operator of the backward pass reads what
   autograd saved for it, else "read". An edge operator → storage is of `kind` "birth" where the operator
   makes the storage, else "write".
3. Several reads of one storage by one operator are one edge. In-place operators make cycles of two nodes;
   without the "write" edges the graph is acyclic.
4. It is made once a graph, when it is first asked for (`view_of`), and cannot be changed. Edges of a kind
   share their attributes (as networkx' documentation has it for many edges alike).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.graph.model import Birth, Death, Graph, Phase, Run, storages_in

if TYPE_CHECKING:
    import networkx as nx


def view_of(graph: Graph) -> nx.DiGraph:
    """Return the graph's view: the one that is there, or a new one."""
    if "view" not in graph.derived:
        graph.derived["view"] = to_networkx(graph)
    return graph.derived["view"]


def to_networkx(graph: Graph) -> nx.DiGraph:
    """Return a bipartite directed graph of storages and operators (see the module docstring)."""
    birth: list[int | None] = [None] * len(graph.storages)
    death: list[int | None] = [None] * len(graph.storages)
    ran: list[int | None] = [None] * len(graph.operators)
    edges: dict[str, list[tuple[int, int]]] = {"read": [], "saved": [], "birth": [], "write": []}
    for position, moment in enumerate(graph.program):
        match moment:
            case Birth(storage):
                birth[storage] = position
            case Run(index):
                ran[index] = position
                operator = graph.operators[index]
                backward = operator.phase is Phase.BACKWARD
                for storage in storages_in(operator):
                    kind = "saved" if backward and graph.storages[storage].saved else "read"
                    edges[kind].append((storage, ~index))
                for output in operator.outputs:
                    if output is not None and birth[output.storage] is None:
                        birth[output.storage] = position
                        edges["birth"].append((~index, output.storage))
                for storage in operator.writes:
                    if birth[storage] != position:
                        edges["write"].append((~index, storage))
            case Death(storage):
                death[storage] = position
    import networkx as nx  # importing it takes longer than reading a model, which light paths do without

    view = nx.DiGraph(framework=graph.framework, batch=graph.batch)
    view.add_nodes_from(
        (index, {"birth": born, "death": died})
        for index, (born, died) in enumerate(zip(birth, death, strict=True))
    )
    view.add_nodes_from((~index, {"position": position}) for index, position in enumerate(ran))
    for kind, pairs in edges.items():
        alike = {"kind": kind}
        view.edge_attr_dict_factory = lambda alike=alike: alike
        view.add_edges_from(pairs)
    del view.edge_attr_dict_factory  # the class has its own
    return nx.freeze(view)
