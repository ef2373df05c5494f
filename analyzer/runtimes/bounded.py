"""Whether a program runs in so much memory: its requests, simulated on its runtime's allocator under that limit.

1. It runs when every request is served: blocks the allocator kept are given back and the request is tried again before it
   fails, as the allocator does; a convolution without room for its workspace goes on to cuDNN's next plans (`plans.py`).
2. It is **in doubt** when it only runs through next plans that were inferred, not asked of cuDNN for that very call, or when it
   no longer runs where inferred workspaces are larger by what they are off on average: that is a matter of a few megabytes
   nobody measured. What is in doubt does not count as fitting.

`assemble.py` asks this of every analysis, so that `analyze`, `fit`, `what-if` and the others give one verdict.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.runtimes.base import Limit, Prediction
from analyzer.runtimes.events import AllocationEvent, Malloc
from analyzer.runtimes.timeline import Simulation, simulate

_DOUBT = "that depends on a few megabytes of workspace nobody asked cuDNN for at this size"


def bounded(prediction: Prediction, limit: Limit) -> tuple[Simulation, str]:
    """What happens under a limit (as `Prediction.limited` takes it), and why that is in doubt: "" where it is not."""
    assert prediction.limited is not None
    simulation = simulate(prediction.events, prediction.limited(*limit), places=True)
    if simulation.failure is not None:
        return simulation, ""
    if _on_inferred_plans(prediction.events, simulation):
        return simulation, _DOUBT
    if not inferred(prediction.events):
        return simulation, ""
    larger = tuple(
        replace(event, nbytes=event.nbytes + event.inferred)
        if isinstance(event, Malloc) and event.inferred
        else event
        for event in prediction.events
    )
    again = simulate(larger, prediction.limited(*limit))
    return simulation, _DOUBT if again.failure is not None or _on_inferred_plans(larger, again) else ""


def inferred(events: tuple[AllocationEvent, ...]) -> bool:
    """Whether a size among the requests was not measured for the very call."""
    return any(isinstance(event, Malloc) and event.inferred for event in events)


def _on_inferred_plans(events: tuple[AllocationEvent, ...], simulation: Simulation) -> bool:
    """Whether a call whose plans nobody asked had no room for its first."""
    asked = [events[position] for position in simulation.refused]
    return any(isinstance(event, Malloc) and event.inferred is not None for event in asked)
