"""Live ranges: from which moment to which a storage takes up memory, by three policies.

A storage is **live** at a moment of the program (`Graph.program`) from its birth to its last moment, both
included; an operator's inputs and results are therefore live together while it runs.

1. `"eager"`: the program as it is. A storage is live until the moment before its `Death`; without one, to the
   end.
2. `"last_use"`: a perfect executor of the same operators in the same order frees each storage right after the
   last operator that reads or writes it. a. Storages the backward pass reads stay: the operators that read
   them are in the program ("saved" edges). b. Gradients stay until the optimizer has used them, by the same
   rule. c. Parameters, buffers and optimizer state stay to the end: the next step needs them. d. Inputs and
   targets stay to the end of the step they are for: they are the caller's. e. A storage no operator reads is
   either the caller's result or unused: as in `"eager"`, but at most to the end of the step that made it.
   f. Never longer than `"eager"`. g. A storage alive when an unfinished program ended (`Graph.unfinished`)
   might have been used later: it is live to the end.
3. `"never"`: nothing is freed. Its peak is the sum of all storages.
4. The **peak** is the largest sum of live bytes on the device at a moment, at the first moment that reaches
   it.

Reads and writes are the edges of the graph's view (`graph/view.py`), which is what is walked here: a
storage's last use is the last of its neighbours.

Not modelled: the allocator's rounding, operators' own scratch memory and library workspaces (`scratch/`),
reordering or recomputing operators, and sharing memory between storages (an output reusing its input's).

Source: live ranges of straight-line code as compilers define them (Aho, Lam, Sethi, Ullman, Compilers,
section 9.2.5).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal, TypeAlias

from analyzer.graph import Category, Graph, Phase, Run, view_of

Policy: TypeAlias = Literal["last_use", "eager", "never"]

_KEPT = frozenset({Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE})


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """`first[i]`, `last[i]`: the positions in the program between which storage i is live, both included.

    A storage that is never born has `first` after `last`.
    """

    policy: Policy
    first: tuple[int, ...]
    last: tuple[int, ...]

    def alive_at(self, position: int) -> tuple[int, ...]:
        """Indices of the storages live at a moment, in order."""
        ranges = enumerate(zip(self.first, self.last, strict=True))
        return tuple(index for index, (first, last) in ranges if first <= position <= last)


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes live at once on the device.

    position: the moment in the program, -1 if nothing is ever live. operator: the operator running then, or
    None.
    members: indices of the device storages live then, largest first.
    """

    nbytes: int
    position: int
    operator: int | None
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """Tensors saved for backward, in the step and micro-batch that saves most.

    nbytes: bytes of device storages born in forward or loss and read in backward.
    storages: their indices, largest first.
    live_bytes: everything live on the device, by last use, when the forward pass (with the loss) is over.
    position: that moment, -1 if there is no backward pass.
    """

    nbytes: int
    storages: tuple[int, ...]
    live_bytes: int
    position: int


def lifetimes(graph: Graph, policy: Policy = "last_use") -> Lifetimes:
    """Live ranges of every storage."""
    end = len(graph.program) - 1
    view = view_of(graph)
    first, eager = [], []
    for index in range(len(graph.storages)):
        node = view.nodes[index]
        born, died = node["birth"], node["death"]
        first.append(end + 1 if born is None else born)
        eager.append(-1 if born is None else end if died is None else died - 1)
    if policy == "eager":
        return Lifetimes(policy, tuple(first), tuple(eager))
    if policy == "never":
        return Lifetimes(policy, tuple(first), tuple(-1 if last < 0 else end for last in eager))
    step_end = _step_ends(graph)
    ran = dict(view.nodes(data="position"))
    last = []
    for index, storage in enumerate(graph.storages):
        ahead = graph.unfinished and eager[index] == end
        if storage.category in _KEPT or eager[index] < 0 or ahead:
            use = eager[index]
        elif storage.category is Category.INPUT:
            use = step_end(first[index])
        elif view.out_degree(index):
            use = max(ran[operator] for operator in chain(view.pred[index], view.succ[index]))
        else:
            use = step_end(first[index])
        last.append(min(use, eager[index]))
    return Lifetimes(policy, tuple(first), tuple(last))


def peak(graph: Graph, policy: Policy = "last_use", ranges: Lifetimes | None = None) -> Peak:
    """Return the peak, at the first moment that reaches it, and who is in it.

    `ranges`, if given, are the policy's lifetimes, made before.
    """
    if ranges is None:
        ranges = lifetimes(graph, policy)
    curve = live_bytes(graph, ranges)
    nbytes = max(curve, default=0)
    if nbytes == 0:
        return Peak(0, -1, None, ())
    position = curve.index(nbytes)
    moment = graph.program[position]
    on_device = (index for index in ranges.alive_at(position) if graph.storages[index].on_device)
    members = tuple(sorted(on_device, key=lambda index: -graph.storages[index].nbytes))
    return Peak(nbytes, position, moment.operator if isinstance(moment, Run) else None, members)


def live_bytes(graph: Graph, ranges: Lifetimes) -> tuple[int, ...]:
    """Return the bytes live on the device at each moment of the program."""
    change = [0] * (len(graph.program) + 1)
    for storage, first, last in zip(graph.storages, ranges.first, ranges.last, strict=True):
        if storage.on_device and first <= last:
            change[first] += storage.nbytes
            change[last + 1] -= storage.nbytes
    return tuple(accumulate(change[:-1]))


def saved_for_backward(graph: Graph, ranges: Lifetimes | None = None) -> Saved:
    """Return the saved tensors between forward and backward. ranges: the "last_use" lifetimes, if known."""
    if ranges is None:
        ranges = lifetimes(graph, "last_use")
    kept = _read_in_backward(graph)
    curve = live_bytes(graph, ranges)
    best = Saved(0, (), 0, -1)
    for position in forward_ends(graph):
        storages = [index for index, (born, read) in kept.items() if born <= position < read]
        nbytes = sum(graph.storages[index].nbytes for index in storages)
        if nbytes > best.nbytes or best.position < 0:
            storages.sort(key=lambda index: -graph.storages[index].nbytes)
            best = Saved(nbytes, tuple(storages), curve[position], position)
    return best


def saved_at(graph: Graph, position: int) -> tuple[int, ...]:
    """Device storages that a forward pass has made by `position` and that backward reads later."""
    kept = _read_in_backward(graph)
    return tuple(index for index, (born, read) in kept.items() if born <= position < read)


def _read_in_backward(graph: Graph) -> dict[int, tuple[int, int]]:
    """Return, of forward storages read in backward, (birth, last backward read) positions."""
    view = view_of(graph)
    ran = dict(view.nodes(data="position"))
    read: dict[int, tuple[int, int]] = {}
    for operator in graph.operators:
        if operator.phase in (Phase.FORWARD, Phase.LOSS):
            for storage, edge in view.succ[~operator.index].items():
                if edge["kind"] == "birth" and graph.storages[storage].on_device:
                    readers = [r for r in view.succ[storage] if graph.operators[~r].phase is Phase.BACKWARD]
                    if readers:
                        read[storage] = ran[~operator.index], max(map(ran.__getitem__, readers))
    return read


def _step_ends(graph: Graph) -> Callable[[int], int]:
    """Return a function from a position to the position of the last operator of the step under way there.

    The step of a position is that of the next operator to run, so an input's birth belongs to the step it is
    for.
    """
    runs = [position for position, moment in enumerate(graph.program) if isinstance(moment, Run)]
    steps = [graph.operators[moment.operator].step for moment in graph.program if isinstance(moment, Run)]
    ends = dict(zip(steps, runs, strict=True))

    def step_end(position: int) -> int:
        following = bisect_left(runs, position)
        return ends[steps[following]] if following < len(runs) else len(graph.program) - 1

    return step_end


def forward_ends(graph: Graph) -> list[int]:
    """Return the position of the last forward or loss operator of each micro-batch."""
    ends = []
    forward = -1
    for position, moment in enumerate(graph.program):
        if isinstance(moment, Run):
            phase = graph.operators[moment.operator].phase
            if phase in (Phase.FORWARD, Phase.LOSS):
                forward = position
            elif phase is Phase.BACKWARD and forward >= 0:
                ends.append(forward)
                forward = -1
    return ends
