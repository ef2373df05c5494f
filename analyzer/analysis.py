"""One analysis with everything that was made on the way: what whoever needs more than the estimate takes.

The estimate is what people read; `verify`, `--dump-graph` and planning also need the graph, the requests and
the profile it came from. They take them from here, so that nothing is predicted twice or with other settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from analyzer.devices import DeviceProfile
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.results.estimate import Estimate
from analyzer.runtimes.base import Prediction
from analyzer.runtimes.events import AllocationEvent
from analyzer.runtimes.timeline import Simulation


@dataclass(frozen=True, slots=True)
class Analysis:
    """options: as given. profile: as really used, with the runtime's settings in it. graph: the captured
    program.

    prediction: what the runtime asks of its allocator. simulation: what the allocator did with it. steps:
    optimizer steps that a program made before its memory ran out.
    """

    options: Options
    profile: DeviceProfile
    graph: Graph
    prediction: Prediction
    simulation: Simulation
    estimate: Estimate
    steps: int = 0

    @property
    def events(self) -> tuple[AllocationEvent, ...]:
        """Allocation events the runtime sends to its allocator, in order."""
        return self.prediction.events

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and limits that belong to the figures, as sentences."""
        return self.estimate.notes
