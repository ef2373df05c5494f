"""Requests of PyTorch in eager mode to the CUDA caching allocator, in order.

1. A storage is requested where it is born and given back where it dies: the captured program is followed as
   it is.
2. While an operator runs, its own memory is taken and given back as its scratch rule tells
   (`scratch/script.py`).
3. A library workspace is taken once per thread and stream. Autograd runs the backward pass on a thread of its
   own, so training takes two of each (facts of the recorded measurements). A thread of the program's, and of
   several GPUs' that of a backward pass, has what an earlier one gave back.
4. Storages in host memory ask for nothing.
5. Everything is requested for the stream its operator runs on.

Source: allocation histories recorded on an H200 (`tests/data/h200`); `torch/csrc/autograd/engine.cpp`
(`thread_init`) for the backward pass's thread.

Not modelled: CUDA graphs.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from analyzer.devices import DeviceProfile
from analyzer.graph import (
    Birth,
    Category,
    Death,
    Graph,
    Mark,
    Moment,
    Operator,
    Phase,
    Run,
    StreamUse,
    StreamWait,
)
from analyzer.runtimes.base import Prediction
from analyzer.runtimes.events import AllocationEvent, EmptyCache, Event, Free, Malloc, Use, Wait
from analyzer.runtimes.pytorch.outside import device_used, notes_on_nccl
from analyzer.runtimes.pytorch.scratch.fourier import notes_on_transforms
from analyzer.runtimes.pytorch.scratch.script import (
    Basis,
    KernelAllocations,
    Output,
    Take,
    kernel_allocations,
)
from analyzer.runtimes.pytorch.settings import limited, make_allocator, notes_on, notes_on_ties, pool_bytes
from analyzer.runtimes.rules import TENSOR
from analyzer.runtimes.variants import Plain

_BOUNDED, _EXACT = Basis.BOUNDED.value, Basis.EXACT.value


@dataclass(frozen=True, slots=True)
class Requests:
    """Allocation events of a program, and the libraries it loads.

    libraries: library families the operators load ("cublas", "cudnn", ...), once more with "@autograd" for
        those that the thread of the backward pass uses.
    unknown: operators without a rule, name -> calls.
    """

    events: tuple[AllocationEvent, ...]
    libraries: frozenset[str]
    unknown: Mapping[str, int]


def requests(
    graph: Graph, device: DeviceProfile, allocations: Callable[[Operator], KernelAllocations] | None = None
) -> Requests:
    """Return a program's requests in order. `allocations` replaces the scratch rules."""
    eager = Eager(graph, device, allocations)
    events = tuple(event for moment in graph.program for event in eager.follow(moment))
    return Requests(events, frozenset(eager.libraries), dict(eager.unknown))


class AnyProgram(Protocol):
    """A program's storages and operators, during or after its capture."""

    @property
    def storages(self) -> Sequence[Any]:
        """Storages so far: `graph.Storage`, or recorded ones."""

    @property
    def operators(self) -> Sequence[Operator]:
        """Operators so far."""


class GrowingProgram(NamedTuple):
    """A program while it is captured."""

    storages: Sequence[Any]
    operators: Sequence[Operator]


class Eager:
    """Follows a program moment by moment; `libraries` and `unknown` hold for the moments followed so far."""

    def __init__(
        self,
        graph: AnyProgram,
        device: DeviceProfile,
        allocations: Callable[[Operator], KernelAllocations] | None = None,
    ) -> None:
        self.libraries: set[str] = set()
        self.unknown: dict[str, int] = {}
        self._graph = graph
        self.device, self._replaced_rules = device, allocations
        self._alive: set[int] = set()
        self._workspaces: set[tuple[str, str, int]] = set()
        # (plan, thread): PyTorch caches plans by thread.
        self._cached_plans: set[tuple[str, str]] = set()
        # Storages are known by their index; what else is taken counts down from -1.
        self._keys = itertools.count(-1, -1)

    def follow(self, moment: Moment) -> Iterator[AllocationEvent]:
        """Yield the allocation events of a moment."""
        match moment:
            case Run(index):
                yield from self.run(self._graph.operators[index])
            case Death(index):
                if self.ends(index):
                    yield Free(index)
            case Birth(index, stream):
                request = self._request_of(index, -1, self._graph.storages[index].name, stream)
                if request is not None:
                    yield request
            case Mark(name, value):
                yield Event(name, value)
            case StreamUse(index, stream):
                if index in self._alive:
                    yield Use(index, stream)
            case StreamWait(stream, by):
                yield Wait(stream, by)

    def ends(self, storage: int) -> bool:
        """End a storage; return whether it had been requested."""
        if storage not in self._alive:
            return False
        self._alive.remove(storage)
        return True

    def _allocations(self, operator: Operator) -> KernelAllocations:
        return (
            self._replaced_rules(operator)
            if self._replaced_rules
            else kernel_allocations(operator, self.device)
        )

    def fork(self) -> Eager:
        """Return a copy that continues separately."""
        other = copy.copy(self)
        other.libraries, other.unknown = set(self.libraries), dict(self.unknown)
        other._alive, other._workspaces = set(self._alive), set(self._workspaces)
        other._cached_plans = set(self._cached_plans)
        return other

    def key(self) -> int:
        """Return a new key for an allocation that is no storage."""
        return next(self._keys)

    def discard_failed(self, failed: Malloc) -> None:
        """Forget the allocation whose request found no memory."""
        self._alive.discard(failed.storage)
        operator = self._graph.operators[failed.operator]
        self._workspaces.discard((failed.label, *self._thread_and_stream(operator)))

    def rename(self, names: Mapping[int, int]) -> None:
        """Renumber storages."""
        renamed = self._alive & names.keys()
        self._alive -= renamed
        self._alive |= {names[storage] for storage in renamed}

    @staticmethod
    def _thread_and_stream(operator: Operator) -> tuple[str, int]:
        """Return (thread, stream): "@autograd" for backward, "@1" and so on for a program's others."""
        if operator.phase is Phase.BACKWARD and not operator.handle:
            return "@autograd", operator.stream
        return f"@{operator.handle}" if operator.handle else "", operator.stream

    def _request_of(
        self, index: int, operator: int, label: str, stream: int, nbytes: int | None = None, rule: str = ""
    ) -> Malloc | None:
        """Return a device storage's request, None if it is alive; `nbytes`: if `rule` sizes it."""
        if index in self._alive:
            return None
        storage = self._graph.storages[index]
        if not storage.on_device:
            return None
        self._alive.add(index)
        return Malloc(
            index,
            storage.nbytes if nbytes is None else nbytes,
            storage.category,
            operator,
            index,
            _BOUNDED if storage.bounded else _EXACT,
            label,
            stream,
            rule=rule or TENSOR,
        )

    def run(self, operator: Operator) -> Iterator[AllocationEvent]:
        """Yield the allocation events of one operator, by its scratch rule."""
        allocations = self._allocations(operator)
        thread, stream = self._thread_and_stream(operator)
        if allocations.libraries:
            # A handle that a package keeps for itself is named, and of no thread.
            self.libraries |= {
                family if "@" in family else family + thread for family in allocations.libraries
            }
        if not allocations.known:
            self.unknown[operator.name] = self.unknown.get(operator.name, 0) + 1
        keys: dict[int, int] = {}
        tried: set[int] = set()
        outputs = operator.outputs
        for step in allocations.steps:
            if isinstance(step, Output):
                output = outputs[step.index] if step.index < len(outputs) else None
                if output is not None and output.storage not in self._alive:
                    request = self._request_of(
                        output.storage, operator.index, operator.name, stream, step.nbytes, step.rule
                    )
                    if request is not None:
                        yield request
            elif isinstance(step, Take):
                if step.workspace and (step.workspace, thread, stream) in self._workspaces:
                    continue
                if step.trials_of and (step.trials_of, thread) in self._cached_plans:
                    continue
                self._cached_plans.add((step.trials_of or step.plan, thread))
                key = self.key()
                category, label = Category.SCRATCH, operator.name
                if step.workspace:
                    self._workspaces.add((step.workspace, thread, stream))
                    category, label = Category.WORKSPACE, step.workspace
                else:
                    keys[step.token] = key
                yield Malloc(
                    key,
                    step.nbytes,
                    category,
                    operator.index,
                    basis=step.basis.value,
                    label=label,
                    stream=stream,
                    rule=step.rule,
                    plan=step.plan,
                    smaller=step.smaller,
                    assumed=step.assumed,
                    assumed_less=step.assumed_less,
                )
                if step.trials_of:
                    tried.add(step.token)
            elif step.token in keys:
                yield Free(keys.pop(step.token))
                if step.token in tried:
                    yield EmptyCache()


def prediction_of(
    requests: Requests, graph: Graph, profile: DeviceProfile, conf: str, plain: Plain | None = None
) -> Prediction:
    """Return the prediction of a graph's requests. conf: the allocator's settings; plain: of `Prediction`."""
    return Prediction(
        events=requests.events,
        allocator=lambda: make_allocator(conf, profile),
        device_used=lambda simulation: (
            device_used(simulation.peak_reserved, requests.libraries, profile, graph.communicators)
            + pool_bytes(conf)
        ),
        libraries=requests.libraries,
        unknown=requests.unknown,
        notes=(
            *notes_on(conf),
            *notes_on_ties(profile, requests.libraries),
            *notes_on_nccl(graph.communicators, profile),
            *notes_on_transforms(graph.operators),
        ),
        limited=lambda limit_bytes, device: limited(conf, profile, limit_bytes, device),
        plain=plain,
    )
