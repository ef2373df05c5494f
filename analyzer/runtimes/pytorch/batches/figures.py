"""The figures of one captured PyTorch program at any batch, without its graph: peak allocated, peak reserved,
device, naive.

Nothing here decides what is requested or where it goes: scratch rules say what operators take, `eager` puts
that in order, the allocator serves it. Only what cannot differ between two batches is not done twice:

1. Scratch rules are asked as seldom as can be (`classes.py`), and for many batches at once.
2. `eager` only moves sizes about, it never looks at them. So it runs once with a number in place of each
   size, and what comes out is the program's **template**: which request has which size.
3. The template has every step seen so far; what a batch leaves out has no bytes there. It is made anew when a
   batch brings a step that is not in it.
4. A batch is then its sizes put into the template and simulated.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.compiled import FREE
from analyzer.allocators.pytorch.caching import HEEDED, PyTorchAllocator
from analyzer.allocators.pytorch.peaks import UNIT_BYTES, has_fast_path, peaks
from analyzer.devices import DeviceProfile
from analyzer.parametric.lanes import Integers, NotTogether
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Figures, ParametricCapture
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.runtimes.pytorch.allocator import limited, make_allocator
from analyzer.runtimes.pytorch.batches.classes import Classes
from analyzer.runtimes.pytorch.eager import requests
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.pytorch.scratch import Give, Step
from analyzer.runtimes.timeline import Server, iteration_start


@dataclass(frozen=True, slots=True)
class _Template:
    """Requests in order, each with the number of its size in place of its bytes. The first `setup_count` come
    before the first iteration.

    plans: number of a size → the plan that takes it, of those that may be asked for less. fast_events: the
    requests alone, as `peaks` takes them, where the program has one stream and does not empty the cache; else
    None. fast_setup_count: as `setup_count`.
    """

    events: tuple[AllocationEvent, ...]
    setup_count: int
    libraries: frozenset[str]
    plans: dict[int, str]
    fast_events: Integers | None
    fast_setup_count: int


class EagerBatches:
    """Figures of a PyTorch program on one device, at any batch the program holds for."""

    def __init__(self, parametric: ParametricCapture, profile: DeviceProfile, conf: str) -> None:
        """conf: the allocator's settings. Raises NotTheSame, also when an operator that needs memory of its
        own has numbers that are no polynomials."""
        self._program, self._naive, self._profile, self._conf = (
            parametric.program,
            parametric.naive,
            profile,
            conf,
        )
        self._graph = parametric.program.first
        self._storages = [storage.nbytes for storage in self._graph.storages]
        self._classes = Classes(self._program, profile)
        made = make_allocator(conf, profile)
        self._fast = made.settings if has_fast_path(made) else None
        self._template: _Template | None = None
        self._prepared: dict[int, Integers] = {}
        self._last: tuple[int, Integers] | None = None

    def prepare(self, batches: Sequence[int]) -> None:
        """Compute sizes at many batches together, and the template of events once."""
        if not batches:
            return
        self._last = None
        classes = list(self._classes.at_many(batches))
        for number, variants in classes:
            if self._classes.learn([(number, allocations) for _, allocations in variants]):
                self._template = None
        found, holds = self._classes.sizes_at(classes, len(batches))
        storages = np.repeat(np.array(self._storages, np.int64)[:, None], len(batches), axis=1)
        try:
            for index, polynomial in self._program.storages.items():
                storages[index], whole = polynomial.at_many(batches)
                holds &= whole
        except NotTogether:
            return
        if self._template is None:
            self._template = self._make_template()
            self._prepared.clear()
        every = np.concatenate([storages, found])
        for place in np.flatnonzero(holds).tolist():
            self._prepared[batches[place]] = every[:, place]

    def at(self, batch: int, limit: Limit | None = None) -> Figures:
        """Return the figures at a batch, under a limit as `Prediction.limited` takes it (which needs the
        smaller workspaces of cuDNN's fallback plans). Raises ArithmeticError as `Polynomial.at`."""
        prepared = self._prepared.get(batch)
        if limit is not None and prepared is not None:
            # Prepared sizes tell whether it runs; only the variants have the fallback plans' workspaces.
            found = self._figures(batch, prepared, {}, limit)
            if not found.fails or not self._template or not self._template.plans:
                return found
            prepared = None
        sizes = self._sizes(batch) if prepared is None else prepared
        smaller = self._classes.smaller(len(self._storages)) if limit is not None else {}
        return self._figures(batch, sizes, smaller, limit)

    def _figures(
        self, batch: int, sizes: Integers, smaller: dict[int, Sequence[int]], limit: Limit | None
    ) -> Figures:
        """Simulate a batch's sizes. smaller: fallback workspaces by size number."""
        if self._template is None:
            self._template = self._make_template()
        template, refused = self._template, 0
        returned: bool | None = None
        if not smaller and template.fast_events is not None and self._fast is not None:
            units = -(-sizes // UNIT_BYTES)
            allocated, reserved, served, returned = peaks(
                template.fast_events, units, template.fast_setup_count, self._fast, limit and limit.nbytes
            )
        else:
            allocator = (
                limited(self._conf, self._profile, *limit)
                if limit is not None
                else make_allocator(self._conf, self._profile)
            )
            served, refused = _simulate(template, sizes.tolist(), smaller, allocator)
            allocated, reserved = allocator.peak_allocated, allocator.peak_reserved
        return Figures(
            batch,
            allocated,
            reserved,
            device_used(reserved, template.libraries, self._profile, self._graph.communicators),
            self._naive(batch).total,
            not served,
            refused,
            returned,
        )

    def _sizes(self, batch: int) -> Integers:
        """Return every storage and kernel allocation size at one batch."""
        if self._last is not None and self._last[0] == batch:  # once with room, once under a limit
            return self._last[1]
        if self._classes.learn(self._classes.at(batch)):
            self._template = None
            self._prepared.clear()
        sizes = self._storages.copy()
        for index, polynomial in self._program.storages.items():
            sizes[index] = polynomial.at(batch)
        self._last = (batch, np.array(sizes + self._classes.sizes(), np.int64))
        return self._last[1]

    def _make_template(self) -> _Template:
        """Return the template: run `eager` once with a number in place of each size."""
        numbers = itertools.count(len(self._storages))
        numbered = [
            dataclasses.replace(allocations, steps=_numbered(steps, numbers))
            for allocations, steps in zip(self._classes.latest, self._classes.steps, strict=True)
        ]
        storages = tuple([dataclasses.replace(s, nbytes=s.index) for s in self._graph.storages])
        asked = requests(
            dataclasses.replace(self._graph, storages=storages),
            self._profile,
            lambda operator: numbered[self._classes.class_of[operator.index]],
        )
        events, setup_count = asked.events, iteration_start(asked.events) + 1
        plans = {event.nbytes: event.plan for event in events if isinstance(event, Malloc) and event.plan}
        setup, rest = _fast_events(events[:setup_count]), _fast_events(events[setup_count:])
        fast = None if setup is None or rest is None else _numbered_keys(setup + rest)
        return _Template(events, setup_count, asked.libraries, plans, fast, len(setup or ()))


def _fast_events(events: Sequence[AllocationEvent]) -> list[tuple[int, int]] | None:
    """Return the events as (key, size number) and (key, FREE); None if there are others that matter."""
    found: list[tuple[int, int]] = []
    for event in events:
        if isinstance(event, Malloc) and not event.stream:
            found.append((event.key, event.nbytes))
        elif isinstance(event, Free):
            found.append((event.key, FREE))
        elif not isinstance(event, Event) or event.name in HEEDED:
            return None
    return found


def _numbered_keys(events: list[tuple[int, int]]) -> Integers:
    """Return the events with keys numbered from 0."""
    places: dict[int, int] = {}
    rows = [(places.setdefault(key, len(places)), number) for key, number in events]
    return np.array(rows, np.int64).reshape(-1, 2)


def _simulate(
    template: _Template, sizes: list[int], smaller: dict[int, Sequence[int]], allocator: PyTorchAllocator
) -> tuple[bool, int]:
    """Simulate the template with a batch's sizes. Return whether all requests were served, and how often a
    plan had no room. Peaks count from the first iteration. smaller: fallback workspaces by size number."""
    server = Server(allocator)
    for events in (template.events[: template.setup_count], template.events[template.setup_count :]):
        allocator.reset_peaks()
        for event in events:
            try:
                if isinstance(event, Malloc):
                    server.serve(event, sizes[event.nbytes], smaller.get(event.nbytes, ()))
                elif isinstance(event, Event):
                    allocator.over(event.name, event.value)
                else:
                    server.serve(event)
            except OutOfMemoryError:
                return False, server.plans.refused
    return True, server.plans.refused


def _numbered(steps: tuple[Step, ...], numbers: Iterator[int]) -> tuple[Step, ...]:
    """Return the steps with numbers in place of their sizes."""
    return tuple(
        [
            step
            if isinstance(step, Give) or step.nbytes is None
            else dataclasses.replace(step, nbytes=next(numbers))
            for step in steps
        ]
    )
