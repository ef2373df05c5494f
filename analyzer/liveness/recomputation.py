"""Recomputation: the fewest bytes to keep for the backward pass where the rest may be computed again, as a
minimum cut of the graph's view.

1. A storage of the forward pass that backward reads (`saved_for_backward`) is either kept, which takes its
   bytes, or computed again: by the operator that made it and those that wrote into it, from their operands,
   of which the same holds.
2. Storages that are there anyway cost nothing: parameters, buffers, optimizer state, inputs, and those that
   are kept in any case.
3. An operator that is not to run again has its results kept, or storages that follow from them; so has one
   whose operands another operator has written into since.
4. The fewest bytes are a **minimum cut** between the storages that are there and those backward reads, each
   with its bytes as its capacity; the operators behind the cut are those that run again.

Source: PyTorch's partitioner, which cuts the graphs of `torch.compile` so
(`torch/_functorch/partitioners.py`, `min_cut_rematerialization_partition`).

Not modelled: what is alive while operators run again; when in the backward pass they do; the time they take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from analyzer.graph import Category, Graph, Operator, Phase, Run, view_of

_THERE = frozenset({Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.INPUT})
_FORWARD = frozenset({Phase.FORWARD, Phase.LOSS})


@dataclass(frozen=True, slots=True)
class Recomputation:
    """saved_bytes: what backward reads. kept_bytes: the least of it, or of what it follows from, that must be
    kept. operators: the indices of those that run again, in order."""

    saved_bytes: int
    kept_bytes: int
    operators: tuple[int, ...]


def recomputation(
    graph: Graph, saved: Collection[int], again: Callable[[Operator], bool], kept: Collection[int] = ()
) -> Recomputation:
    """Return the fewest bytes of `saved` to keep if operators with `again` true may rerun.

    kept: storages that are kept in any case.
    """
    import networkx as nx

    cuts = nx.DiGraph([((index, "kept"), "backward") for index in saved])
    cuts.add_nodes_from(("there", "backward"))
    pending, visited = list(saved), set(saved)
    while pending:
        index = pending.pop()
        cuts.add_edge((index, "made"), (index, "kept"), capacity=graph.storages[index].nbytes)
        operands = _operands(graph, index, again)
        if operands is None:
            cuts.add_edge("there", (index, "made"))
            continue
        for maker, read in operands:
            cuts.add_edge(maker, (index, "made"))
            if read is not None and read not in kept:
                cuts.add_edge((read, "kept"), maker)
                if read not in visited:
                    visited.add(read)
                    pending.append(read)
    least, (before, _) = nx.minimum_cut(cuts, "there", "backward")
    behind = sorted(~node for node in cuts if isinstance(node, int) and node not in before)
    return Recomputation(sum(graph.storages[index].nbytes for index in saved), least, tuple(behind))


def _operands(
    graph: Graph, index: int, again: Callable[[Operator], bool]
) -> list[tuple[int, int | None]] | None:
    """Return (maker, storage read) node pairs that recompute a storage, None for a read without cost; None if
    it cannot be made again."""
    view = view_of(graph)
    if not isinstance(graph.program[view.nodes[index]["birth"]], Run):
        return None
    operands: list[tuple[int, int | None]] = []
    for maker in _writers(graph, index):
        if not again(graph.operators[~maker]):
            return None
        operands.append((maker, None))
        for read in view.pred[maker]:
            storage = graph.storages[read]
            if read == index or storage.category in _THERE or not storage.on_device:
                continue
            if any(~writer > ~maker for writer in _writers(graph, read)):
                return None
            operands.append((maker, read))
    return operands


def _writers(graph: Graph, index: int) -> list[int]:
    """Return the nodes of the forward pass that make a storage or write into it."""
    return [node for node in view_of(graph).pred[index] if graph.operators[~node].phase in _FORWARD]
