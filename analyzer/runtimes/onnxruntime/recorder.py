"""Collects what sessions ask of their arena, while they are followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from analyzer.graph import Category
from analyzer.runtimes.events import AllocationEvent, Free, Malloc
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels.scratch import KernelSettings, Takes, scratch, unknown
from analyzer.runtimes.onnxruntime.kernels.scratch.convolution import doubt
from analyzer.runtimes.onnxruntime.kernels.scratch.lanes import scratch_in_lanes
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.rules import CONVOLUTION, MEMORY_PATTERN, scratch_rule

FIRST_RUN = 1
# A kernel's requests, whether its operator is unknown, and bytes in doubt, by its graph's identity and its
# index: the same in every run.
KernelTakes: TypeAlias = dict[tuple[int, int], tuple[Takes, bool, int]]


@dataclass(frozen=True, slots=True)
class KernelMark:
    """Range of events of one kernel: outputs and scratch, before the releases; compared with a profile.

    run: from 1. top: whether the kernel belongs to the outermost graph.
    """

    node: Node
    first_event: int
    last_event: int
    run: int
    top: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """Allocation events of a session. unknown: operators without a rule, name -> calls per run.

    contents: for the block of a memory pattern, by its request's key, the graph and what lies in it when it
    is fullest.
    graphs: the outermost graph each request was made for, by its key.
    """

    events: tuple[AllocationEvent, ...]
    kernels: tuple[KernelMark, ...]
    unknown: Mapping[str, int]
    contents: Mapping[int, tuple[RuntimeGraph, tuple[tuple[str, int], ...]]]
    graphs: Mapping[int, RuntimeGraph]

    def bounded_bytes(self) -> int:
        """Return the most bytes at once that are there only if values make them so many: results and scratch
        of a bounded size. A convolution's workspace is no such thing."""
        alive: dict[int, int] = {}
        now = most = 0
        for event in self.events:
            if isinstance(event, Malloc):
                graph, members = self.contents.get(event.key, (None, ()))
                within = sum(size for name, size in members if graph and graph.values[name].bounded)
                is_bounded = event.basis == "bounded" and event.rule != CONVOLUTION
                alive[event.key] = event.nbytes if is_bounded else within
                now += alive[event.key]
                most = max(most, now)
            elif isinstance(event, Free):
                now -= alive.pop(event.key, 0)
        return most


@dataclass(slots=True)
class SessionRecorder:
    """A `Recording` in the making. graph: outermost one followed. stream: of the requests. refused: the keys
    of memory patterns' blocks without room, which the sessions go on without."""

    settings: KernelSettings
    options: SessionOptions
    lane_count: int = 0
    refused: frozenset[int] = frozenset()
    events: list[AllocationEvent] = field(default_factory=list)
    kernels: list[KernelMark] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)
    contents: dict[int, tuple[RuntimeGraph, tuple[tuple[str, int], ...]]] = field(default_factory=dict)
    graphs: dict[int, RuntimeGraph] = field(default_factory=dict)
    # Outputs that stay, by the frame's identity.
    bound: dict[int, dict[str, int]] = field(default_factory=dict)
    takes: KernelTakes = field(default_factory=dict)
    stream: int | None = None
    graph: RuntimeGraph | None = None
    _keys: int = 0

    def take(
        self,
        nbytes: int,
        category: Category,
        label: str,
        operator: int = -1,
        basis: str = "exact",
        *,
        rule: str,
        outside_pools: bool = False,
        assumed: int = 0,
    ) -> int:
        """Record a request, by the rule named (`rules`); return its key."""
        key = self._keys
        self._keys += 1
        if self.graph is not None:
            self.graphs[key] = self.graph
        storage = -1 if category in (Category.SCRATCH, Category.WORKSPACE) else key
        self.events.append(
            Malloc(
                key,
                nbytes,
                category,
                operator,
                storage,
                basis,
                label,
                self.stream,
                outside_pools,
                rule=rule,
                assumed=assumed,
            )
        )
        return key

    def take_block(self, nbytes: int) -> int | None:
        """Record the request for a memory pattern's block; return its key, None if it is refused."""
        if self._keys in self.refused:
            self._keys += 1
            return None
        return self.take(nbytes, Category.ACTIVATION, "memory pattern", rule=MEMORY_PATTERN)

    def give(self, key: int) -> None:
        """Record that a request's memory is freed."""
        self.events.append(Free(key))

    def counts(self, on_host: bool) -> bool:
        """Return whether a buffer there comes from the arena that is predicted."""
        return self.settings.provider == "cpu" or not on_host

    def scratch(self, node: Node, graph: RuntimeGraph, number: int) -> list[int]:
        """Return the kernel's scratch, in order."""
        if not self.counts(node.provider == "cpu"):
            return []
        requests = self.takes.get((id(graph), node.index))
        if requests is None:
            takes = scratch_in_lanes(scratch, node, graph, self.settings, self.lane_count)
            is_bounded = scratch_rule(node) == CONVOLUTION and any(basis == "bounded" for _, basis in takes)
            requests = takes, unknown(node), doubt(node, graph, self.settings) if is_bounded else 0
            self.takes[id(graph), node.index] = requests
        takes, is_unknown, doubtful = requests
        if is_unknown and number == FIRST_RUN:
            self.unknown[node.operator] = self.unknown.get(node.operator, 0) + 1
        rule = scratch_rule(node)
        return [
            self.take(
                nbytes,
                Category.SCRATCH,
                f"{node.name or node.op} scratch",
                node.index,
                basis,
                rule=rule,
                assumed=doubtful if basis == "bounded" else 0,
            )
            for nbytes, basis in takes
        ]
