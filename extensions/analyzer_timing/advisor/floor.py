"""The least that a job needs on a device, whatever is computed again and however its batch is split: a lower
bound by liveness, of one sample.

1. An operator runs with its operands and results there, and with every parameter, buffer and state of the
   optimizer: **one operator's need**. Computing blocks again runs the same operators; a larger batch needs
   no less.
2. When the optimizer's step begins, all gradients that it reads are there.
3. The bound is the largest of these over the program, and beside it the least that the process takes outside
   of the allocator (context, libraries).

A bound above the device is a proof that none of the ways that are offered fits. One below it proves nothing.

Not modelled: states of the optimizer that are in host memory, parameters that are only there while they are
used (FSDP's offloading), optimizers that step in the backward pass: none of them is offered.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.analysis import Analysis
from analyzer.graph import Category, Graph, Operator, Phase, Run
from analyzer.graph.model import storages_in
from analyzer.liveness.lifetimes import lifetimes

_STAYS = frozenset({Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE})


@dataclass(frozen=True, slots=True)
class Floor:
    """live_bytes: the bound of what is alive at once. beside_bytes: outside of the allocator, at least.
    operator, module, source: where; "" for the beginning of the optimizer's step."""

    live_bytes: int
    beside_bytes: int
    operator: str = ""
    module: str = ""
    source: str = ""

    @property
    def device_bytes(self) -> int:
        """Bytes the device needs at least."""
        return self.live_bytes + self.beside_bytes


def floor_of(analysis: Analysis) -> Floor:
    """Return the floor of an analysed program of one sample."""
    estimate = analysis.estimate
    used = estimate.needed.device_used - estimate.needed.peak_reserved
    beside = (estimate.certainty.beside_range or (used, used))[0]
    nbytes, at = _largest(analysis.graph)
    if at is None or at.phase is Phase.OPTIMIZER:
        return Floor(nbytes, beside)
    return Floor(nbytes, beside, at.name, at.module, at.source)


def _largest(graph: Graph) -> tuple[int, Operator | None]:
    """The most that one operator needs, and which."""
    staying = _staying(graph)
    most, where = 0, None
    stepping: set[int] = set()  # steps whose optimizer has begun
    read_by_step = _read_by_optimizer(graph)
    for position, moment in enumerate(graph.program):
        if not isinstance(moment, Run):
            continue
        operator = graph.operators[moment.operator]
        if operator.phase is Phase.OPTIMIZER:
            if operator.step in stepping:
                continue
            stepping.add(operator.step)
            touched = read_by_step[operator.step]
        else:
            touched = storages_in(operator) | {out.storage for out in operator.outputs if out is not None}
        nbytes = staying[position] + sum(
            storage.nbytes
            for storage in (graph.storages[index] for index in touched)
            if storage.on_device and storage.category not in _STAYS
        )
        if nbytes > most:
            most, where = nbytes, operator
    return most, where


def _staying(graph: Graph) -> list[int]:
    """Bytes of parameters, buffers and states at each moment."""
    ranges = lifetimes(graph, "eager")
    change = [0] * (len(graph.program) + 1)
    for storage, first, last in zip(graph.storages, ranges.first, ranges.last, strict=True):
        if storage.on_device and storage.category in _STAYS and first <= last:
            change[first] += storage.nbytes
            change[last + 1] -= storage.nbytes
    total, totals = 0, []
    for more in change[:-1]:
        total += more
        totals.append(total)
    return totals


def _read_by_optimizer(graph: Graph) -> dict[int, set[int]]:
    """Return the gradients the optimizer reads, by step."""
    gradients_by_step: dict[int, set[int]] = {}
    for operator in graph.operators:
        if operator.phase is Phase.OPTIMIZER:
            gradients = {
                index
                for index in storages_in(operator)
                if graph.storages[index].category is Category.GRADIENT
            }
            gradients_by_step.setdefault(operator.step, set()).update(gradients)
    return gradients_by_step
