"""What PyTorch in eager mode asks of the CUDA caching allocator, in order.

1. A storage is requested where it is born and given back where it dies: the captured program is followed as it is.
2. While an operator runs, its own memory is taken and given back as its scratch rule tells (`scratch/script.py`).
3. A library workspace is taken once per thread. Autograd runs the backward pass on a thread of its own, so training
   takes two of each (facts of the recorded measurements).
4. Storages in host memory ask for nothing.

Not modelled: requests of other streams, CUDA graphs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from analyzer.devices import DeviceProfile
from analyzer.graph import Birth, Category, Death, Graph, Mark, Operator, Phase, Run
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer.scratch import Output, Take, story_of


@dataclass(slots=True)
class EagerProgram:
    """The requests of one program. `events` is an iterator to be played once; the rest is complete after that.

    libraries: library families the operators load ("cublas", "cudnn", ...), once more with "@autograd" for those that
        the thread of the backward pass uses.
    unknown: operators without a rule, name -> (calls, bound in bytes of what they might take).
    """

    graph: Graph
    device: DeviceProfile
    libraries: set[str] = field(default_factory=set)
    unknown: dict[str, tuple[int, int]] = field(default_factory=dict)

    def events(self) -> Iterator[AllocationEvent]:
        """Every request, in order."""
        storages = self.graph.storages
        operators = self.graph.operators
        alive: set[int] = set()
        workspaces: set[tuple[str, bool]] = set()
        keys = itertools.count(len(storages))

        def born(
            index: int, operator: int, label: str, nbytes: int | None = None
        ) -> Iterator[AllocationEvent]:
            storage = storages[index]
            if storage.on_device and index not in alive:
                alive.add(index)
                yield Malloc(
                    index,
                    storage.nbytes if nbytes is None else nbytes,
                    storage.category,
                    operator,
                    index,
                    "exact",
                    label,
                )

        for moment in self.graph.program:
            match moment:
                case Run(index):
                    operator = operators[index]
                    yield from self._run(operator, born, workspaces, keys)
                case Death(index):
                    if index in alive:
                        alive.remove(index)
                        yield Free(index)
                case Birth(index):
                    yield from born(index, -1, storages[index].name)
                case Mark(name):
                    yield Event(name)

    def _run(
        self,
        operator: Operator,
        born: Callable[..., Iterator[AllocationEvent]],
        workspaces: set[tuple[str, bool]],
        keys: Iterator[int],
    ) -> Iterator[AllocationEvent]:
        story = story_of(operator, self.device)
        thread = "@autograd" if operator.phase is Phase.BACKWARD else ""
        self.libraries |= {family + thread for family in story.libraries}
        if not story.known:
            calls, bound = self.unknown.get(operator.name, (0, 0))
            self.unknown[operator.name] = (calls + 1, max(bound, story.bound_bytes))
        taken: dict[int, int] = {}
        for step in story.steps:
            if isinstance(step, Output):
                output = operator.outputs[step.index] if step.index < len(operator.outputs) else None
                if output is not None:
                    yield from born(output.storage, operator.index, operator.name, step.nbytes)
            elif isinstance(step, Take):
                if step.keep:
                    workspace = (step.keep, operator.phase is Phase.BACKWARD)
                    if workspace not in workspaces:
                        workspaces.add(workspace)
                        yield Malloc(
                            next(keys),
                            step.nbytes,
                            Category.WORKSPACE,
                            operator.index,
                            -1,
                            step.basis.value,
                            step.keep,
                        )
                else:
                    taken[step.token] = key = next(keys)
                    yield Malloc(
                        key,
                        step.nbytes,
                        Category.SCRATCH,
                        operator.index,
                        -1,
                        step.basis.value,
                        operator.name,
                    )
            elif step.token in taken:
                yield Free(taken.pop(step.token))
