"""A kernel's scratch where dimensions are `Lanes` (`parametric/lanes.py`): one whole number for each of many
batches.

A rule that decides alike for all batches is asked once. Otherwise it is asked for those that it decides alike
for, and for one batch after the other where it needs a single number; the answers are joined again. Where a
kernel takes memory fewer times at some batch than at others, the last have no bytes there: an arena has no
chunk for such a request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analyzer.parametric.lanes import Integers, Lanes, in_parts
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch.registry import Estimate, KernelSettings, Takes


def scratch_in_lanes(
    rule: Estimate, node: Node, graph: RuntimeGraph, settings: KernelSettings, lane_count: int
) -> Takes:
    """Return the rule's scratch for a node; sizes may be `Lanes`, zero in lanes without the request."""
    if not lane_count:
        return rule(node, graph, settings)

    def ask(lanes: Integers) -> Takes:
        part = graph if len(lanes) == lane_count > 1 else _graph_in_lanes(lanes, node, graph)
        return rule(node, part, settings)

    by_lanes = list(in_parts(np.arange(lane_count), ask))
    return by_lanes[0][1] if len(by_lanes) == 1 else _joined(by_lanes, lane_count)


def _graph_in_lanes(lanes: Integers, node: Node, graph: RuntimeGraph) -> RuntimeGraph:
    """Return the graph with the node's values as they are in these lanes alone."""

    def there(size: Any) -> Any:
        if not isinstance(size, Lanes):
            return size
        return Lanes(size.values[lanes]) if len(lanes) > 1 else int(size.values[lanes[0]])

    values = dict(graph.values)
    for name in (*node.inputs, *node.outputs, *node.implicit):
        if name and values[name].shape is not None:
            values[name] = replace(
                values[name], shape=tuple([there(size) for size in values[name].shape or ()])
            )
    return replace(graph, values=values)


def _joined(by_lanes: list[tuple[Integers, Takes]], lane_count: int) -> Takes:
    """Join the requests of all lanes, with the basis of the part that has most."""
    takes = max((takes for _, takes in by_lanes), key=len)
    sizes = np.zeros((len(takes), lane_count), np.int64)
    for lanes, there in by_lanes:
        requests: list[tuple[Any, str]] = [*there]
        for place, (nbytes, _) in enumerate(requests):
            sizes[place, lanes] = nbytes.values if isinstance(nbytes, Lanes) else nbytes
    joined: list[Any] = [(Lanes(size), basis) for size, (_, basis) in zip(sizes, takes, strict=True)]
    return joined
