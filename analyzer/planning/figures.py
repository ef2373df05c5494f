"""The figures of one captured program at any batch, without its graph: peak allocated, peak reserved, device, naive.

Nothing here decides what is requested or where it goes: scratch rules tell the operators' stories, `eager` puts them in
order, the allocator plays them. Only what cannot differ between two batches is not done twice:

1. Operators that are equal but for the tensors' names (at every captured batch, so at any) have one story; one whose
   numbers do not vary has the same story at every batch; of one without a scratch rule only the results are allocated.
2. `eager` only moves sizes about, it never looks at them. So it runs once with a number in place of each size, and what
   comes out is the program's **script**: which request has which size.
3. A story may leave out a temporary at one batch that it takes at another (a copy, a workspace of no bytes). The script
   has every step seen so far, and what is left out has no bytes: an allocator has no block for such a request. It is
   written anew when a batch brings a step that is not in it.
4. A batch is then its sizes put into the script and played.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.devices import DeviceProfile
from analyzer.graph import Argument, Operator, Phase, TensorMeta
from analyzer.liveness.naive import Naive
from analyzer.planning.program import AtBatch, BatchProgram
from analyzer.runtimes.events import Event, Free, Malloc, Use, Wait
from analyzer.runtimes.plans import Plans
from analyzer.runtimes.pytorch.eager import requests
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.pytorch.scratch import Give, Output, Step, Story, Take, story_of
from analyzer.runtimes.pytorch.scratch.registry import rule_for
from analyzer.runtimes.timeline import iteration_start

# What an event of the script does instead of asking for a size.
_FREE, _USE, _WAIT = -1, -2, -3
Signature: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What a program needs at one batch, in bytes; all but `naive` as reached until `fails`, if the allocator's limit
    ends the program. refused: how often a plan had no room (`plans.py`)."""

    batch: int
    peak_allocated: int
    peak_reserved: int
    device_used: int
    naive: int
    fails: bool = False
    refused: int = 0


@dataclass(frozen=True, slots=True)
class _Script:
    """Requests in order: (key, which size, stream); (key, _FREE, 0); (key, _USE, stream) where another stream uses it; (0,
    _WAIT, 0) where the host waits. The first `setup_count` come before the first iteration.

    plans: number of a size → the plan that takes it, of those that may be asked for less.
    """

    events: tuple[tuple[int, int, int | None], ...]
    setup_count: int
    key_count: int
    libraries: frozenset[str]
    plans: dict[int, str]


class EagerFigures:
    """Figures of a PyTorch program on one device, at any batch the program holds for."""

    def __init__(self, program: BatchProgram, profile: DeviceProfile) -> None:
        """Raises NotTheSame when an operator that needs memory of its own has numbers that are no polynomials."""
        self._program, self._profile = program, profile
        self._graph = program.first.source.graph
        self._sizes = [storage.nbytes for storage in self._graph.storages]
        numbered = tuple([dataclasses.replace(s, nbytes=s.index) for s in self._graph.storages])
        self._numbered = dataclasses.replace(self._graph, storages=numbered)
        self._class_of: list[int] = []
        # Of each class its story as last told; of those that vary, the operator at a batch.
        self._stories: list[Story] = []
        self._varying: list[tuple[int, AtBatch]] = []
        self._classify()
        self._steps = [story.steps for story in self._stories]
        self._script: _Script | None = None
        self._told: dict[int, list[tuple[int, Story]]] = {}

    def naive(self, batch: int) -> Naive:
        """The textbook sum."""
        return self._program.naive(batch)

    def prepare(self, batches: Iterable[int]) -> None:
        """Tells the stories of many batches before the first is played, so that the script is written once for all."""
        for batch in batches:
            with contextlib.suppress(ArithmeticError):  # `at` says so
                told = self._told[batch] = self._tell(batch)
                self._learn(told)

    def at(self, batch: int, allocator: PyTorchAllocator) -> Figures:
        """The figures there, played on a fresh `allocator`. Raises ArithmeticError as `Polynomial.at`."""
        told = self._told.pop(batch) if batch in self._told else self._tell(batch)
        script = self._script_for(told)
        sizes = self._sizes.copy()
        for index, polynomial in self._program.storages.items():
            sizes[index] = polynomial.at(batch)
        smaller: dict[int, tuple[int, ...]] = {}
        for story, steps in zip(self._stories, self._steps, strict=True):
            smaller |= _smaller(story, steps, len(sizes))
            sizes += _sizes(story, steps)
        served, refused = _play(script, sizes, smaller, allocator)
        reserved = allocator.peak_reserved
        return Figures(
            batch,
            allocator.peak_allocated,
            reserved,
            device_used(reserved, script.libraries, self._profile, self._graph.communicators),
            self.naive(batch).total,
            not served,
            refused,
        )

    def _classify(self) -> None:
        """Operators with one story: equal but for the tensors' names, or with numbers that do not vary."""
        known: dict[Signature, int] = {}
        for operator in self._graph.operators:
            ruled = rule_for(operator.name) is not None
            signature: Signature = (operator.name, len(operator.outputs))
            if ruled:
                signature = tuple(map(_signature, self._program.calls(operator.index)))
            number = known.get(signature)
            if number is None:
                number = known[signature] = len(self._stories)
                self._stories.append(story_of(operator, self._profile))
                at = self._program.operator(operator.index) if ruled else None
                if at is not None:
                    self._varying.append((number, at))
            self._class_of.append(number)

    def _tell(self, batch: int) -> list[tuple[int, Story]]:
        """The stories of the operators that vary, each with the number of its class."""
        return [(number, story_of(operator(batch), self._profile)) for number, operator in self._varying]

    def _learn(self, told: list[tuple[int, Story]]) -> None:
        """Steps of these stories that were not known yet; the script is out of date then."""
        for number, story in told:
            known, self._stories[number] = self._stories[number], story
            merged = _merged(self._steps[number], story.steps)
            if merged != self._steps[number] or story.libraries != known.libraries:
                self._steps[number], self._script = merged, None

    def _script_for(self, told: list[tuple[int, Story]]) -> _Script:
        """The script, with every step of these stories in it."""
        self._learn(told)
        if self._script is None:
            self._script = self._written()
        return self._script

    def _written(self) -> _Script:
        """Which request has which size: `eager` run once with a number in place of each size."""
        count = len(self._sizes)
        numbered = []
        for story, steps in zip(self._stories, self._steps, strict=True):
            numbered.append(dataclasses.replace(story, steps=_numbered(steps, count)))
            count += len(_sizes(story, steps))
        asked = requests(
            self._numbered, self._profile, lambda operator: numbered[self._class_of[operator.index]]
        )
        first = iteration_start(asked.events)
        events: list[tuple[int, int, int | None]] = []
        plans: dict[int, str] = {}
        places: dict[int, int] = {}  # of a request's key
        setup_count = 0
        for position, event in enumerate(asked.events):
            if isinstance(event, Malloc):
                events.append((places.setdefault(event.key, len(places)), event.nbytes, event.stream))
                if event.plan:
                    plans[event.nbytes] = event.plan
            elif isinstance(event, Free):
                events.append((places[event.key], _FREE, 0))
            elif isinstance(event, Use):
                events.append((places[event.key], _USE, event.stream))
            elif isinstance(event, Wait):
                events.append((0, _WAIT, 0))
            elif isinstance(event, Event) and position == first:
                setup_count = len(events)
        return _Script(tuple(events), setup_count, len(places), asked.libraries, plans)


def _play(
    script: _Script, sizes: list[int], smaller: dict[int, tuple[int, ...]], allocator: PyTorchAllocator
) -> tuple[bool, int]:
    """A batch's sizes put into the script and played. Peaks count from the first iteration, as in `timeline`. Whether all
    requests were served, and how often a plan had no room.

    smaller: number of a size → what its plan is asked for instead.
    """
    malloc, free = allocator.malloc, allocator.free
    handles = [0] * script.key_count
    plans = Plans()
    for events in (script.events[: script.setup_count], script.events[script.setup_count :]):
        allocator.reset_peaks()
        for key, number, stream in events:
            if number < 0:
                if number == _FREE:
                    free(handles[key])
                elif number == _USE:
                    allocator.use(handles[key], stream or 0)
                else:
                    allocator.wait()
                continue
            try:
                if number in script.plans:
                    handles[key], _ = plans.served(
                        partial(malloc, stream=stream),
                        sizes[number],
                        script.plans[number],
                        smaller.get(number, ()),
                    )
                else:
                    handles[key] = malloc(sizes[number], stream)
            except OutOfMemoryError:
                return False, plans.refused
    return True, plans.refused


def _size(step: Step) -> int | None:
    """The size a step tells; None for one that tells none."""
    return None if isinstance(step, Give) else step.nbytes


def _sizes(story: Story, steps: tuple[Step, ...]) -> list[int]:
    """The size of each of `steps` that has one, as the story tells it: 0 where it leaves the step out."""
    if len(story.steps) == len(steps):
        return [size for step in story.steps if (size := _size(step)) is not None]
    by_name = {_name(step): size for step in story.steps if (size := _size(step)) is not None}
    return [by_name.get(_name(step), 0) for step in steps if _size(step) is not None]


def _smaller(story: Story, steps: tuple[Step, ...], first: int) -> dict[int, tuple[int, ...]]:
    """What the story's plans are asked for instead, by the number of the size, of which the story's begin with `first`."""
    told = {_name(step): step.smaller for step in story.steps if isinstance(step, Take) and step.smaller}
    if not told:
        return {}
    sized = [_name(step) for step in steps if _size(step) is not None]
    return {first + place: told[name] for place, name in enumerate(sized) if name in told}


def _numbered(steps: tuple[Step, ...], first: int) -> tuple[Step, ...]:
    """The steps with numbers from `first` on in place of their sizes."""
    numbers = itertools.count(first)
    return tuple(
        [
            step
            if isinstance(step, Give) or step.nbytes is None
            else dataclasses.replace(step, nbytes=next(numbers))
            for step in steps
        ]
    )


def _name(step: Step) -> Signature:
    """What makes a step the same one at another batch."""
    match step:
        case Take(token=token, keep=keep):
            return ("take", token, keep)
        case Output(index=index, nbytes=nbytes):
            return ("output", index, nbytes is None)
        case Give(token):
            return ("give", token)


def _merged(known: tuple[Step, ...], told: tuple[Step, ...]) -> tuple[Step, ...]:
    """`known` with the steps of `told` that it lacks, each in its place; `told` alone where the orders contradict."""
    if [_name(step) for step in known] == [_name(step) for step in told]:
        return known
    merged: list[Step] = []
    left, right = list(known), list(told)
    while left and right:
        here, there = _name(left[0]), _name(right[0])
        if here == there:
            merged.append(left.pop(0))
            right.pop(0)
        elif all(_name(step) != here for step in right):
            merged.append(left.pop(0))
        elif all(_name(step) != there for step in left):
            merged.append(right.pop(0))
        else:
            return told
    merged += left + right
    left_out = {_name(step) for step in merged} - {_name(step) for step in told}
    # A result is never left out: a story without one is another story.
    return told if any(name[0] == "output" for name in left_out) else tuple(merged)


def _signature(operator: Operator) -> Signature:
    """Everything a scratch rule may look at: no storage, no place, and of the phase only whether it is the backward pass."""
    return (
        operator.name,
        operator.phase is Phase.BACKWARD,
        _shown(operator.arguments),
        _shown(operator.outputs),
        tuple([(name, _shown(value)) for name, value in operator.keywords.items()]),
        operator.settings,
    )


def _shown(argument: Argument) -> Any:
    if type(argument) is TensorMeta:
        return (argument.shape, argument.stride, argument.dtype, argument.offset)
    if type(argument) is tuple:
        return tuple([_shown(part) for part in argument])
    return (type(argument), argument)  # 1, 1.0 and True are no equal arguments
