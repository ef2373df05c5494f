"""The networkx view on a program written by hand."""

from __future__ import annotations

import networkx as nx

from analyzer.graph import (
    Birth,
    Category,
    Death,
    Graph,
    Operator,
    Phase,
    Run,
    Storage,
    TensorMeta,
    to_networkx,
)


def meta(storage: int) -> TensorMeta:
    return TensorMeta(storage, (1,), (1,), "float32")


def example() -> Graph:
    """w and x from outside; a = mul(x, w) saved; backward reads a; an update writes w in place and returns it."""
    storages = (
        Storage(0, 4, Category.PARAMETER),
        Storage(1, 4, Category.INPUT),
        Storage(2, 4, Category.SAVED, saved=True),
        Storage(3, 4, Category.GRADIENT),
    )
    operators = (
        Operator(0, "mul", (meta(1), meta(0), (meta(1), None, 2)), (meta(2),)),
        Operator(1, "mul_backward", (meta(2),), (meta(3),), phase=Phase.BACKWARD),
        Operator(2, "add_", (meta(0),), (meta(0),), {"other": meta(3)}, writes=(0,), phase=Phase.OPTIMIZER),
    )
    return Graph(
        "pytorch", storages, operators, (Birth(0), Birth(1), Run(0), Run(1), Death(2), Run(2))
    ).check()


def test_edges() -> None:
    view = to_networkx(example())
    assert {(a, b, data["kind"]) for a, b, data in view.edges(data=True)} == {
        (("storage", 0), ("operator", 0), "read"),
        (("storage", 1), ("operator", 0), "read"),
        (("operator", 0), ("storage", 2), "birth"),
        (("storage", 2), ("operator", 1), "saved"),
        (("operator", 1), ("storage", 3), "birth"),
        (("storage", 0), ("operator", 2), "read"),
        (("storage", 3), ("operator", 2), "read"),
        (("operator", 2), ("storage", 0), "write"),
    }


def test_places() -> None:
    graph = example()
    view = to_networkx(graph)
    assert [view.nodes["operator", i]["position"] for i in range(3)] == [2, 3, 5]
    assert [view.nodes["storage", i]["birth"] for i in range(4)] == [0, 1, 2, 3]
    assert [view.nodes["storage", i]["death"] for i in range(4)] == [None, None, 4, None]
    assert view.nodes["operator", 1]["value"] is graph.operators[1]
    assert view.nodes["storage", 3]["value"] is graph.storages[3]


def test_acyclic_without_writes() -> None:
    view = to_networkx(example())
    assert not nx.is_directed_acyclic_graph(view)
    written = [(a, b) for a, b, kind in view.edges(data="kind") if kind == "write"]
    assert nx.is_directed_acyclic_graph(nx.restricted_view(view, [], written))
    assert nx.descendants(view, ("storage", 2)) >= {("operator", 1), ("storage", 3), ("operator", 2)}


def test_what_never_runs_has_no_place() -> None:
    graph = Graph("onnx", (Storage(0, 1, Category.ACTIVATION),), (Operator(0, "op", (), (meta(0),)),), ())
    view = to_networkx(graph)
    assert view.nodes["operator", 0]["position"] is None
    assert view.nodes["storage", 0]["birth"] is None
