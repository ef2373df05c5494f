"""One session as allocation events: initializers, a first run, a steady run.

1. **Session**: every initializer used on the device is taken from the arena by itself, in an order that is a hash
   table's and changes from process to process (here: the file's; `prediction` shuffles).
   With `use_device_allocator_for_initializers` each is one device allocation outside the arena's regions. The CPU
   provider reserves initializers up to 127 bytes and its packed weights; larger ones stay where the file was loaded.
2. **Run**: inputs used on the device are copied there; then kernels run in order: outputs that have buffers of their
   own (`planner`), scratch while the kernel runs (`scratch`), then the releases of the plan. What the caller gets, the
   copies of inputs and buffers nobody reads live to the end of the run.
3. The first run takes each buffer from the arena and records the memory pattern (`pattern`); every later run with the
   same input shapes takes the pattern's block at its start instead. Outputs and scratch stay apart.
4. A subgraph has a plan and a pattern of its own and runs inside its node: If the branch that is counted, Loop and
   Scan twice, so that what the first iteration carries meets the second; its outputs are the node's.

Source: `core/framework/session_state_utils.cc`, `execution_frame.cc`, `utils.cc` (CopyInputsAcrossDevices),
`core/providers/cpu/controlflow`. Checked kernel by kernel on CPU and H200 (`tests/test_ort_*.py`).
Not modelled: IO binding, several streams, run-to-run changes of shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from analyzer.graph import Category
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.onnxruntime.arena import Requests
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.kernels.scratch import (
    Settings,
    before_outputs,
    scratch,
    unknown,
)
from analyzer.runtimes.onnxruntime.options import Options
from analyzer.runtimes.onnxruntime.plan.order import execution, streams, topological
from analyzer.runtimes.onnxruntime.plan.pattern import Pattern
from analyzer.runtimes.onnxruntime.plan.planner import Kind, Plan, plan
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC

_INLINE_BYTES = 127
_OWN = (Kind.ALLOCATE, Kind.OUTPUT)
_ITERATIONS = 2


@dataclass(slots=True)
class Frame:
    """A graph ready to run: plan, order, readers left for each release, the pattern once recorded."""

    graph: RuntimeGraph
    plan: Plan
    order: list[Node]
    waits: dict[str, int]
    bodies: dict[tuple[int, str], Frame]
    pattern: Pattern | None = None


def frame(graph: RuntimeGraph, options: Options, loop_body: bool = False) -> Frame:
    """Plan a graph and its subgraphs."""
    ordered = topological(graph)
    lanes = streams(ordered)
    planned = plan(graph, lanes, options.enable_mem_reuse, loop_body)
    waits: dict[str, int] = {}
    for buffers in planned.release.values():
        for name in buffers:
            waits[name] = waits.get(name, 0) + 1
    bodies = {
        (node.index, attribute): frame(body, options, node.op == "Loop")
        for node in graph.nodes.values()
        for attribute, body in node.bodies.items()
    }
    return Frame(graph, planned, execution(graph, ordered), waits, bodies)


@dataclass(slots=True)
class KernelMark:
    """After the kernel's outputs are taken (before releases): position in the events, to compare with a profile."""

    node: Node
    first_event: int
    last_event: int
    run: int
    top: bool = True


@dataclass(slots=True)
class Recorder:
    """Collects events; `requests` says which are special (`arena`)."""

    settings: Settings
    options: Options
    events: list[AllocationEvent] = field(default_factory=list)
    reserved: set[int] = field(default_factory=set)
    outside: set[int] = field(default_factory=set)
    starts: set[int] = field(default_factory=set)
    kernels: list[KernelMark] = field(default_factory=list)
    unknown: dict[str, tuple[int, int]] = field(default_factory=dict)
    _keys: int = 0
    _stream_free: bool = True
    _run: int = 0

    @property
    def requests(self) -> Requests:
        """The special requests so far."""
        return Requests(frozenset(self.reserved), frozenset(self.outside), frozenset(self.starts))

    def take(
        self,
        nbytes: int,
        category: Category,
        label: str,
        operator: int = -1,
        basis: str = "exact",
        *,
        past: bool = False,
    ) -> int:
        """A request; returns its key."""
        key = self._keys
        self._keys += 1
        if past:
            self.reserved.add(key)
        if self._stream_free:
            self.outside.add(key)
        storage = -1 if category in (Category.SCRATCH, Category.WORKSPACE) else key
        self.events.append(Malloc(key, nbytes, category, operator, storage, basis, label))
        return key

    def give(self, key: int) -> None:
        """The request's memory is given back."""
        self.events.append(Free(key))

    def counts(self, on_host: bool) -> bool:
        """Whether a buffer there comes from the arena that is predicted."""
        return self.settings.provider == "cpu" or not on_host

    def session(self, whole: Frame) -> None:
        """Rule 1."""
        keys: dict[str, int] = {}
        for graph, planned in _all(whole):
            names = [name for name in graph.initializers if name in planned.placements]
            if self.settings.provider == "cpu":
                for name in names:
                    nbytes = graph.values[name].nbytes
                    if 0 < nbytes <= _INLINE_BYTES:
                        self.take(nbytes, Category.PARAMETER, name, past=True)
                continue
            names = [name for name in names if not planned.placements[name].on_host]
            past = self.options.use_device_allocator_for_initializers
            for name in names:
                keys[name] = self.take(graph.values[name].nbytes, Category.PARAMETER, name, past=past)
        for graph, _ in _all(whole):
            packed: set[tuple[str, str, int]] = set()
            for node in graph.nodes.values():
                for name, nbytes, basis in packing.packed(node, graph):
                    key = self.take(
                        nbytes,
                        Category.WORKSPACE,
                        f"{node.name} packed weights",
                        node.index,
                        basis,
                        past=node.op != "ConvTranspose",
                    )
                    same = (node.op, name, int(node.attributes.get("transB", 0)))
                    if same in packed:
                        self.give(key)
                    packed.add(same)
                for nbytes in packing.cached(node, graph, self.settings.device):
                    self.take(
                        nbytes, Category.WORKSPACE, f"{node.name} weights in cuDNN's layout", node.index
                    )
                self._repack(node, graph, keys)
        self.events.append(Event("session"))

    def _repack(self, node: Node, graph: RuntimeGraph, keys: dict[str, int]) -> None:
        """Channels-last convolutions keep their weights in that order; what only they read is given back."""
        if node.domain != NHWC or node.op not in ("Conv", "ConvTranspose") or node.inputs[1] not in keys:
            return
        name = node.inputs[1]
        self.take(graph.values[name].nbytes, Category.PARAMETER, f"{name} in NHWC", node.index)
        if sum(name in other.inputs for other in graph.nodes.values()) == 1:
            self.give(keys.pop(name))

    def run(self, whole: Frame, number: int) -> None:
        """Rules 2 and 3."""
        feeds: list[int] = []
        graph = whole.graph
        self.starts.add(self._keys)
        self._run = number
        self._stream_free = self.settings.provider == "cpu"
        if self.settings.provider == "cuda":
            for name in graph.inputs:
                place = whole.plan.placements[name]
                if not place.on_host:
                    feeds.append(self.take(graph.values[name].nbytes, Category.INPUT, name))
        running = Running(self, whole, number)
        running.execute()
        for key in (*running.held(), *feeds):
            self.give(key)
        self.events.append(Event(f"run {number}"))

    def scratch(self, node: Node, graph: RuntimeGraph) -> list[int]:
        """The kernel's scratch, in order."""
        if not self.counts(node.provider == "cpu"):
            return []
        takes = scratch(node, graph, self.settings)
        if unknown(node) and self._run == 1:
            name = f"{node.domain}.{node.op}" if node.domain else node.op
            calls, nbytes = self.unknown.get(name, (0, 0))
            self.unknown[name] = (calls + 1, nbytes + sum(size for size, _ in takes))
        return [
            self.take(nbytes, Category.SCRATCH, f"{node.name or node.op} scratch", node.index, basis)
            for nbytes, basis in takes
        ]


class Running:
    """One execution of a graph. `parent`: for a subgraph, who provides its outputs (rule 4)."""

    def __init__(
        self,
        recorder: Recorder,
        current: Frame,
        number: int,
        parent: tuple[Running, Node] | None = None,
        *,
        iteration: bool = False,
    ) -> None:
        self.recorder, self.current, self.number = recorder, current, number
        self.graph = current.graph
        pattern = recorder.options.enable_mem_pattern and not iteration
        self.top = parent is None and not iteration
        self.recording = Pattern() if pattern and current.pattern is None else None
        block = current.pattern if pattern else None
        self.members = block.members if block is not None else set()
        self.living: dict[str, int] = {}
        self.block: list[int] = []
        if block is not None and block.size_bytes:
            self.block.append(recorder.take(block.size_bytes, Category.ACTIVATION, "memory pattern"))
        self.outer = dict(zip(current.graph.outputs, parent[1].outputs, strict=False)) if parent else {}
        self.parent = parent

    def allocate(self, name: str, operator: int) -> None:
        """The value's buffer is needed now, if it has one of its own and none yet."""
        place = self.current.plan.placements.get(name)
        if place is None or place.kind not in _OWN or not self.recorder.counts(place.on_host):
            return
        if self.parent is not None and name in self.outer:
            self.parent[0].allocate(self.outer[name], operator)
            return
        if name in self.members or name in self.living:
            return
        value = self.graph.values[name]
        basis = "bounded" if value.bounded or value.shape is None else "exact"
        self.living[name] = self.recorder.take(value.nbytes, Category.ACTIVATION, name, operator, basis)
        if self.recording is not None and place.kind is Kind.ALLOCATE:
            self.recording.allocate(name, value.nbytes)

    def execute(self) -> None:
        """Run every kernel in order."""
        recorder = self.recorder
        waits = dict(self.current.waits)
        for node in self.current.order:
            first = len(recorder.events)
            if node.op == "If":
                self._branch(node)
            elif node.bodies:
                self._iterate(node)
            taken = recorder.scratch(node, self.graph) if before_outputs(node) else []
            for name in node.outputs:
                if name:
                    self.allocate(name, node.index)
            if not before_outputs(node):
                taken += recorder.scratch(node, self.graph)
            for key in reversed(taken):
                recorder.give(key)
            recorder.kernels.append(KernelMark(node, first, len(recorder.events), self.number, self.top))
            for name in self.current.plan.release.get(node.index, ()):
                waits[name] -= 1
                if not waits[name]:
                    self._release(name)
        if self.recording is not None:
            self.current.pattern = self.recording

    def held(self) -> list[int]:
        """What is still held: the block, outputs, buffers nobody read."""
        return [*self.block, *self.living.values()]

    def _release(self, name: str) -> None:
        if self.recording is not None and name in self.recording.members:
            self.recording.free(name)
        if name in self.living:
            self.recorder.give(self.living.pop(name))

    def _branch(self, node: Node) -> None:
        """If: the branch that is counted writes the node's outputs."""
        for attribute in node.bodies:
            inner = Running(
                self.recorder, self.current.bodies[node.index, attribute], self.number, (self, node)
            )
            inner.execute()
            for key in inner.held():
                self.recorder.give(key)

    def _iterate(self, node: Node) -> None:
        """Loop, Scan: the iteration number and the condition, then two iterations: the second finds what the first
        carries still alive. Iterations use no pattern; the last one's results are copied to the node's outputs."""
        recorder = self.recorder
        counters = []
        if recorder.settings.provider == "cpu" and node.op == "Loop":
            counters = [
                recorder.take(size, Category.ACTIVATION, f"{node.name} counter", node.index)
                for size in (8, 1)
            ]
        carried: list[int] = []
        for _ in range(_ITERATIONS):
            for attribute in node.bodies:
                inner = Running(
                    recorder, self.current.bodies[node.index, attribute], self.number, iteration=True
                )
                inner.execute()
                for key in carried:
                    recorder.give(key)
                carried = inner.held()
        for name in node.outputs:
            if name:
                self.allocate(name, node.index)
        for key in (*carried, *counters):
            recorder.give(key)


def _all(whole: Frame) -> list[tuple[RuntimeGraph, Plan]]:
    found = [(whole.graph, whole.plan)]
    for inner in whole.bodies.values():
        found += _all(inner)
    return found
