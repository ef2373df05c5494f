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
from typing import Any

import numpy as np

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.devices import DeviceProfile
from analyzer.parametric.lanes import Integers, NotTogether
from analyzer.runtimes.base import Limit
from analyzer.runtimes.batches import Figures, ParametricCapture
from analyzer.runtimes.events import AllocationEvent, Event, Malloc
from analyzer.runtimes.pytorch.allocator import limited, make_allocator
from analyzer.runtimes.pytorch.batches.classes import Classes, Groups
from analyzer.runtimes.pytorch.eager import requests
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.pytorch.scratch import Give, KernelAllocations, Step
from analyzer.runtimes.timeline import Server, iteration_start
from analyzer.runtimes.variants import Rows, rows

_GROUPS = "operators by class"  # in `ParametricCapture.known`


@dataclass(frozen=True, slots=True)
class _Template:
    """Requests in order, each with the number of its size in place of its bytes. The first `setup_count` come
    before the first iteration.

    plans: number of a size -> the plan that takes it, of those that may be asked for less. rows: the requests
    as the compiled core takes them, where it can.
    """

    events: tuple[AllocationEvent, ...]
    setup_count: int
    libraries: frozenset[str]
    plans: dict[int, str]
    rows: Rows | None


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
        groups = parametric.known.get(_GROUPS) or Groups(self._program)
        parametric.known[_GROUPS] = groups
        self._classes = Classes(groups, profile)
        self._template: _Template | None = None
        self._prepared: dict[int, Integers] = {}
        # Batches asked about one by one: their sizes, and the fallback plans' workspaces by size number.
        self._asked: dict[int, tuple[Integers, dict[int, Sequence[int]]]] = {}

    def prepare(self, batches: Sequence[int]) -> None:
        """Compute sizes at many batches together."""
        if not batches:
            return
        classes = list(self._classes.at_many(batches))
        for number, variants in classes:
            self._learn([(number, allocations) for _, allocations in variants])
        found, holds = self._classes.sizes_at(classes, len(batches))
        storages = np.repeat(np.array(self._storages, np.int64)[:, None], len(batches), axis=1)
        try:
            for index, polynomial in self._program.storages.items():
                storages[index], whole = polynomial.at_many(batches)
                holds &= whole
        except NotTogether:
            return
        every = np.concatenate([storages, found])
        for place in np.flatnonzero(holds).tolist():
            self._prepared[batches[place]] = every[:, place]

    def at(self, batch: int, limit: Limit | None = None) -> Figures:
        """Return the figures at a batch, under a limit as `Prediction.limited` takes it (which needs the
        smaller workspaces of cuDNN's fallback plans). Raises ArithmeticError as `Polynomial.at`."""
        sizes = self._prepared.get(batch) if batch not in self._asked else None
        if sizes is None:
            sizes, _ = self._sizes(batch)
        found = self._compiled(batch, sizes, limit)
        if found is not None and not (found.fails and limit is not None and self._made.plans):
            return found
        return self._simulated(batch, limit)

    @property
    def _made(self) -> _Template:
        if self._template is None:
            self._template = self._make_template()
        return self._template

    def _compiled(self, batch: int, sizes: Integers, limit: Limit | None) -> Figures | None:
        """Return the figures with first plans alone, as the compiled core says; None where it does not."""
        if self._made.rows is None:
            return None
        found = self._made.rows.peaks(sizes, limit)
        return self._figures(
            batch, found.allocated, found.reserved, fails=not found.served, returned=found.returned
        )

    def _simulated(self, batch: int, limit: Limit | None) -> Figures:
        """Return the figures by simulation, under a limit with the fallback plans of this batch."""
        sizes, smaller = self._sizes(batch)
        if limit is None:
            allocator, smaller = make_allocator(self._conf, self._profile), {}
        else:
            allocator = limited(self._conf, self._profile, *limit)
        served, refused = _simulate(self._made, sizes.tolist(), smaller, allocator)
        allocated, reserved = allocator.peak_allocated, allocator.peak_reserved
        return self._figures(batch, allocated, reserved, fails=not served, refused=refused)

    def _figures(self, batch: int, allocated: int, reserved: int, **how: Any) -> Figures:
        """Return the figures of a batch; how: the last fields of `Figures`."""
        return Figures(
            batch,
            allocated,
            reserved,
            device_used(reserved, self._made.libraries, self._profile, self._graph.communicators),
            self._naive(batch).total,
            **how,
        )

    def _sizes(self, batch: int) -> tuple[Integers, dict[int, Sequence[int]]]:
        """Return every storage and kernel allocation size at one batch, and the smaller workspaces of cuDNN's
        fallback plans by size number."""
        if batch in self._asked:
            return self._asked[batch]
        self._learn(self._classes.at(batch))
        sizes = self._storages.copy()
        for index, polynomial in self._program.storages.items():
            sizes[index] = polynomial.at(batch)
        every = np.array(sizes + self._classes.sizes(), np.int64)
        self._asked[batch] = every, self._classes.smaller(len(self._storages))
        return self._asked[batch]

    def _learn(self, found: Sequence[tuple[int, KernelAllocations]]) -> None:
        """Take these as the classes' allocations. New steps make another template, which numbers all sizes
        anew."""
        if self._classes.learn(found):
            self._template = None
            self._prepared.clear()
            self._asked.clear()

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
        allocator = make_allocator(self._conf, self._profile)
        compiled = rows(events, lambda event: event.nbytes, allocator)
        return _Template(events, setup_count, asked.libraries, plans, compiled)


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
