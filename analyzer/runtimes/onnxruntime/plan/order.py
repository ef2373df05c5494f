"""The order in which ONNX Runtime executes nodes.

1. Topological order is a reverse depth-first search. The stack starts with the leaves (nodes nobody reads) in
   index order; the last is taken first. A node is left after all its producers; at each node the unvisited
   producers are stacked in index order, so the one with the highest index is followed first.
   Source: `core/graph/graph_viewer.cc` (`GraphViewer`), `core/graph/graph.cc` (`Graph::ReverseDFSFrom`).
2. Nodes are split into one logical stream a device type, in the order the types first appear. Each stream
   runs until a node needs something another stream has not made yet (a barrier); a node that others wait for
   lets them go on at once. On one thread this decides the order of kernels across streams.
   Source: `core/framework/allocation_planner.cc` (`DeviceBasedPartitioner`, `BuildExecutionPlan`),
   `core/framework/sequential_executor.cc` (`ExecuteThePlan`, `ScheduleDownstream`).

Not modelled: ORT_PARALLEL execution, a user's partition configuration file, ExecutionOrder::PRIORITY_BASED.
"""

from __future__ import annotations

from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph


def topological(graph: RuntimeGraph) -> list[Node]:
    """Return the nodes by a reverse depth-first search from the leaves, highest index first."""
    producers = graph.producers()
    feeds: dict[int, list[int]] = {}
    read: set[int] = set()
    for node in graph.nodes.values():
        sources = {producers[name].index for name in (*node.inputs, *node.implicit) if name in producers}
        feeds[node.index] = sorted(sources)
        read |= sources
    stack = [(index, False) for index in sorted(graph.nodes) if index not in read]
    visited: set[int] = set()
    result: list[Node] = []
    while stack:
        index, leave = stack.pop()
        if leave:
            result.append(graph.nodes[index])
            continue
        if index in visited:
            continue
        visited.add(index)
        stack.append((index, True))
        stack.extend((source, False) for source in feeds[index] if source not in visited)
    return result


def streams(order: list[Node]) -> list[list[Node]]:
    """Split the order into a stream per device type, by first appearance; nodes keep their order."""
    by_device: dict[str, list[Node]] = {}
    for node in order:
        by_device.setdefault(node.provider, []).append(node)
    return list(by_device.values())


def execution(graph: RuntimeGraph, order: list[Node]) -> list[Node]:
    """Return the order of kernels on one thread: each stream until it waits for another."""
    lanes = streams(order)
    if len(lanes) == 1:
        return order
    lane_of = {node.index: lane for lane, nodes in enumerate(lanes) for node in nodes}
    producers = graph.producers()
    # Steps of each lane: ("wait", barrier) before a node, ("run", node), ("signal", node) after it.
    steps: list[list[tuple[str, int]]] = [[] for _ in lanes]
    downstream: dict[int, list[tuple[int, int]]] = {}
    pending: dict[int, int] = {}
    for lane, nodes in enumerate(lanes):
        for node in nodes:
            sources = dict.fromkeys(
                producers[n].index for n in (*node.inputs, *node.implicit) if n in producers
            )
            for source in sources:
                if lane_of[source] != lane:
                    downstream.setdefault(source, []).append((lane, len(steps[lane])))
                    pending[len(pending)] = 2
                    steps[lane].append(("wait", len(pending) - 1))
            steps[lane].append(("run", node.index))
    for lane_steps in steps:
        for kind, index in lane_steps:
            assert kind == "wait" or index in graph.nodes
    result: list[Node] = []
    work: list[tuple[int, int, int]] = [(lane, 0, -1) for lane in reversed(range(len(lanes)))]
    while work:
        lane, place, signal = work.pop()
        # signal >= 0: a node whose remaining downstream lanes still have to be started, from position
        # `place`.
        if signal >= 0:
            targets = downstream[signal]
            if place < len(targets):
                work.append((lane, place + 1, signal))
                work.append((*targets[place], -1))
            continue
        while place < len(steps[lane]):
            kind, index = steps[lane][place]
            place += 1
            if kind == "wait":
                pending[index] -= 1
                if pending[index]:
                    break
                continue
            result.append(graph.nodes[index])
            if index in downstream:
                work.append((lane, place, -1))
                work.append((lane, 0, index))
                break
    return result
