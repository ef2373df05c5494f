"""The figures of one captured PyTorch program at any batch, without its graph: peak allocated, peak reserved,
device, naive.

Nothing here decides what is requested or where it goes: scratch rules give operators' requests, `eager` puts
them in order, the allocator serves them. Only what cannot differ between two batches is not done twice:

1. Scratch rules are asked as seldom as can be (`classes.py`), and for many batches at once.
2. `eager` only moves sizes about, it never looks at them. So it runs once with a number in place of each
   size, and the result is the program's **template**: which request has which size.
3. The template has every step known so far; those a batch leaves out have no bytes there. It is made anew
   when a batch brings a step that is not in it.
4. A batch is then its sizes put into the template and simulated, by the compiled core where it can.
5. The prediction of a batch is likewise the template with that batch's sizes (`prediction`): only operators'
   own requests are listed one by one, since nothing else may be of another size.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.peaks import has_fast_path
from analyzer.devices import DeviceProfile
from analyzer.parametric.lanes import Integers, NotTogether
from analyzer.runtimes.base import Limit, Prediction
from analyzer.runtimes.batches import Batches, Failed, Figures, ParametricCapture
from analyzer.runtimes.events import AllocationEvent, Event, Malloc
from analyzer.runtimes.pytorch.batches.classes import Classes, Groups
from analyzer.runtimes.pytorch.eager import Requests, prediction_of, requests
from analyzer.runtimes.pytorch.outside import device_used
from analyzer.runtimes.pytorch.scratch import Give, KernelAllocations, Step, Take
from analyzer.runtimes.pytorch.scratch.fourier import transforms
from analyzer.runtimes.pytorch.settings import limited, make_allocator
from analyzer.runtimes.timeline import Failure, Server, iteration_start
from analyzer.runtimes.variants import NumberedPlans, Plain, Rows, rows

# In `ParametricCapture.known`: what is the same on every device.
_GROUPS, _TEMPLATES = "operators by class", "templates"


@dataclass(frozen=True, slots=True)
class _Template:
    """Requests in order, each with the number of its size in place of its bytes. The first `setup_count` come
    before the first iteration.

    scratch: a request of each size that an operator takes for itself; plans: those of them that may be asked
    for less, by the number of their size. rows: the requests as the compiled core takes them, where it can.
    """

    events: tuple[AllocationEvent, ...]
    setup_count: int
    libraries: frozenset[str]
    unknown: Mapping[str, int]
    scratch: tuple[Malloc, ...]
    plans: Mapping[int, str]
    rows: Rows | None


class _BatchSizes(NamedTuple):
    """A batch that was asked about by itself: every size; what operators take for themselves, by the number
    of its size."""

    sizes: Integers
    takes: dict[int, Take]

    @property
    def smaller(self) -> dict[int, Sequence[int]]:
        """Fallback plans' workspaces, by size number."""
        return {number: step.smaller for number, step in self.takes.items() if step.smaller}


class EagerBatches(Batches):
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
        self._groups: Groups = parametric.known.get(_GROUPS) or Groups(self._program)
        parametric.known[_GROUPS] = self._groups
        self._templates: dict[Any, _Template] = parametric.known.setdefault(_TEMPLATES, {})
        self._template: _Template | None = None
        self._numbered = 0  # `Groups.changes` that all below is of
        self._prepared: dict[int, Integers] = {}
        self._sizes_at: dict[int, _BatchSizes] = {}
        self._figures_at: dict[tuple[int, Limit | None], Figures] = {}

    @cached_property
    def _classes(self) -> Classes:
        """The operators' own memory on this device, asked of the rules with the first batch."""
        return Classes(self._groups, self._profile)

    def prepare(self, batches: Sequence[int]) -> None:
        """Compute sizes at many batches together."""
        if not batches:
            return
        self._renumber()
        classes = list(self._classes.at_many(batches))
        for number, variants in classes:
            self._learn([(number, allocations) for _, allocations in variants])
        kernel_sizes, holds = self._classes.sizes_at(classes, len(batches))
        storages = np.repeat(np.array(self._storages, np.int64)[:, None], len(batches), axis=1)
        try:
            for index, polynomial in self._program.storages.items():
                storages[index], integral = polynomial.at_many(batches)
                holds &= integral
        except NotTogether:
            return
        every = np.concatenate([storages, kernel_sizes])
        for place in np.flatnonzero(holds).tolist():
            self._prepared[batches[place]] = every[:, place]

    def at(self, batch: int, limit: Limit | None = None) -> Figures:
        """Return the figures at a batch, under a limit as `Prediction.limited` takes it (which needs the
        smaller workspaces of cuDNN's fallback plans). Raises ArithmeticError as `Polynomial.at`."""
        self._renumber()
        if (batch, limit) not in self._figures_at:
            self._figures_at[batch, limit] = self._at(batch, limit)
        return self._figures_at[batch, limit]

    def _at(self, batch: int, limit: Limit | None) -> Figures:
        sizes = self._prepared.get(batch) if batch not in self._sizes_at else None
        if sizes is None:
            sizes = self._sizes(batch).sizes
        figures = self._compiled(batch, sizes, limit)
        if figures is not None and figures.fails and limit is not None and self._current_template.plans:
            question = self._sizes(batch)
            figures = self._compiled(batch, question.sizes, limit, question.smaller)
        return figures or self._simulated(batch, limit)[0]

    def failed(self, batch: int, limit: Limit) -> Failed | None:
        self._renumber()
        return self._simulated(batch, limit)[1]

    def prediction(self, batch: int) -> Prediction | None:
        self._renumber()
        (sizes, takes), template = self._sizes(batch), self._current_template
        if template.rows is None or transforms(self._graph.operators):  # notes name a batch's transforms
            return None
        requests = [request for request in template.scratch if request.nbytes in takes]
        numbers = np.array([request.nbytes for request in requests], np.int64)
        events = tuple([_request_of_step(request, takes[request.nbytes]) for request in requests])
        plain = Plain(template.rows, sizes, numbers, len(template.events))
        program = Requests(events, template.libraries, template.unknown)
        return prediction_of(program, self._graph, self._profile, self._conf, plain)

    @property
    def _current_template(self) -> _Template:
        if self._template is None:
            self._template = self._make_template()
        return self._template

    def _compiled(
        self,
        batch: int,
        sizes: Integers,
        limit: Limit | None,
        smaller: Mapping[int, Sequence[int]] | None = None,
    ) -> Figures | None:
        """Return the figures as the compiled core says, with first plans alone where `smaller` is not given;
        None where it does not."""
        if self._current_template.rows is None:
            return None
        plans = None if smaller is None else NumberedPlans(self._current_template.plans, smaller)
        peaks = self._current_template.rows.peaks(sizes, limit, plans=plans)
        returned = peaks.returned or bool(peaks.refused)
        return self._figures(
            batch, peaks.allocated, peaks.reserved, fails=not peaks.served, returned=returned
        )

    def _simulated(self, batch: int, limit: Limit | None) -> tuple[Figures, Failed | None]:
        """Return the figures by simulation, under a limit with the fallback plans of this batch, and the
        request that found no room."""
        question, smaller = self._sizes(batch), dict[int, Sequence[int]]()
        if limit is None:
            allocator = make_allocator(self._conf, self._profile)
        else:
            allocator, smaller = limited(self._conf, self._profile, *limit), question.smaller
        failure, refused = _simulate(self._current_template, question.sizes.tolist(), smaller, allocator)
        figures = self._figures(
            batch,
            allocator.peak_allocated,
            allocator.peak_reserved,
            fails=failure is not None,
            refused=refused,
        )
        failed = None if failure is None else Failed(failure, self._current_template.events, self._graph)
        return figures, failed

    def _figures(self, batch: int, allocated: int, reserved: int, **how: Any) -> Figures:
        """Return the figures of a batch; how: the last fields of `Figures`."""
        return Figures(
            batch,
            allocated,
            reserved,
            device_used(reserved, self._current_template.libraries, self._profile, self._graph.communicators),
            self._naive(batch).total,
            **how,
        )

    def _sizes(self, batch: int) -> _BatchSizes:
        """Return every storage and kernel allocation size at one batch. Raises ArithmeticError."""
        if batch in self._sizes_at:
            return self._sizes_at[batch]
        self._learn(self._classes.at(batch))
        sizes = self._storages.copy()
        for index, polynomial in self._program.storages.items():
            sizes[index] = polynomial.at(batch)
        every = np.array(sizes + self._classes.sizes(), np.int64)
        self._sizes_at[batch] = _BatchSizes(every, self._classes.takes(len(self._storages)))
        return self._sizes_at[batch]

    def _learn(self, allocations: Sequence[tuple[int, KernelAllocations]]) -> None:
        """Take these as the classes' allocations."""
        self._classes.learn(allocations)
        self._renumber()

    def _renumber(self) -> None:
        """Forget what numbered the sizes of fewer steps than have been seen since, on any device."""
        if self._numbered != self._groups.changes:
            self._numbered, self._template = self._groups.changes, None
            self._prepared.clear()
            self._sizes_at.clear()
            self._figures_at.clear()

    def _make_template(self) -> _Template:
        """Return the template: run `eager` once with a number in place of each size, on the device that meets
        these steps first."""
        allocator = make_allocator(self._conf, self._profile)
        key = (self._classes.structure(), has_fast_path(allocator))
        if key not in self._templates:
            self._templates[key] = self._new_template(allocator)
        template = self._templates[key]
        return dataclasses.replace(
            template, rows=template.rows and template.rows._replace(settings=allocator.settings)
        )

    def _new_template(self, allocator: PyTorchAllocator) -> _Template:
        """Run `eager` once over storages and steps whose sizes are their numbers."""
        numbers = itertools.count(len(self._storages))
        numbered = [
            dataclasses.replace(allocations, steps=_numbered(steps, numbers))
            for allocations, steps in zip(self._classes.latest, self._classes.steps, strict=True)
        ]
        storages = tuple([dataclasses.replace(s, nbytes=s.index) for s in self._graph.storages])
        program = requests(
            dataclasses.replace(self._graph, storages=storages),
            self._profile,
            lambda operator: numbered[self._classes.class_of[operator.index]],
        )
        events, setup_count = program.events, iteration_start(program.events) + 1
        compiled = rows(events, lambda event: event.nbytes, allocator)
        scratch = {event.nbytes: event for event in events if isinstance(event, Malloc) and event.storage < 0}
        plans = {number: request.plan for number, request in scratch.items() if request.plan}
        return _Template(
            events, setup_count, program.libraries, program.unknown, tuple(scratch.values()), plans, compiled
        )


def _simulate(
    template: _Template, sizes: list[int], smaller: dict[int, Sequence[int]], allocator: PyTorchAllocator
) -> tuple[Failure | None, int]:
    """Simulate the template with a batch's sizes. Return the request that found no room, and how often a plan
    had none. Peaks count from the first iteration. smaller: fallback workspaces by size number."""
    server = Server(allocator)
    allocator.reset_peaks()
    for position, event in enumerate(template.events):
        if position == template.setup_count:
            allocator.reset_peaks()
        if isinstance(event, Malloc):
            nbytes = sizes[event.nbytes]
            try:
                server.serve(event, nbytes, smaller.get(event.nbytes, ()))
            except OutOfMemoryError as error:
                failed = dataclasses.replace(event, nbytes=nbytes)
                return Failure.of(position, failed, error), server.plans.refused
        elif isinstance(event, Event):
            allocator.end_event(event.name, event.value)
        else:
            server.serve(event)
    return None, server.plans.refused


def _request_of_step(request: Malloc, step: Take) -> Malloc:
    """Return the request as the step of a batch asks for it."""
    return dataclasses.replace(
        request,
        nbytes=step.nbytes,
        basis=step.basis.value,
        rule=step.rule,
        plan=step.plan,
        smaller=step.smaller,
        assumed=step.assumed,
        assumed_less=step.assumed_less,
    )


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
