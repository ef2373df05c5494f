"""One session as allocation events: initializers, a first run, a steady run.

1. **Session**: every initializer used on the device is taken from the arena by itself, in an order that is a hash
   table's and changes from process to process (here: the file's; `playing` shuffles).
   With `use_device_allocator_for_initializers` each is one device allocation outside the arena's regions. The CPU
   provider reserves initializers up to 127 bytes and its packed weights; larger ones stay where the file was loaded.
2. **Run**: inputs used on the device are copied there; then kernels run in order: outputs that have buffers of their
   own (`planner`), scratch while the kernel runs (`scratch`), then the releases of the plan. What the caller gets, the
   copies of inputs and buffers nobody reads live to the end of the run.
3. The first run takes each buffer from the arena and records the memory pattern (`pattern`); every later run with the
   same input shapes takes the pattern's block at its start instead. Outputs and scratch stay apart.
   Runs of other shapes (`--batches`) have patterns of their own; the arena keeps what it took for the largest.
4. A subgraph has a plan and a pattern of its own and runs inside its node: If the branch that is counted, Loop twice, so
   that what the first iteration carries meets the second, Scan once, into buffers that are there before.
5. Several sessions may take one arena (`session.use_env_allocators`): all are made first, then each runs in turn.
6. With IO binding inputs are the caller's and not copied. Bound outputs are the caller's as well; one that is bound by its
   device alone is taken in the first run and stays, because later runs write into it again.
7. CUDA kernels run on one stream, and their requests are made for it; a session's, and the CPU provider's, for none.

Source: `core/framework/session_state_utils.cc`, `execution_frame.cc`, `utils.cc` (CopyInputsAcrossDevices),
`core/providers/cpu/controlflow`. Checked kernel by kernel on CPU and H200 (`tests/runtimes/onnxruntime`).
IO binding, run sequences, shared arenas: measured with onnxruntime 1.31 on the CPU provider (`test_lives.py`).
Not modelled: several streams, several runs at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from analyzer.devices import DeviceProfile
from analyzer.graph import Category
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.onnxruntime.arena import SESSION
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph
from analyzer.runtimes.onnxruntime.kernels import packing
from analyzer.runtimes.onnxruntime.kernels.scratch import (
    Settings,
    Takes,
    before_outputs,
    scratch,
    takes_scratch,
    unknown,
)
from analyzer.runtimes.onnxruntime.kernels.scratch.lanes import told
from analyzer.runtimes.onnxruntime.options import SessionOptions
from analyzer.runtimes.onnxruntime.plan.order import execution, streams, topological
from analyzer.runtimes.onnxruntime.plan.pattern import LanesPlanner, MemoryPattern, PatternPlanner
from analyzer.runtimes.onnxruntime.plan.planner import Kind, Plan, plan
from analyzer.runtimes.onnxruntime.rewrite.layout import NHWC
from analyzer.runtimes.onnxruntime.rules import scratch_rule

RUNS = (1, 2)
_INLINE_BYTES = 127
_OWN = (Kind.ALLOCATE, Kind.OUTPUT)
_ITERATIONS = 2
_CHUNK_BYTES = 256

# Where a subgraph stands: node index and attribute from the outermost graph inwards; () is that graph itself.
Path: TypeAlias = tuple[tuple[int, str], ...]
Patterns: TypeAlias = Mapping[Path, MemoryPattern]


@dataclass(frozen=True, slots=True)
class Frame:
    """A graph ready to run: plan, order, readers each release waits for, the subgraphs by node index and attribute.

    takers: the nodes, by index, whose kernels may take scratch.
    """

    graph: RuntimeGraph
    plan: Plan
    order: tuple[Node, ...]
    waits: Mapping[str, int]
    bodies: Mapping[tuple[int, str], Frame]
    takers: frozenset[int]


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


@dataclass(frozen=True, slots=True)
class KernelMark:
    """One kernel's part of the events: its outputs and scratch, before the releases; to compare with a profile.

    run: from 1. top: whether the kernel belongs to the outermost graph.
    """

    node: Node
    first_event: int
    last_event: int
    run: int
    top: bool


@dataclass(frozen=True, slots=True)
class Recording:
    """What a session asks of its arena. unknown: operators nothing is known of, name -> (calls, bytes) of one run.

    contents: for the block of a memory pattern, by its request's key, the graph and what lies in it when it is fullest.
    graphs: the outermost graph each request was made for, by its key.
    """

    events: tuple[AllocationEvent, ...]
    kernels: tuple[KernelMark, ...]
    unknown: Mapping[str, tuple[int, int]]
    contents: Mapping[int, tuple[RuntimeGraph, tuple[tuple[str, int], ...]]]
    graphs: Mapping[int, RuntimeGraph]


def record(
    sessions: Frame | Sequence[Sequence[Frame]],
    options: SessionOptions,
    device: DeviceProfile,
    lane_count: int = 0,
) -> Recording:
    """A session with a first and a steady run; or several, each with the frames of its runs, all on one arena.

    lane_count: for how many sizes at once, where values' dimensions are `Lanes`. What is requested is then the same in all of
    them but for its sizes: raises Apart where it is not, NotTogether where that cannot be told of all at once.
    """
    settings = Settings(options.provider, options.cudnn_conv_algo_search, device, options.threads)
    recorder = _Recorder(settings, options, lane_count)
    if isinstance(sessions, Frame):
        sessions = [[sessions] * len(RUNS)]
    for frames in sessions:
        recorder.session(frames[0])
    recorder.events.append(Event(SESSION))
    patterns: dict[int, Patterns] = {}
    for number in range(1, max(map(len, sessions)) + 1):
        for place, frames in enumerate(sessions):
            if number <= len(frames):
                whole = frames[number - 1]
                name = f"run {number}" + (f" of session {place + 1}" if place else "")
                patterns[id(whole)] = recorder.run(whole, number, patterns.get(id(whole), {}), name)
    return Recording(
        tuple(recorder.events), tuple(recorder.kernels), recorder.unknown, recorder.contents, recorder.graphs
    )


@dataclass(slots=True)
class _Recorder:
    """Collects what `record` returns."""

    settings: Settings
    options: SessionOptions
    lane_count: int = 0
    events: list[AllocationEvent] = field(default_factory=list)
    kernels: list[KernelMark] = field(default_factory=list)
    unknown: dict[str, tuple[int, int]] = field(default_factory=dict)
    contents: dict[int, tuple[RuntimeGraph, tuple[tuple[str, int], ...]]] = field(default_factory=dict)
    graphs: dict[int, RuntimeGraph] = field(default_factory=dict)
    bound: dict[int, dict[str, int]] = field(
        default_factory=dict
    )  # outputs that stay, by the frame's identity
    # What a kernel takes, and whether anything is known of it, by its graph's identity and its index: the same in every run.
    takes: dict[tuple[int, int], tuple[Takes, bool]] = field(default_factory=dict)
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
        apart: bool = False,
    ) -> int:
        """A request, by the rule named (`rules`); returns its key."""
        key = self._keys
        self._keys += 1
        if self.graph is not None:
            self.graphs[key] = self.graph
        storage = -1 if category in (Category.SCRATCH, Category.WORKSPACE) else key
        self.events.append(
            Malloc(key, nbytes, category, operator, storage, basis, label, self.stream, apart, rule=rule)
        )
        return key

    def give(self, key: int) -> None:
        """The request's memory is given back."""
        self.events.append(Free(key))

    def counts(self, on_host: bool) -> bool:
        """Whether a buffer there comes from the arena that is predicted."""
        return self.settings.provider == "cpu" or not on_host

    def session(self, whole: Frame) -> None:
        """Initializers one by one, then what kernels keep of their weights; all of it outside any stream."""
        self.stream, self.graph = None, whole.graph
        keys: dict[str, int] = {}
        for graph, planned in _all(whole):
            names = [name for name in graph.initializers if name in planned.placements]
            if self.settings.provider == "cpu":
                for name in names:
                    nbytes = graph.values[name].nbytes
                    if 0 < nbytes <= _INLINE_BYTES:
                        self.take(nbytes, Category.PARAMETER, name, rule="ort-initializer", apart=True)
                continue
            names = [name for name in names if not planned.placements[name].on_host]
            apart = self.options.use_device_allocator_for_initializers
            for name in names:
                keys[name] = self.take(
                    graph.values[name].nbytes, Category.PARAMETER, name, rule="ort-initializer", apart=apart
                )
        for graph, _ in _all(whole):
            packed: set[tuple[str, str, int]] = set()
            for node in graph.nodes.values():
                given_back = []
                # Beside the CUDA provider the CPU's kernels pack into an arena of their own.
                rearranged = packing.packed(node, graph) if self.settings.provider == "cpu" else []
                for buffer in rearranged:
                    key = self.take(
                        buffer.nbytes,
                        Category.WORKSPACE,
                        f"{node.name} packed weights",
                        node.index,
                        buffer.basis,
                        rule="ort-packed-weights",
                        apart=buffer.apart,
                    )
                    same = (node.op, buffer.name, int(node.attributes.get("transB", 0)))
                    if not buffer.kept or same in packed:
                        given_back.append(key)
                    elif buffer.kept:
                        packed.add(same)
                for key in given_back:
                    self.give(key)
                for nbytes in packing.cached(node, graph, self.settings.device):
                    self.take(
                        nbytes,
                        Category.WORKSPACE,
                        f"{node.name} weights in cuDNN's layout",
                        node.index,
                        rule="ort-recurrent-weights",
                    )
                self._repack(node, graph, keys)

    def _repack(self, node: Node, graph: RuntimeGraph, keys: dict[str, int]) -> None:
        """Channels-last convolutions keep their weights in that order; what only they read is given back."""
        if node.domain != NHWC or node.op not in ("Conv", "ConvTranspose") or node.inputs[1] not in keys:
            return
        name = node.inputs[1]
        self.take(
            graph.values[name].nbytes,
            Category.PARAMETER,
            f"{name} in NHWC",
            node.index,
            rule="ort-nhwc-weights",
        )
        if sum(name in other.inputs for other in graph.nodes.values()) == 1:
            self.give(keys.pop(name))

    def run(self, whole: Frame, number: int, patterns: Patterns, name: str) -> Patterns:
        """One run, with the patterns that earlier ones of the same shapes recorded. Returns those later ones have."""
        feeds: list[int] = []
        self.graph = whole.graph
        if self.settings.provider == "cuda":
            self.stream = 0
        if self.settings.provider == "cuda" and self.options.io_binding == "none":
            for given in whole.graph.inputs:
                if not whole.plan.placements[given].on_host:
                    feeds.append(
                        self.take(whole.graph.values[given].nbytes, Category.INPUT, given, rule="ort-input")
                    )
        running = _Running(self, whole, number, patterns)
        after = running.execute()
        late = running.results() if self._shrinks_under_results() else ()
        for key in (*(key for key in running.held() if key not in late), *feeds):
            self.give(key)
        self.events.append(Event(name))
        for key in late:
            self.give(key)
        return after

    def _shrinks_under_results(self) -> bool:
        """Whether the arena shrinks while the results are still there: on the CPU they are the caller's own when a run
        ends; from the GPU they have been copied by then."""
        return self.options.enable_memory_arena_shrinkage and self.settings.provider == "cpu"

    def scratch(self, node: Node, graph: RuntimeGraph, number: int) -> list[int]:
        """The kernel's scratch, in order."""
        if not self.counts(node.provider == "cpu"):
            return []
        known = self.takes.get((id(graph), node.index))
        if known is None:
            known = told(scratch, node, graph, self.settings, self.lane_count), unknown(node)
            self.takes[id(graph), node.index] = known
        takes, is_unknown = known
        if is_unknown and number == RUNS[0]:
            calls, nbytes = self.unknown.get(node.operator, (0, 0))
            self.unknown[node.operator] = (calls + 1, nbytes + sum(size for size, _ in takes))
        return [
            self.take(
                nbytes,
                Category.SCRATCH,
                f"{node.name or node.op} scratch",
                node.index,
                basis,
                rule=scratch_rule(node),
            )
            for nbytes, basis in takes
        ]


class _Running:
    """One execution of a graph.

    path: where it stands. outer: for a branch of If and the body of Scan, who runs its node: what they make is the node's.
    iteration: a body of Loop or Scan, which has no pattern.
    """

    def __init__(
        self,
        recorder: _Recorder,
        current: Frame,
        number: int,
        patterns: Patterns,
        *,
        path: Path = (),
        outer: tuple[_Running, Node] | None = None,
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
        known = patterns.get(path)
        if known is None:
            self.planner = LanesPlanner(recorder.lane_count) if recorder.lane_count else PatternPlanner()
            return
        self.members = known.members
        if known.size_bytes:
            key = recorder.take(
                known.size_bytes, Category.ACTIVATION, "memory pattern", rule="ort-memory-pattern"
            )
            recorder.contents[key] = (self.graph, known.fullest)
            self.block.append(key)

    def allocate(self, name: str, operator: int) -> None:
        """The value's buffer is needed now, if it has one of its own and none yet."""
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
        """Run every kernel in order. Returns the patterns known now, this graph's among them if it has one."""
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
            taken = recorder.scratch(node, self.graph, self.number) if early else []
            for name in node.outputs:
                if name:
                    self.allocate(name, node.index)
            if takes and not early:
                taken = recorder.scratch(node, self.graph, self.number)
            for key in reversed(taken):
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
        """What the caller gets."""
        return [self.living[name] for name in self.graph.outputs if name in self.living]

    def held(self) -> list[int]:
        """What goes when the run is over: the block, outputs, buffers nobody read; not outputs bound by their device."""
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

    def _inner(self, node: Node, attribute: str, *, iteration: bool, given: bool) -> _Running:
        """A body of the node, executed. given: its outputs are the node's, or buffers the node has for them."""
        key = (node.index, attribute)
        inner = _Running(
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
        """If: the branch that is counted writes the node's outputs."""
        for attribute in node.bodies:
            for key in self._inner(node, attribute, iteration=False, given=True).held():
                self.recorder.give(key)

    def _loop(self, node: Node) -> None:
        """The iteration number and the condition, then two iterations: the second reads what the first carries, and both are
        there when the last one's results are copied to the node's outputs. What an iteration makes for a scan output stays until
        all of them are joined: iterations beyond two add theirs. Iterations use no pattern."""
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
        """The results first, then for each state two buffers that iterations write in turn (one for two iterations, none for
        one); an iteration writes into these and into its part of each result, without a pattern.

        Source: `core/providers/cpu/controlflow/scan_utils.cc` (`LoopStateVariable`)."""
        recorder = self.recorder
        for name in node.outputs:
            if name:
                self.allocate(name, node.index)
        count = int(node.attributes.get("num_scan_inputs", 0))
        states = node.inputs[: len(node.inputs) - count]
        axes = node.attributes.get("scan_input_axes") or [0]
        scanned = self.graph.values[node.inputs[len(states)]].shape if count else None
        steps = scanned[int(axes[0])] if scanned else 3
        turns = [
            recorder.take(
                self.graph.values[name].nbytes,
                Category.ACTIVATION,
                f"{name} of an iteration",
                node.index,
                rule="ort-scan-state",
            )
            for name in states
            if name
            for _ in range(min(max(steps - 1, 0), 2))
        ]
        for attribute in node.bodies:
            for key in self._inner(node, attribute, iteration=True, given=True).held():
                recorder.give(key)
        for key in turns:
            recorder.give(key)


def _whole_chunks(nbytes: int) -> int:
    """Bytes as the arena rounds them."""
    return -(-nbytes // _CHUNK_BYTES) * _CHUNK_BYTES


def _all(whole: Frame) -> list[tuple[RuntimeGraph, Plan]]:
    """The graph and its subgraphs with their plans."""
    found = [(whole.graph, whole.plan)]
    for inner in whole.bodies.values():
        found += _all(inner)
    return found
