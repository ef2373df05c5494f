"""Operators' own memory in a captured program, at any batch, by as few calls of scratch rules as can be.

1. Operators that are equal but for the tensors' names (at every captured batch, so at any) are an equivalence
   class, and allocate the same. One whose numbers do not vary allocates the same at every batch; of one
   without a scratch rule only the results are allocated.
2. The rules of the others are asked at each batch, many batches at once (`parametric/lanes.py`): a rule runs
   once for all batches for which it decides alike. A rule of the user's, and one that needs its numbers one
   by one, is asked batch by batch.
3. A kernel may do without a temporary at one batch that it takes at another (a copy, a workspace of no
   bytes). A class has every step known so far, and an absent one has no bytes: an allocator has no block for
   such a request.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from analyzer.devices import DeviceProfile
from analyzer.graph import Argument, Operator, Phase, TensorMeta
from analyzer.parametric.lanes import Lanes, NotTogether, in_parts
from analyzer.parametric.numbers import AtBatch
from analyzer.parametric.program import BatchProgram
from analyzer.runtimes.pytorch.scratch import Give, KernelAllocations, Output, Step, Take, kernel_allocations
from analyzer.runtimes.pytorch.scratch.script import rule_for

Signature: TypeAlias = tuple[Any, ...]
Integers = npt.NDArray[np.int64]
# A class's allocations, with the batches at which it makes them, as places in a list.
Variant: TypeAlias = tuple[Integers, KernelAllocations]


class Groups:
    """A program's operators by class, the same on every device. members: of each class an operator, and what
    it is at any batch, None where that changes nothing. steps: of each class all seen so far, at any batch
    and on any device; changes: how often that became other ones."""

    def __init__(self, program: BatchProgram) -> None:
        """Raises NotTheSame if numbers of an operator with scratch are no polynomials."""
        self.steps: list[tuple[Step, ...]] = []
        self.changes = 0
        self.class_of: list[int] = []
        self.members: list[tuple[Operator, AtBatch | None]] = []
        numbers: dict[Signature, int] = {}
        for operator in program.first.operators:
            ruled = rule_for(operator.name) is not None
            signature: Signature = (operator.name, len(operator.outputs))
            if ruled:
                signature = tuple(map(_signature, program.calls(operator.index)))
            number = numbers.get(signature)
            if number is None:
                number = numbers[signature] = len(self.members)
                self.members.append((operator, program.operator(operator.index) if ruled else None))
            self.class_of.append(number)


class Classes:
    """The classes of a program's operators, on one device.

    class_of: the class of each operator. latest: what each class allocates at the last batch asked about.
    steps: as of `Groups`.
    """

    def __init__(self, groups: Groups, profile: DeviceProfile) -> None:
        """Ask what the first batch's operators allocate on the device."""
        self._groups, self._profile = groups, profile
        self.class_of = groups.class_of
        self.latest = [kernel_allocations(operator, profile) for operator, _ in groups.members]
        self._varying = [(number, at) for number, (_, at) in enumerate(groups.members) if at is not None]
        self.steps = groups.steps
        if not self.steps:
            self.steps += [allocations.steps for allocations in self.latest]
        self.learn(list(enumerate(self.latest)))

    def at(self, batch: int) -> list[tuple[int, KernelAllocations]]:
        """Return (class number, allocations) of each varying class. Raises ArithmeticError."""
        return [
            (number, kernel_allocations(operator(batch), self._profile)) for number, operator in self._varying
        ]

    def at_many(self, batches: Sequence[int]) -> Iterator[tuple[int, list[Variant]]]:
        """Yield (class number, variants) of each varying class at many batches.

        A batch at which a number is no whole one is in none of them.
        """
        for number, operator in self._varying:
            yield number, list(self._many(operator, np.array(batches, np.int64)))

    def _many(self, operator: AtBatch, batches: Integers) -> Iterator[Variant]:
        """Yield (lanes, allocations) of a class at several batches, together where its rule allows it."""

        def allocations_at(lanes: Integers) -> KernelAllocations | None:
            try:
                if len(lanes) == 1:
                    return kernel_allocations(operator(int(batches[lanes[0]])), self._profile)
                call = operator(Lanes(batches[lanes]))  # type: ignore[arg-type]
                scratch_rule = rule_for(call.name)
                if scratch_rule is None or not scratch_rule.code.__module__.startswith("analyzer."):
                    raise NotTogether
                return kernel_allocations(call, self._profile)
            except ArithmeticError:
                return None

        for lanes, allocations in in_parts(np.arange(len(batches)), allocations_at):
            if allocations is not None:
                yield lanes, allocations

    def learn(self, allocations_by_class: Sequence[tuple[int, KernelAllocations]]) -> None:
        """Take these as the classes' allocations, and count a change where steps or libraries are new."""
        for number, allocations in allocations_by_class:
            before, self.latest[number] = self.latest[number], allocations
            merged = _merged(self.steps[number], allocations.steps)
            if merged is not self.steps[number] or allocations.libraries != before.libraries:
                self.steps[number] = merged
                self._groups.changes += 1

    def structure(self) -> tuple[Any, ...]:
        """Return all that decides which requests are made in which order, at any batch and on any device."""
        return tuple(
            [
                (allocations.libraries, allocations.known, tuple(map(_structure, steps)))
                for allocations, steps in zip(self.latest, self.steps, strict=True)
            ]
        )

    def sizes(self) -> list[int]:
        """Return all step sizes, class by class, at the last batch; 0 for an absent step."""
        every: list[int] = []
        for allocations, steps in zip(self.latest, self.steps, strict=True):
            every += _sizes(allocations, steps)
        return every

    def sizes_at(
        self, classes: Sequence[tuple[int, list[Variant]]], batch_count: int
    ) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return `sizes` at many batches, a column each, and at which batches they hold.

        They do not where a variant has its steps in another order than its class, or loads other libraries.
        """
        last: list[Any] = self.sizes()
        same = [0 if isinstance(size, Lanes) else size for size in last]
        every = np.repeat(np.array(same, np.int64)[:, None], batch_count, axis=1)
        begins = [0, *itertools.accumulate(sum(_has_size(step) for step in steps) for steps in self.steps)]
        holds = np.ones(batch_count, np.bool_)
        for number, variants in classes:
            steps, begin = self.steps[number], begins[number]
            integral = np.zeros(batch_count, np.bool_)
            for lanes, allocations in variants:
                in_order = _merged(steps, allocations.steps) is steps
                integral[lanes] = in_order and allocations.libraries == self.latest[number].libraries
                for place, size in enumerate(_sizes(allocations, steps)):
                    every[begin + place, lanes] = size.values if isinstance(size, Lanes) else size
            holds &= integral
        return every, holds

    def takes(self, first: int) -> dict[int, Take]:
        """Return the requests at the last batch by the number of their size, counted from `first`."""
        steps_by_size: dict[int, Take] = {}
        for allocations, steps in zip(self.latest, self.steps, strict=True):
            by_name = {_step_key(step): step for step in allocations.steps if isinstance(step, Take)}
            for name in [_step_key(step) for step in steps if _has_size(step)]:
                if name in by_name:
                    steps_by_size[first] = by_name[name]
                first += 1
        return steps_by_size


def _has_size(step: Step) -> bool:
    return not isinstance(step, Give) and step.nbytes is not None


def _sizes(allocations: KernelAllocations, steps: tuple[Step, ...]) -> list[Any]:
    """Return the size of each of `steps` in `allocations`, 0 for an absent step."""
    sized = [step for step in allocations.steps if _has_size(step)]
    if len(allocations.steps) == len(steps):
        return [step.nbytes for step in sized if not isinstance(step, Give)]
    by_name = {_step_key(step): step.nbytes for step in sized if not isinstance(step, Give)}
    return [by_name.get(_step_key(step), 0) for step in steps if _has_size(step)]


def _step_key(step: Step) -> Signature:
    """Return a key that identifies a step at every batch."""
    match step:
        case Take(token=token, workspace=workspace):
            return ("take", token, workspace)
        case Output(index=index, nbytes=nbytes):
            return ("output", index, nbytes is None)
        case Give(token):
            return ("give", token)


def _alike(step: Step, other: Step) -> bool:
    """Return whether two steps have one key."""
    if type(step) is Take and type(other) is Take:
        return step.token == other.token and step.workspace == other.workspace
    return _step_key(step) == _step_key(other)


def _structure(step: Step) -> Signature:
    """Return a step's key, and what `eager` goes by; which calls have one plan, their shapes say."""
    return (
        (*_step_key(step), bool(step.plan), bool(step.trials_of))
        if isinstance(step, Take)
        else _step_key(step)
    )


def _merged(before: tuple[Step, ...], now: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return `before` with the missing steps of `now` inserted; `now` if their orders contradict."""
    if len(before) == len(now) and all(map(_alike, before, now)):
        return before
    merged: list[Step] = []
    left, right = list(before), list(now)
    while left and right:
        key, other_key = _step_key(left[0]), _step_key(right[0])
        if key == other_key:
            merged.append(left.pop(0))
            right.pop(0)
        elif all(_step_key(step) != key for step in right):
            merged.append(left.pop(0))
        elif all(_step_key(step) != other_key for step in left):
            merged.append(right.pop(0))
        else:
            return now
    merged += left + right
    left_out = {_step_key(step) for step in merged} - {_step_key(step) for step in now}
    # A result is never left out: without one it is another variant.
    if any(name[0] == "output" for name in left_out):
        return now
    return before if len(merged) == len(before) else tuple(merged)


def _signature(operator: Operator) -> Signature:
    """Return everything a scratch rule may read, without storages, and whether it is backward."""
    return (
        operator.name,
        operator.phase is Phase.BACKWARD,
        _comparable(operator.arguments),
        _comparable(operator.outputs),
        tuple([(name, _comparable(value)) for name, value in operator.keywords.items()]),
        operator.settings,
    )


def _comparable(argument: Argument) -> Any:
    if type(argument) is TensorMeta:
        return (argument.shape, argument.stride, argument.dtype, argument.offset)
    if type(argument) is tuple:
        return tuple([_comparable(part) for part in argument])
    return (type(argument), argument)  # 1, 1.0 and True are no equal arguments
