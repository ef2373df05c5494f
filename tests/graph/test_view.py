"""The networkx view on a program written by hand."""

from __future__ import annotations

import pickle
from dataclasses import replace

import networkx as nx
import pytest

from analyzer import pipeline
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
    view_of,
)
from analyzer.liveness.lifetimes import lifetimes, peak
from analyzer.options import Options
from tests.paths import MODELS


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
    """Storage i is the node i, operator j the node ~j."""
    view = to_networkx(example())
    assert set(view.edges(data="kind")) == {
        (0, ~0, "read"),
        (1, ~0, "read"),
        (~0, 2, "birth"),
        (2, ~1, "saved"),
        (~1, 3, "birth"),
        (0, ~2, "read"),
        (3, ~2, "read"),
        (~2, 0, "write"),
    }


def test_places() -> None:
    view = to_networkx(example())
    assert [view.nodes[~i]["position"] for i in range(3)] == [2, 3, 5]
    assert [view.nodes[i]["birth"] for i in range(4)] == [0, 1, 2, 3]
    assert [view.nodes[i]["death"] for i in range(4)] == [None, None, 4, None]


def test_acyclic_without_writes() -> None:
    view = to_networkx(example())
    assert not nx.is_directed_acyclic_graph(view)
    written = [(a, b) for a, b, kind in view.edges(data="kind") if kind == "write"]
    assert nx.is_directed_acyclic_graph(nx.restricted_view(view, [], written))
    assert nx.descendants(view, 2) >= {~1, 3, ~2}


def test_what_never_runs_has_no_place_and_no_edges() -> None:
    graph = Graph("onnx", (Storage(0, 1, Category.ACTIVATION),), (Operator(0, "op", (), (meta(0),)),), ())
    view = to_networkx(graph)
    assert view.nodes[~0]["position"] is None and view.nodes[0]["birth"] is None
    assert view.number_of_edges() == 0


def test_it_is_made_once_and_stays_as_it_is() -> None:
    graph = example()
    view = view_of(graph)
    assert view_of(graph) is view
    assert graph == example() and "derived" not in repr(graph)
    with pytest.raises(nx.NetworkXError):
        view.remove_node(0)
    assert view_of(replace(graph, batch=3)).graph == {"framework": "pytorch", "batch": 3}


def test_edges_of_a_kind_share_their_attributes() -> None:
    """A program has more edges than anything else: a dictionary each would be most of what the view takes."""
    view = pickle.loads(pickle.dumps(to_networkx(example())))
    for graph in (to_networkx(example()), view):
        assert len({id(data) for _, _, data in graph.edges(data=True)}) == 4


def test_an_analysis_makes_one_view_and_liveness_walks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is elsewhere in the view is where a storage's range ends: nothing else is asked who reads what."""
    asked: list[Graph] = []
    monkeypatch.setattr(
        "analyzer.graph.view.to_networkx", lambda graph: asked.append(graph) or to_networkx(graph)
    )
    for runtime in (None, "tensorflow"):  # whose executor asks for the live ranges of a graph of its own
        found = pipeline.analysis(MODELS / "cnn.onnx", Options(batch=2, device="h200", runtime=runtime))
        assert found.estimate.graph_peak == peak(found.graph).nbytes
        assert any(graph is found.graph for graph in asked) and len({id(graph) for graph in asked}) == len(
            asked
        )
    graph = example()
    before = lifetimes(graph).last
    other = nx.DiGraph(view_of(graph))
    other.nodes[~2]["position"] -= 1
    graph.derived["view"] = other
    assert lifetimes(graph).last == (*before[:3], before[3] - 1)
