"""Requests of a static graph's executor to its allocator: variables, buffers passed on in place, garbage.

1. **Start**: parameters, buffers and the optimizer's state are persistable: made before the first run, kept
   to the end.
2. **Feeds** stay until the next run's are there (live ranges of the policy "eager").
3. **A run** executes the operators in the captured order, one stream. A variable's buffer is requested when
   its maker runs. It is garbage after the last operator that reads it (`liveness`, policy "last_use"); a
   variable that nobody reads is a result, and garbage when the captured program drops it, at the latest at
   the run's end.
4. **In place**: an operator named by the framework's table writes its result into the buffer of an operand
   that is garbage after it, is neither persistable nor a feed, and has the same size and element type.
5. **Garbage** goes as `Collection` says: it is freed, together, when `threshold_bytes` have gathered (at most
   1: at once), or never within the run (None). Under `fraction` below 1 only the largest variables of a run
   are collected, until they make up that part of the run's collectable bytes. Towards the threshold also
   counts a variable whose memory lives on: a feed after its last reader, an operand that was passed on in
   place (`tests/data/paddle_cpu.json`).
6. A variable that is not collected keeps its memory until the next run has been fed and overwrites it; in
   these events it is given back at that moment. The peak is the same.
7. **The optimizer** is one kernel a parameter that works in place: of its phase only the state is requested.
8. A kernel's workspace, where `workspace` knows one, is taken for the time the kernel runs;
   `backward_bound_bytes`, an upper bound of the framework's backward pass beside the captured one's, for the
   time of that pass.

Source: what PaddlePaddle 3.3.1 did on a CPU (`benchmarks/paddlepaddle/observe.py`,
`tests/data/paddle_cpu.json`); `paddle/fluid/framework/new_executor/garbage_collector/`,
`ir/memory_optimize_pass/eager_deletion_pass.cc` (garbage),
`paddle/fluid/pir/transforms/general/inplace_pass.cc` (in place); for TensorFlow the files
`tensorflow/runtime.py` names. Not modelled: several streams, and the time between a kernel's launch and its
end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from analyzer.graph import Birth, Category, Graph, Mark, Operator, Phase, Run, Storage, TensorMeta
from analyzer.liveness.lifetimes import lifetimes
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer_plugins.static_graph.variables import Variables

PERSISTABLE = frozenset({Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE})
# Variables that no operator may write its result into: persistable ones, and feeds.
FIXED = PERSISTABLE | {Category.INPUT}
# Collection counts whole blocks: both frameworks' allocators round to 256 B.
BLOCK_BYTES = 256
# Rules behind the requests (`rules.py`).
VARIABLE, WORKSPACE, SUMS = "static-variable", "assumed-workspace", "gradients-of-sums"


@dataclass(frozen=True, slots=True)
class Collection:
    """When garbage goes: when `threshold_bytes` of it have gathered, None for never; `fraction` (0 to 1):
    which part of a run's bytes, largest variables first, is collected at all."""

    threshold_bytes: int | None = 0
    fraction: float = 1.0


# The memory that an operator, and the captured one it comes from, takes while it runs: bytes, and how they
# are known ("exact", "measured", "bounded").
Workspace = Callable[[Operator, int], tuple[int, str]]
# Which operands an operator may write result 0 into, in order of preference.
InPlace = Callable[[Operator], tuple[int, ...]]


def requests(
    program: Variables,
    *,
    collection: Collection,
    in_place: InPlace,
    workspace: Workspace,
    backward_bound_bytes: int = 0,
) -> tuple[AllocationEvent, ...]:
    """Return every request of the program, in order."""
    return tuple(_Executor(program, collection, in_place, workspace, backward_bound_bytes).events())


class _Executor:
    def __init__(
        self,
        program: Variables,
        collection: Collection,
        in_place: InPlace,
        workspace: Workspace,
        backward_bound_bytes: int,
    ) -> None:
        self._bound_bytes = backward_bound_bytes
        self._bound_key: int | None = None
        graph = program.graph
        self._graph, self._origin, self._captured_count = graph, program.origin, program.captured_count
        self._collection = collection
        self._in_place, self._workspace = in_place, workspace
        last_use, eager = lifetimes(graph, "last_use"), lifetimes(graph, "eager")
        self._last = [
            longest if storage.category in FIXED else last
            for storage, last, longest in zip(graph.storages, last_use.last, eager.last, strict=True)
        ]
        self._dying: dict[int, list[int]] = defaultdict(list)
        for index, last in enumerate(self._last):
            self._dying[last].append(index)
        self._read: dict[int, list[int]] = defaultdict(list)
        for index, position in _last_readers(graph).items():
            self._read[position].append(index)
        self._hoisted = [
            storage
            for storage in graph.storages
            if storage.category is Category.OPTIMIZER_STATE and storage.on_device
        ]
        self._keys = itertools.count(len(graph.storages))
        # variable -> the variable whose request its buffer was
        self._buffer: dict[int, int] = {}
        self._garbage: list[int] = []
        self._garbage_bytes = 0
        self._kept: list[int] = []
        self._runs = _runs(graph)
        self._passed = self._passed_on()
        self._operands = set(self._passed.values())
        self._collected = self._chosen() if collection.fraction < 1 else None

    def events(self) -> Iterator[AllocationEvent]:
        started, run = False, 0
        for position, moment in enumerate(self._graph.program):
            if not started and self._runs[position]:
                started = True
                for storage in self._hoisted:
                    yield from self._born(storage.index, -1, storage.name)
            match moment:
                case Mark(name, value):
                    yield Event(name, value)
                case Birth(index):
                    yield from self._born(index, -1, self._graph.storages[index].name)
                case Run(index):
                    operator = self._graph.operators[index]
                    if self._runs[position] > run and operator.phase not in (Phase.SETUP, Phase.INPUT):
                        run = self._runs[position]
                        yield from map(Free, self._kept)
                        self._kept.clear()
                    yield from self._bound(operator.phase is Phase.BACKWARD)
                    yield from self._operator(operator)
            yield from self._deaths(position)

    def _bound(self, backward: bool) -> Iterator[AllocationEvent]:
        """Hold the bound of the framework's own backward memory from the first backward operator to the first
        after it."""
        if backward and self._bound_bytes and self._bound_key is None:
            self._bound_key = next(self._keys)
            label = "gradients of sums"
            yield Malloc(
                self._bound_key, self._bound_bytes, Category.SCRATCH, basis="bounded", label=label, rule=SUMS
            )
        elif not backward and self._bound_key is not None:
            key, self._bound_key = self._bound_key, None
            if self._collection.threshold_bytes is None:
                self._kept.append(key)
            else:
                yield Free(key)

    def _operator(self, operator: Operator) -> Iterator[AllocationEvent]:
        for output in operator.outputs:
            if output is None:
                continue
            storage = self._graph.storages[output.storage]
            operand = self._passed.get(output.storage)
            if operand is not None and operand in self._buffer:
                self._buffer[output.storage] = self._buffer.pop(operand)
            elif operator.phase is not Phase.OPTIMIZER or storage.category is Category.OPTIMIZER_STATE:
                yield from self._born(output.storage, self._origin[operator.index], operator.name)
        nbytes, basis = self._workspace(operator, self._origin[operator.index])
        if nbytes:
            key, origin = next(self._keys), self._origin[operator.index]
            yield Malloc(
                key, nbytes, Category.SCRATCH, origin, basis=basis, label=operator.name, rule=WORKSPACE
            )
            yield Free(key)

    def _passed_on(self) -> dict[int, int]:
        """Return, by variable, the operand whose buffer it reuses: garbage after its operator, not
        persistable, no feed, equal in size and type."""
        storages, passed, born = self._graph.storages, {}, set[int]()
        for position, moment in enumerate(self._graph.program):
            if isinstance(moment, Birth):
                born.add(moment.storage)
            if not isinstance(moment, Run):
                continue
            operator = self._graph.operators[moment.operator]
            made = next(iter(operator.outputs), None)
            if made is not None and made.storage not in born and operator.phase is not Phase.OPTIMIZER:
                for slot in self._in_place(operator):
                    operand = operator.arguments[slot] if slot < len(operator.arguments) else None
                    if (
                        isinstance(operand, TensorMeta)
                        and self._last[operand.storage] == position
                        and operand.dtype == made.dtype
                        and _may_pass(storages[operand.storage], storages[made.storage])
                    ):
                        passed[made.storage] = operand.storage
                        break
            born.update(output.storage for output in operator.outputs if output is not None)
        return passed

    def _born(self, index: int, operator: int, label: str) -> Iterator[AllocationEvent]:
        storage = self._graph.storages[index]
        if storage.on_device and index not in self._buffer:
            self._buffer[index] = index
            named = index if index < self._captured_count else -1
            yield Malloc(index, storage.nbytes, storage.category, operator, named, label=label, rule=VARIABLE)

    def _deaths(self, position: int) -> Iterator[AllocationEvent]:
        for index in self._read.get(position, ()):
            yield from self._gathers(index, None)
        for index in self._dying.get(position, ()):
            buffer = self._buffer.pop(index, None)
            if index in self._operands:
                yield from self._gathers(index, None)
            if buffer is None or position == len(self._graph.program) - 1:
                continue
            if self._graph.storages[index].category in FIXED:
                yield Free(buffer)
            else:
                yield from self._collect(index, buffer)

    def _collect(self, index: int, buffer: int) -> Iterator[AllocationEvent]:
        """Collect a dead variable, or keep it to the next run if collection skips it."""
        threshold = self._collection.threshold_bytes
        if threshold is None or (self._collected is not None and index not in self._collected):
            self._kept.append(buffer)
            return
        yield from self._gathers(buffer, buffer)

    def _gathers(self, variable: int, buffer: int | None) -> Iterator[AllocationEvent]:
        """Add garbage of the variable's size; `buffer` is what can be freed, None for a feed."""
        threshold = self._collection.threshold_bytes
        if threshold is None:
            return
        if buffer is not None:
            self._garbage.append(buffer)
        self._garbage_bytes += self._block(variable)
        if self._garbage_bytes >= threshold:
            yield from map(Free, self._garbage)
            self._garbage.clear()
            self._garbage_bytes = 0

    def _block(self, buffer: int) -> int:
        return -(-self._graph.storages[buffer].nbytes // BLOCK_BYTES) * BLOCK_BYTES

    def _chosen(self) -> frozenset[int]:
        """The variables a fraction below 1 collects: the largest of each run, until their bytes suffice."""
        by_run: Mapping[int, list[int]] = defaultdict(list)
        requested = {
            output.storage
            for operator in self._graph.operators
            if operator.phase is not Phase.OPTIMIZER
            for output in operator.outputs
            if output is not None
        }
        for index in requested - self._operands:
            storage = self._graph.storages[index]
            if storage.on_device and storage.category not in FIXED:
                by_run[self._runs[self._last[index]]].append(index)
        chosen: set[int] = set()
        for members in by_run.values():
            sizes = {index: self._graph.storages[index].nbytes for index in members}
            wanted, gathered = int(self._collection.fraction * sum(sizes.values())), 0
            for index in sorted(members, key=lambda member: (-sizes[member], member)):
                if gathered >= wanted:
                    break
                chosen.add(index)
                gathered += sizes[index]
        return frozenset(chosen)


def _last_readers(graph: Graph) -> dict[int, int]:
    """Feeds: the position of the last operator that reads each."""
    last: dict[int, int] = {}
    for position, moment in enumerate(graph.program):
        if isinstance(moment, Run):
            for meta in graph.operators[moment.operator].inputs:
                storage = graph.storages[meta.storage]
                if storage.category is Category.INPUT and storage.on_device:
                    last[meta.storage] = position
    return last


def _may_pass(operand: Storage, made: Storage) -> bool:
    return (
        operand.on_device
        and made.on_device
        and operand.nbytes == made.nbytes
        and operand.category not in FIXED
        and made.category not in FIXED
    )


def _runs(graph: Graph) -> list[int]:
    """Return the run of every moment: 0 before the first feed, then one more with each group of feeds."""
    numbers, number, feeding = [], 0, False
    for moment in graph.program:
        if isinstance(moment, Run):
            phase = graph.operators[moment.operator].phase
            if phase is Phase.INPUT and not feeding:
                number += 1
            feeding = phase is Phase.INPUT or (feeding and phase is Phase.SETUP)
        elif isinstance(moment, Birth):
            storage = graph.storages[moment.storage]
            if storage.category is Category.INPUT and storage.on_device and not feeding:
                number, feeding = number + 1, True
        numbers.append(number)
    return numbers
