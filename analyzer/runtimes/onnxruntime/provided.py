"""A session's requests as ONNX Runtime's own CUDA provider made them
(`analyzer_emulation/inside/session.py`).

1. While the session is made, initializers come first, one request each, which are put into the file's order
   (their own is another in every process); what follows is weights that kernels lay out anew.
2. In a run, what comes before its first kernel is the copies of inputs, known by their bytes, and the memory
   pattern's block. A later request belongs to the kernel that ends first after it; it is a result where it
   has the bytes of one, else scratch.
3. A pattern's block holds what kernels took by themselves in the first run and do not in this one: its
   contents are those that were alive when they were most.
4. Where its block finds no room, a run asks for what the first one asked for.

Not known: which of equally large initializers a request is for; they are named in the file's order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from analyzer.allocators.onnxruntime_bfc import SESSION
from analyzer.graph import Category
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.onnxruntime.course import Requests
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph, Value
from analyzer.runtimes.onnxruntime.recorder import Recording
from analyzer.runtimes.onnxruntime.rules import CONVOLUTION, EMULATED, MEMORY_PATTERN

_PROVIDERS = {"CUDAExecutionProvider": "cuda", "CPUExecutionProvider": "cpu"}
_WITH_BODIES = ("If", "Loop", "Scan")
# ONNX Runtime's names of element types where they are not ours.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "Float8E4M3FN": "float8_e4m3fn",
    "Float8E4M3FNUZ": "float8_e4m3fnuz",
    "Float8E5M2": "float8_e5m2",
    "Float8E5M2FNUZ": "float8_e5m2fnuz",
}


class Request(NamedTuple):
    """One request of the provider: when, by the profiler's clock, where, and for how many bytes (0: the
    address is given back). Address 0: the host read so many bytes of the device's memory."""

    nanoseconds: int
    address: int
    nbytes: int


class Kernel(NamedTuple):
    """A kernel that ran, from `begin` to `end` in nanoseconds. results: element type and shape of each."""

    begin: int
    end: int
    node: str
    op: str
    provider: str
    results: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """requests: all of them, in order. marks: when the session's creation ended, and each run. loaded: when
    the initializers were; 0: not known. kernels: in order. local_bytes: of the threads' own memory, beside
    what every process has.

    guessed: bytes of a convolution's workspace -> by how many more or less they may be, where cuDNN was not
    asked.
    """

    requests: Sequence[Request]
    marks: Sequence[int]
    loaded: int
    kernels: Sequence[Kernel]
    local_bytes: int = 0
    guessed: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, Any], guessed: Mapping[int, int]) -> SessionRecord:
        """Return what `inside/session.py` wrote down."""
        return cls(
            [Request(*entry) for entry in record["requests"]],
            record["marks"],
            record["loaded"],
            sorted((_kernel(*entry) for entry in record["kernels"]), key=lambda kernel: kernel.end),
            record["local_bytes"],
            guessed,
        )

    def read(self) -> tuple[Kernel, ...]:
        """Return the kernels of the first run that read what others had computed, which decides what comes
        after."""
        ends = [kernel.end for kernel in self.kernels]
        readers: dict[Kernel, None] = {}
        for request in self.requests:
            if not request.address and self.marks[0] < request.nanoseconds <= self.marks[1]:
                place = bisect_left(ends, request.nanoseconds)
                if place < len(ends) and self.kernels[place].begin <= request.nanoseconds:
                    readers[self.kernels[place]] = None
        return tuple(readers)

    def bodies(self) -> int:
        """Return how many nodes ran kernels of the provider in a subgraph of theirs; an If's branches are
        one, of which a run takes one."""
        around: list[Kernel] = []
        nodes: set[str] = set()
        for kernel in sorted(self.kernels, key=lambda kernel: (kernel.begin, -kernel.end)):
            while around and around[-1].end <= kernel.begin:
                around.pop()
            if around and kernel.provider == "cuda":
                nodes.add(around[-1].node)
            if kernel.op in _WITH_BODIES:
                around.append(kernel)
        return len(nodes)


def _kernel(begin: int, end: int, node: str, op: str, provider: str, results: Sequence[Any]) -> Kernel:
    typed = tuple(
        (_DTYPES.get(dtype, dtype), tuple(shape)) for result in results for dtype, shape in result.items()
    )
    return Kernel(begin, end, node, op, _PROVIDERS.get(provider, provider), typed)


class Provided(Requests):
    """The requests of a recorded session. graph: the file's, whose initializers and values give them names;
    run_graphs: the same at each run's sizes, for the inputs'."""

    def __init__(
        self,
        record: SessionRecord,
        graph: RuntimeGraph,
        run_graphs: Sequence[RuntimeGraph],
        outside_arena: bool,
    ) -> None:
        """outside_arena: initializers are allocated past the arena
        (`use_device_allocator_for_initializers`)."""
        self._record = record
        self._run_graphs = run_graphs
        self.graph = _graph_that_ran(record, graph)
        self._outside = outside_arena
        self._freed_at = _freed(record.requests)
        self._places = {name: place for place, name in enumerate(self.graph.initializers)}
        self._stages = [self._session(), *(self._run(number) for number in range(1, len(record.marks)))]
        self._known: dict[frozenset[int], Recording] = {}

    def without(self, blocks: frozenset[int] = frozenset()) -> Recording:
        """Return the recording without the blocks with these keys."""
        if blocks not in self._known:
            self._known[blocks] = self._recording(blocks)
        return self._known[blocks]

    def _recording(self, blocks: frozenset[int]) -> Recording:
        events: list[AllocationEvent] = []
        contents: dict[int, tuple[RuntimeGraph, tuple[tuple[str, int], ...]]] = {}
        for number, recorded in enumerate(self._stages):
            stage = recorded
            own = [event for event in stage if isinstance(event, Malloc) and event.rule == MEMORY_PATTERN]
            if any(block.key in blocks for block in own):
                stage = self._as_first(number)
            elif own:
                members = self._in_block(stage)
                contents |= {block.key: (self.graph, members) for block in own}
            events += [*stage, Event(f"run {number}" if number else SESSION)]
        keys = (event.key for event in events if isinstance(event, Malloc))
        return Recording(tuple(events), (), {}, contents, dict.fromkeys(keys, self.graph))

    def _as_first(self, number: int) -> list[Malloc | Free]:
        """Return the first run's events with keys of their own."""
        offset = number * len(self._record.requests)
        own = {event.key for event in self._stages[1] if isinstance(event, Malloc)}
        return [replace(event, key=event.key + offset) for event in self._stages[1] if event.key in own]

    def _in_block(self, stage: Sequence[Malloc | Free]) -> tuple[tuple[str, int], ...]:
        """Return names and bytes of what lies in a pattern's block when it is fullest."""
        here = Counter(event.label for event in stage if isinstance(event, Malloc))
        alive: dict[int, tuple[str, int]] = {}
        fullest: tuple[tuple[str, int], ...] = ()
        most = now = 0
        for event in self._stages[1]:
            if isinstance(event, Free) and event.key in alive:
                now -= alive.pop(event.key)[1]
            elif isinstance(event, Malloc) and event.category is Category.ACTIVATION:
                if here[event.label]:
                    continue
                alive[event.key] = event.label, event.nbytes
                now += event.nbytes
                if now > most:
                    most, fullest = now, tuple(alive.values())
        return fullest

    def _session(self) -> list[Malloc | Free]:
        """Return the events of the session's creation: initializers, then weights laid out anew."""
        record = self._record
        names = _by_bytes(self.graph, self.graph.initializers)
        loaded: list[Malloc] = []
        later: list[Malloc | Free] = []
        for key, request in self._within(0, record.marks[0]):
            if not request.nbytes:
                later.append(Free(self._freed_at[key]))
            elif not record.loaded or request.nanoseconds <= record.loaded:
                loaded.append(
                    Malloc(
                        key,
                        request.nbytes,
                        Category.PARAMETER,
                        storage=key,
                        label=next(names[request.nbytes], "an initializer"),
                        stream=None,
                        outside_pools=self._outside,
                        rule="ort-initializer",
                    )
                )
            else:
                later.append(
                    Malloc(
                        key,
                        request.nbytes,
                        Category.WORKSPACE,
                        label="weights laid out anew",
                        stream=None,
                        rule="ort-packed-weights",
                    )
                )
        return [*sorted(loaded, key=self._place), *later]

    def _place(self, initializer: Malloc) -> tuple[int, int]:
        """Return where an initializer stands in the file; those of the optimized graph alone are last."""
        names = self._places
        return names.get(initializer.label, len(names)), initializer.nbytes

    def _run(self, number: int) -> list[Malloc | Free]:
        """Return the events of a run, from 1."""
        record = self._record
        since, until = record.marks[number - 1], record.marks[number]
        indices = [
            place for place, one in enumerate(record.kernels) if since <= one.begin and one.end <= until
        ]
        ends = [record.kernels[place].end for place in indices]
        first = min((record.kernels[place].begin for place in indices), default=until)
        graph = self._run_graphs[number - 1]
        inputs = _by_bytes(graph, graph.inputs)
        results: dict[int, dict[int, Iterator[str]]] = {}
        events: list[Malloc | Free] = []
        for key, request in self._within(since, until):
            if not request.nbytes:
                events.append(Free(self._freed_at[key]))
                continue
            place = bisect_left(ends, request.nanoseconds)
            if request.nanoseconds < first or place == len(ends):
                events.append(self._before_kernels(key, inputs))
                continue
            index = indices[place]
            if index not in results:
                results[index] = _by_bytes(self.graph, self.graph.nodes[index].outputs)
            events.append(self._of_kernel(key, index, results[index]))
        return events

    def _within(self, since: int, until: int) -> Iterator[tuple[int, Request]]:
        """Yield the requests of a stage with their places; what the host read is none."""
        for key, request in enumerate(self._record.requests):
            if request.address and since < request.nanoseconds <= until:
                yield key, request

    def _before_kernels(self, key: int, inputs: Mapping[int, Iterator[str]]) -> Malloc:
        """Return an input's copy, or the block of the memory pattern."""
        nbytes = self._record.requests[key].nbytes
        name = next(inputs[nbytes], "")
        if name:
            return Malloc(key, nbytes, Category.INPUT, storage=key, label=name, rule="ort-input")
        label = "memory pattern"
        return Malloc(key, nbytes, Category.ACTIVATION, storage=key, label=label, rule=MEMORY_PATTERN)

    def _of_kernel(self, key: int, index: int, results: Mapping[int, Iterator[str]]) -> Malloc:
        """Return a kernel's result, or its scratch."""
        nbytes, node = self._record.requests[key].nbytes, self.graph.nodes[index]
        name = next(results[nbytes], "")
        if name:
            return Malloc(
                key,
                nbytes,
                Category.ACTIVATION,
                index,
                key,
                label=name,
                rule="ort-kernel-output",
            )
        is_convolution = node.op in ("Conv", "ConvTranspose")
        assumed = self._record.guessed.get(nbytes, 0) if is_convolution else 0
        return Malloc(
            key,
            nbytes,
            Category.SCRATCH,
            index,
            basis="bounded" if assumed else "measured" if is_convolution else "exact",
            label=f"{node.name or node.op} scratch",
            rule=CONVOLUTION if is_convolution else EMULATED,
            assumed=assumed,
        )


def _freed(requests: Sequence[Request]) -> dict[int, int]:
    """Return which request each one gives back, by their places."""
    at: dict[int, int] = {}
    freed = {}
    for place, request in enumerate(requests):
        if request.address and request.nbytes:
            at[request.address] = place
        elif request.address:
            freed[place] = at.pop(request.address)
    return freed


def _by_bytes(graph: RuntimeGraph, names: Iterable[str]) -> dict[int, Iterator[str]]:
    """Return the values' names by their bytes, each to be given once; none for other sizes."""
    by_bytes = defaultdict[int, list[str]](list)
    for name in names:
        by_bytes[graph.values[name].nbytes].append(name)
    return defaultdict(lambda: iter(()), {nbytes: iter(names) for nbytes, names in by_bytes.items()})


def _graph_that_ran(record: SessionRecord, graph: RuntimeGraph) -> RuntimeGraph:
    """Return the kernels that ran as nodes, by their places in the record, with the file's values and those
    that only the optimized graph has."""
    values = dict(graph.values)
    results = {node.name: node.outputs for node in graph.nodes.values() if node.name}
    nodes = {}
    for place, kernel in enumerate(record.kernels):
        known = results.get(kernel.node, [])
        outputs = []
        for number, (dtype, shape) in enumerate(kernel.results):
            name = known[number] if number < len(known) else ""
            if not name or values[name].shape != shape or values[name].dtype != dtype:
                name = f"{kernel.node or kernel.op}: result {number}"
                values[name] = Value(name, dtype, shape, None)
            outputs.append(name)
        nodes[place] = Node(place, kernel.node, kernel.op, "", [], outputs, provider=kernel.provider)
    return replace(graph, nodes=nodes, values=values)
