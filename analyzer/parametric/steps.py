"""The later steps of a program from its first: what one captured step says of a batch, said of all its steps.

A captured program repeats itself: forward and backward pass are called the same way in every step. So all
steps are captured at one batch (the **whole**), and at other batches only the first:

1. Up to its last event the first step is the whole's: the same operators, storages and moments but for
   numbers. That is checked like everything else (`program.py`); what comes later has the whole's structure.
2. An operator of a later step has its **counterpart** in the first: the same kernel, phase, module, line and
   numbers in the whole, the n-th there where it is the n-th in its step. Its numbers at another batch are its
   counterpart's there.
3. A storage of a later step is as large as the one its counterpart made; an input as the first step's input
   of that name.
4. Where there is no counterpart, or its storage has another size in the whole, `NotTheSame`: all steps are
   captured then.

Not modelled: two operators that are alike in all this at the whole's batch and are not at another.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from analyzer.graph import Argument, Birth, Graph, Mark, Operator, Run, TensorMeta
from analyzer.parametric.numbers import NotTheSame


class RepeatedSteps:
    """How the later steps of a capture repeat its first one."""

    def __init__(self, graph: Graph) -> None:
        """Compare the later steps with the first. Raises NotTheSame if they differ."""
        every = self._whole = graph
        self._count = next((o.index for o in every.operators if o.step > 0), len(every.operators))
        self._counterparts = _counterparts(every, self._count)
        later = next((p for p, m in enumerate(every.program) if m == Run(self._count)), len(every.program))
        marks = [place for place, moment in enumerate(every.program[:later]) if isinstance(moment, Mark)]
        self._end = marks[-1] + 1 if marks else 0
        self._storages = list(_later_storages(every, self._end, self._counterparts, self._count))
        for index, other in self._storages:
            if every.storages[index].nbytes != every.storages[other].nbytes:
                raise NotTheSame(f"storage {index} ({every.storages[index].name})")

    def with_all_steps(self, one: Graph) -> Graph:
        """`one`, of which one step was captured, with the later steps of the whole. Raises NotTheSame."""
        every = self._whole
        if len(one.operators) != self._count or one.program[: self._end] != every.program[: self._end]:
            raise NotTheSame("the first step")
        operators = list(one.operators)
        for later, other in zip(every.operators[self._count :], self._counterparts, strict=True):
            mine = one.operators[other]
            operators.append(later if mine == every.operators[other] else _with_numbers(later, mine))
        storages = list(every.storages)
        storages[: len(one.storages)] = one.storages
        for index, other in self._storages:
            storages[index] = dataclasses.replace(every.storages[index], nbytes=one.storages[other].nbytes)
        return dataclasses.replace(
            every,
            storages=tuple(storages),
            operators=tuple(operators),
            batch=one.batch,
            notes=one.notes,
            guards=one.guards,
        )


def _counterparts(every: Graph, count: int) -> list[int]:
    """Return the index, in the first step, of each later operator's counterpart. Raises NotTheSame."""
    indices_by_key: dict[Any, list[int]] = defaultdict(list)
    for operator in every.operators[:count]:
        indices_by_key[_likeness(operator)].append(operator.index)
    counterparts: list[int] = []
    counts: dict[tuple[int, Any], int] = defaultdict(int)
    for operator in every.operators[count:]:
        likeness = _likeness(operator)
        place = counts[operator.step, likeness]
        counts[operator.step, likeness] += 1
        if place >= len(indices_by_key[likeness]):
            raise NotTheSame(f"{operator.name} in step {operator.step}")
        counterparts.append(indices_by_key[likeness][place])
    return counterparts


def _later_storages(every: Graph, end: int, counterparts: list[int], count: int) -> Iterable[tuple[int, int]]:
    """Yield storages born after moment `end`, each with its counterpart in the first step."""
    born: set[int] = set()
    inputs: dict[str, list[int]] = defaultdict(list)
    for moment in every.program[:end]:
        born.update(_born(every, moment))
        if isinstance(moment, Birth):
            inputs[every.storages[moment.storage].name].append(moment.storage)
    for moment in every.program[end:]:
        if isinstance(moment, Birth) and moment.storage not in born:
            alike = inputs[every.storages[moment.storage].name]
            if not alike:
                raise NotTheSame(every.storages[moment.storage].name)
            born.add(moment.storage)
            yield moment.storage, alike[-1]
        elif isinstance(moment, Run):
            if moment.operator < count:
                raise NotTheSame("the first step")
            other = every.operators[counterparts[moment.operator - count]]
            for mine, theirs in zip(every.operators[moment.operator].outputs, other.outputs, strict=True):
                if mine is not None and theirs is not None and mine.storage not in born:
                    born.add(mine.storage)
                    yield mine.storage, theirs.storage


def _born(graph: Graph, moment: object) -> list[int]:
    """Storages that exist from this moment on, at the latest."""
    if isinstance(moment, Birth):
        return [moment.storage]
    if isinstance(moment, Run):
        return [output.storage for output in graph.operators[moment.operator].outputs if output is not None]
    return []


def _likeness(operator: Operator) -> Any:
    """Return what counterparts share: everything but tensor names and values of fractions."""
    return (
        operator.name,
        operator.phase,
        operator.module,
        operator.source,
        operator.stream,
        operator.settings,
        _comparable(operator.arguments),
        _comparable(operator.outputs),
        tuple([(name, _comparable(value)) for name, value in operator.keywords.items()]),
    )


def _comparable(argument: Argument) -> Any:
    kind = type(argument)
    if kind is TensorMeta:
        tensor: Any = argument
        return (tensor.shape, tensor.stride, tensor.dtype, tensor.offset, tensor.requires_grad)
    if kind is tuple:
        return tuple([_comparable(part) for part in argument])  # type: ignore[union-attr]
    if kind is float:
        return (kind, argument == 0)
    return (kind, argument)


def _with_numbers(later: Operator, mine: Operator) -> Operator:
    """`later` with the numbers of its counterpart."""
    return dataclasses.replace(
        later,
        arguments=_with_sizes_of(later.arguments, mine.arguments),
        outputs=_with_sizes_of(later.outputs, mine.outputs),
        keywords={
            name: _with_sizes_of(value, mine.keywords.get(name)) for name, value in later.keywords.items()
        },
    )


def _with_sizes_of(later: Any, mine: Any) -> Any:
    """Return a later step's argument with the shapes, strides and numbers of its counterpart in the first."""
    if type(later) is not type(mine):
        raise NotTheSame("the first step")
    if isinstance(later, TensorMeta):
        return TensorMeta(
            later.storage,
            mine.shape,
            mine.stride,
            later.dtype,
            mine.offset,
            later.requires_grad,
            later.symbols,
            later.conjugated,
        )
    if isinstance(later, tuple):
        if len(later) != len(mine):
            raise NotTheSame("the first step")
        return tuple([_with_sizes_of(*pair) for pair in zip(later, mine, strict=True)])
    return mine if isinstance(later, int) else later
