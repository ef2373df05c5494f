"""A target at any batch of a range, and what a runtime says of it there without an analysis of each batch.

1. A parametric capture is one target, captured at a few batches. The captured graphs, merged into one
   parametric graph, are its program (`parametric/program.py`), the sums of the textbook its `naive`. Both are
   made when they are first asked for: a runtime that takes a file's own model needs no joined graph.
2. `Runtime.over_batches` answers with `Batches`: which sizes will be asked for (`prepare`), and the figures
   at each (`at`). A figure is what an analysis at that batch would say; where only an analysis can, `at`
   raises ArithmeticError.
3. A runtime that looks at nothing but the graph, and at that only as a whole, is asked about the joined graph
   at each batch (`OfGraph`): no batch is captured for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from analyzer.devices import DeviceProfile
from analyzer.graph import Graph
from analyzer.liveness.naive import Naive
from analyzer.options import Options
from analyzer.parametric.numbers import Numbers
from analyzer.parametric.program import BatchProgram
from analyzer.runtimes.events import AllocationEvent
from analyzer.runtimes.timeline import Failure, simulate

if TYPE_CHECKING:
    from analyzer.runtimes.base import Limit, Prediction, Runtime, Source


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one batch in bytes; if the allocator's limit ends the program (`fails`), all but `naive` are
    of the part before. refused: times a plan had no room (`plans.py`). returned: whether the cache was freed
    for want of room; None if unknown."""

    batch: int
    peak_allocated: int
    peak_reserved: int
    device_used: int
    naive: int
    fails: bool = False
    refused: int = 0
    returned: bool | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """A request without room, of these events; its operator and storage are of the graph."""

    failure: Failure
    events: Sequence[AllocationEvent]
    graph: Graph


class ParametricCapture:
    """One target at `batches`: three or more, to check numbers, or one for its batch alone.

    sources: what was captured there. known: what runtimes found out that is the same on every device, under
    names of their own.
    """

    def __init__(self, batches: Sequence[int], sources: Sequence[Source], naives: Sequence[Naive]) -> None:
        self.batches, self.sources = tuple(batches), tuple(sources)
        self.known: dict[Any, Any] = {}
        self._naives = naives

    @cached_property
    def program(self) -> BatchProgram:
        """The graph at any batch. Raises NotTheSame."""
        return BatchProgram(self.batches, [source.graph for source in self.sources])

    @property
    def of_file(self) -> bool:
        """Whether it is an ONNX file's, which is read again at each batch."""
        return self.sources[0].model is not None

    def changed(self, batch: int) -> bool:
        """Return whether a batch's program differs: a size comparison is answered otherwise."""
        return not self.of_file and batch not in self.batches and self.program.guards.changed(batch)

    @cached_property
    def naive(self) -> Callable[[int], Naive]:
        """The textbook sum at any batch; raises ArithmeticError as `Polynomial.at`. Raises NotTheSame."""
        return Numbers(self.batches).record(self._naives, "the naive sum")


class Batches(ABC):
    """The figures of a target at any batch, under one runtime, on one device."""

    def prepare(self, sizes: Sequence[int]) -> None:
        """Compute in advance what these batches share, before `at` is called for each; by default nothing."""
        del sizes

    @abstractmethod
    def at(self, size: int, limit: Limit | None = None) -> Figures:
        """Return the figures at a batch, under a limit as `Prediction.limited` takes it. Raises
        ArithmeticError where only an analysis at that batch says."""

    def prediction(self, size: int) -> Prediction | None:
        """Return what the runtime would do with a batch in plain numbers (`Prediction.plain`); None if only
        `Runtime.predict` says, as by default. Raises ArithmeticError as `at`."""
        del size
        return None

    def failed(self, size: int, limit: Limit) -> Failed | None:
        """Return the request that finds no room at a batch under a limit; None if all do, or if only an
        analysis says, as by default. Raises ArithmeticError as `at`."""
        del size, limit
        return None


class OfGraph(Batches):
    """The figures of a runtime that is asked about the joined graph at each batch."""

    def __init__(
        self, runtime: Runtime, parametric: ParametricCapture, profile: DeviceProfile, options: Options
    ) -> None:
        """Join the captures to one program. Raises NotTheSame."""
        self._runtime, self._profile, self._options = runtime, profile, options
        self._source, self._program, self._naive = parametric.sources[0], parametric.program, parametric.naive

    def at(self, size: int, limit: Limit | None = None) -> Figures:
        """Return the figures of a batch, as `Batches.at`; raises ArithmeticError under a limit."""
        if limit is not None:
            raise ArithmeticError(f"{self._runtime.name} under a limit is analysed")
        source = replace(self._source, graph=self._program.at(size))
        prediction = self._runtime.predict(source, replace(self._options, batch=size), self._profile)
        simulation = simulate(prediction.events, prediction.allocator())
        return Figures(
            size,
            simulation.peak_allocated,
            simulation.peak_reserved,
            prediction.device_used(simulation),
            self._naive(size).total,
            simulation.failure is not None,
            len(simulation.refused),
        )
