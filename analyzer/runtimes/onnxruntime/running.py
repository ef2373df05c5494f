"""One execution of a graph: its kernels' outputs and scratch in order, the releases of the plan, its
subgraphs inside their nodes.

1. A kernel's outputs that have buffers of their own (`planner`) are taken, then its scratch (or first its
   scratch, where the kernel asks before), which goes when it ends; then the releases of the plan.
2. The first execution of a graph takes each buffer from the arena and records the memory pattern (`pattern`);
   a later one with the same shapes takes the pattern's block at its start instead. Outputs and scratch stay
   apart. A block without room is no error: that execution takes each buffer from the arena once more.
3. The branch of an If that is counted writes the node's outputs. The other one is loaded, and does not run.
4. A Loop is followed for two iterations, so that what the first carries meets the second; iterations beyond
   add what they make for the node's outputs. A Scan is followed for one, into buffers that are there before.
   Iterations have no pattern.

Source: `core/framework/execution_frame.cc`, `core/providers/cpu/controlflow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from analyzer.allocators.bfc import ROUND_BYTES
from analyzer.graph import Category
from analyzer.runtimes.onnxruntime.frame import Frame
from analyzer.runtimes.onnxruntime.graph import Node
from analyzer.runtimes.onnxruntime.kernels.scratch import before_outputs
from analyzer.runtimes.onnxruntime.plan.pattern import LanesPlanner, MemoryPattern, PatternPlanner
from analyzer.runtimes.onnxruntime.plan.planner import Kind
from analyzer.runtimes.onnxruntime.recorder import KernelMark, SessionRecorder

_OWN = (Kind.ALLOCATE, Kind.OUTPUT)
_ITERATIONS = 2

# Where a subgraph stands: node index and attribute from the outermost graph inwards; () is that graph itself.
Path: TypeAlias = tuple[tuple[int, str], ...]
Patterns: TypeAlias = Mapping[Path, MemoryPattern]


class Running:
    """One execution of a graph.

    path: where it stands. outer: for a branch of If and the body of Scan, who runs its node: what they make
    is the node's.
    iteration: a body of Loop or Scan, which has no pattern.
    """

    def __init__(
        self,
        recorder: SessionRecorder,
        current: Frame,
        number: int,
        patterns: Patterns,
        *,
        path: Path = (),
        outer: tuple[Running, Node] | None = None,
        iteration: bool = False,
    ) -> None:
        self.recorder, self.current, self.number, self.path = recorder, current, number, path
        self.graph = current.graph
        self.patterns = patterns
        self.outer = outer[0] if outer else None
        self.renamed = (
            dict(zip(current.graph.outputs, outer[1].outputs, strict=False)) if outer is not None else {}
        )
        self.living: dict[str, int] = {}
        self.block: list[int] = []
        self.members: frozenset[str] = frozenset()
        self.planner: PatternPlanner | LanesPlanner | None = None
        if not recorder.options.enable_mem_pattern or iteration:
            return
        pattern = patterns.get(path)
        if pattern is None:
            self.planner = LanesPlanner(recorder.lane_count) if recorder.lane_count else PatternPlanner()
            return
        if pattern.size_bytes:
            key = recorder.take_block(pattern.size_bytes)
            if key is None:
                return  # no tensor lies in it, and none is recorded: the pattern is known
            recorder.contents[key] = (self.graph, pattern.fullest)
            self.block.append(key)
        self.members = pattern.members

    def allocate(self, name: str, operator: int) -> None:
        """Take the value's buffer, if it has one of its own and it is not taken."""
        place = self.current.plan.placements.get(name)
        if place is None or place.kind not in _OWN or not self.recorder.counts(place.on_host):
            return
        if self.outer is not None and name in self.renamed:
            self.outer.allocate(self.renamed[name], operator)
            return
        if name in self.members or name in self.living:
            return
        bound = place.kind is Kind.OUTPUT and not self.path and self.recorder.options.io_binding
        if bound == "caller" or (bound == "device" and name in self.recorder.bound.get(id(self.current), {})):
            return
        value = self.graph.values[name]
        basis = "bounded" if value.bounded or value.shape is None else "exact"
        self.living[name] = self.recorder.take(
            value.nbytes, Category.ACTIVATION, name, operator, basis, rule="ort-kernel-output"
        )
        if self.planner is not None and place.kind is Kind.ALLOCATE:
            self.planner.allocate(name, value.nbytes)

    def execute(self) -> Patterns:
        """Run every kernel in order; return the patterns known now, with this graph's."""
        recorder = self.recorder
        waits = dict(self.current.waits)
        for node in self.current.order:
            first = len(recorder.events)
            if node.op == "If":
                self._branch(node)
            elif node.op == "Scan":
                self._scan(node)
            elif node.bodies:
                self._loop(node)
            takes = node.index in self.current.takers
            early = takes and before_outputs(node)
            keys = recorder.scratch(node, self.graph, self.number) if early else []
            for name in node.outputs:
                if name:
                    self.allocate(name, node.index)
            if takes and not early:
                keys = recorder.scratch(node, self.graph, self.number)
            for key in reversed(keys):
                recorder.give(key)
            recorder.kernels.append(
                KernelMark(node, first, len(recorder.events), self.number, top=not self.path)
            )
            for name in self.current.plan.release.get(node.index, ()):
                waits[name] -= 1
                if not waits[name]:
                    self._release(name)
        if self.planner is not None:
            self.patterns = {**self.patterns, self.path: self.planner.pattern()}
        return self.patterns

    def results(self) -> list[int]:
        """Return the requests of the graph's outputs."""
        return [self.living[name] for name in self.graph.outputs if name in self.living]

    def held(self) -> list[int]:
        """Return the requests to free after the run: the pattern's block, outputs, unread buffers; not
        outputs bound on the device."""
        if self.recorder.options.io_binding == "device" and not self.path:
            kept = self.recorder.bound.setdefault(id(self.current), {})
            outputs = (n for n in self.graph.outputs if self.current.plan.placements[n].kind is Kind.OUTPUT)
            kept |= {name: self.living.pop(name) for name in outputs if name in self.living}
        return [*self.block, *self.living.values()]

    def _release(self, name: str) -> None:
        if self.planner is not None and name in self.planner.members:
            self.planner.free(name)
        if name in self.living:
            self.recorder.give(self.living.pop(name))

    def _inner(self, node: Node, attribute: str, *, iteration: bool, given: bool) -> Running:
        """Execute a body of the node. given: its outputs are the node's, or its buffers."""
        key = (node.index, attribute)
        inner = Running(
            self.recorder,
            self.current.bodies[key],
            self.number,
            self.patterns,
            path=(*self.path, key),
            outer=(self, node) if given else None,
            iteration=iteration,
        )
        self.patterns = inner.execute()
        return inner

    def _branch(self, node: Node) -> None:
        """Execute an If's counted branch, which writes the node's outputs.

        Source: `core/providers/cpu/controlflow/if.cc` (`IfImpl::AllocateOutputTensors`)."""
        if node.counted in node.bodies:
            body = node.bodies[node.counted]
            for inside, name in zip(body.outputs, node.outputs, strict=False):
                symbols = body.values[inside].symbols
                if name and symbols is not None and all(isinstance(size, int) for size in symbols):
                    self.allocate(name, node.index)
            for key in self._inner(node, node.counted, iteration=False, given=True).held():
                self.recorder.give(key)

    def _loop(self, node: Node) -> None:
        """The iteration number and the condition, then two iterations: the second reads what the first
        carries, and both are there when the last one's results are copied to the node's outputs. An
        iteration's part of a scan output stays until all of them are joined: iterations beyond two add
        theirs. Iterations use no pattern."""
        recorder = self.recorder
        counters = []
        if recorder.settings.provider == "cpu":
            counters = [
                recorder.take(
                    size, Category.ACTIVATION, f"{node.name} counter", node.index, rule="ort-loop-counter"
                )
                for size in (8, 1)
            ]
        carried: list[int] = []
        stacked: list[int] = []
        ((attribute, body),) = node.bodies.items()
        scans = body.outputs[len(node.inputs) - 1 :]
        sizes = [self.graph.values[name].shape for name in node.outputs[len(node.inputs) - 2 :] if name]
        trips = next((shape[0] for shape in sizes if shape), _ITERATIONS)
        for _ in range(min(trips, _ITERATIONS)):
            inner = self._inner(node, attribute, iteration=True, given=False)
            stacked += [inner.living.pop(name) for name in scans if name in inner.living]
            carried += inner.held()
        more = (trips - _ITERATIONS) * sum(_whole_chunks(body.values[name].nbytes) for name in scans)
        if more > 0 and stacked:
            label = f"{node.name or node.op} of {trips - _ITERATIONS} more iterations"
            stacked.append(
                recorder.take(more, Category.ACTIVATION, label, node.index, rule="ort-kernel-output")
            )
        for name in node.outputs:
            if name:
                self.allocate(name, node.index)
        for key in (*carried, *stacked, *counters):
            recorder.give(key)

    def _scan(self, node: Node) -> None:
        """Inputs scanned along another axis than the first are transposed into buffers of their own; results
        put together along another axis are written by the iterations into such a buffer, and made from it at
        the end. The other results, then for each state two buffers that iterations write in turn (one for two
        iterations, none for one); an iteration writes into these and into its part of each result, without a
        pattern.

        Source: `core/providers/cpu/controlflow/scan_9.cc` (`SetupInputs`, `AllocateOutputTensors`,
        `TransposeOutput`), `scan_utils.cc` (`LoopStateVariable`, `OutputIterator`)."""
        count = int(node.attributes.get("num_scan_inputs", 0))
        states, scanned = node.inputs[: len(node.inputs) - count], node.inputs[len(node.inputs) - count :]
        axes = self._axes(node, "scan_input_axes", scanned)
        shape = self.graph.values[scanned[0]].shape if scanned else None
        steps = shape[axes[0]] if shape else 3
        results = node.outputs[len(states) :]
        turned = [
            name
            for name, axis in zip(results, self._axes(node, "scan_output_axes", results), strict=True)
            if axis
        ]
        kept = [
            self._take(name, node, "transposed", "ort-scan-axis")
            for name, axis in zip(scanned, axes, strict=True)
            if axis
        ]
        for name in node.outputs:
            if name and name not in turned:
                self.allocate(name, node.index)
        kept += [
            self._take(name, node, "of an iteration", "ort-scan-state")
            for name in states
            if name
            for _ in range(min(max(steps - 1, 0), 2))
        ]
        kept += [self._take(name, node, "transposed", "ort-scan-axis") for name in turned if name]
        for attribute in node.bodies:
            for key in self._inner(node, attribute, iteration=True, given=True).held():
                self.recorder.give(key)
        for name in filter(None, turned):
            self.allocate(name, node.index)
        for key in kept:
            self.recorder.give(key)

    def _axes(self, node: Node, attribute: str, names: list[str]) -> list[int]:
        """Return the axis along which each is scanned, from the front; 0 by default."""
        axes = node.attributes.get(attribute) or [0] * len(names)
        shapes = [self.graph.values[name].shape if name else None for name in names]
        return [int(axis) % len(shape) if shape else 0 for axis, shape in zip(axes, shapes, strict=True)]

    def _take(self, name: str, node: Node, manner: str, rule: str) -> int:
        """Take a buffer as large as a value, beside it; return its key."""
        nbytes = self.graph.values[name].nbytes
        return self.recorder.take(nbytes, Category.ACTIVATION, f"{name} {manner}", node.index, rule=rule)


def _whole_chunks(nbytes: int) -> int:
    """Return the bytes as the arena rounds them."""
    return -(-nbytes // ROUND_BYTES) * ROUND_BYTES
