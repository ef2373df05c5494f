"""The graph as networkx sees it: operators and storages as nodes, reads and writes as edges.

Nodes are ("operator", i) and ("storage", i) with the frozen value as attribute `value`. An edge storage → operator is
a read, operator → storage a write or a birth (attribute `kind`: "read", "write", "birth", "saved"); a storage that
autograd saves for an operator of the backward pass has its read edge marked "saved".
"""

from __future__ import annotations

import networkx as nx

from analyzer.graph.model import Graph, Phase


def to_networkx(graph: Graph) -> nx.DiGraph:
    """A bipartite directed graph of operators and storages (see the module docstring)."""
    view = nx.DiGraph(framework=graph.framework, batch=graph.batch)
    view.add_nodes_from((("storage", storage.index), {"value": storage}) for storage in graph.storages)
    born = {moment.storage for moment in graph.program if hasattr(moment, "storage")} - {
        output.storage for operator in graph.operators for output in operator.outputs if output is not None
    }
    for operator in graph.operators:
        node = ("operator", operator.index)
        view.add_node(node, value=operator)
        for tensor in operator.inputs:
            saved = operator.phase is Phase.BACKWARD and graph.storages[tensor.storage].saved
            view.add_edge(("storage", tensor.storage), node, kind="saved" if saved else "read")
        for storage in operator.writes:
            view.add_edge(node, ("storage", storage), kind="write")
        for output in operator.outputs:
            if output is not None and output.storage not in born:
                born.add(output.storage)
                view.add_edge(node, ("storage", output.storage), kind="birth")
    return view
