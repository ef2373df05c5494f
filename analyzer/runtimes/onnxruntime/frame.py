"""A graph ready to run: loaded, optimised and planned once, as often as it is run, its subgraphs too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.releases import RECORDED, Release
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch import takes_scratch
from analyzer.runtimes.onnxruntime.load import load
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.plan.order import execution, streams, topological
from analyzer.runtimes.onnxruntime.plan.planner import BufferPlan, plan
from analyzer.runtimes.onnxruntime.rewrite import optimise


@dataclass(frozen=True, slots=True)
class Frame:
    """A graph ready to run: plan, order, readers before each release, subgraphs by node.

    takers: the nodes, by index, whose kernels may take scratch.
    """

    graph: RuntimeGraph
    plan: BufferPlan
    order: tuple[Node, ...]
    waits: Mapping[str, int]
    bodies: Mapping[tuple[int, str], Frame]
    takers: frozenset[int]

    def walk(self) -> Iterator[Frame]:
        """Yield this frame and those of all subgraphs."""
        yield self
        for inner in self.bodies.values():
            yield from inner.walk()


def frame(graph: RuntimeGraph, options: SessionOptions, loop_body: bool = False) -> Frame:
    """Plan a graph and its subgraphs."""
    ordered = topological(graph)
    planned = plan(graph, streams(ordered), options.enable_mem_reuse, loop_body)
    waits: dict[str, int] = {}
    for buffers in planned.release.values():
        for name in buffers:
            waits[name] = waits.get(name, 0) + 1
    bodies = {
        (node.index, attribute): frame(body, options, node.op == "Loop")
        for node in graph.nodes.values()
        for attribute, body in node.bodies.items()
    }
    takers = frozenset(node.index for node in graph.nodes.values() if takes_scratch(node))
    return Frame(graph, planned, tuple(execution(graph, ordered)), waits, bodies, takers)


def prepare(
    path_or_model: Any,
    batch: int | None,
    options: SessionOptions,
    inputs: Any = None,
    release: Release = RECORDED["onnxruntime"],
) -> Frame:
    """Load, optimise as a release does, and plan. Raises TargetError and InputError."""
    return frame(rewritten(path_or_model, batch, options, inputs, release), options)


def rewritten(
    path_or_model: Any,
    batch: int | None,
    options: SessionOptions,
    inputs: Any = None,
    release: Release = RECORDED["onnxruntime"],
) -> RuntimeGraph:
    """Load and optimise. Raises as `prepare`."""
    graph = load(path_or_model, batch, inputs)
    level, nhwc = options.graph_optimization_level, options.prefer_nhwc
    optimise(graph, options.provider, level, nhwc=nhwc, release=release)
    return graph
