"""Whether a program runs in so much memory: its requests, simulated on its runtime's allocator under that
limit.

1. It runs when every request is served: blocks the allocator kept are given back and the request is tried
   again before it fails, as the allocator does; a convolution without room for its workspace goes on to
   cuDNN's next plans (`plans.py`). A convolution that is assumed to need nothing, and may need more, runs
   without room for more, too: each list ends with a plan that needs nothing (`libraries/cudnn/choices.py`,
   `NextPlans`).
2. It is **in doubt** when it only runs through the next plans of a convolution cuDNN was not asked about, or
   when it no longer runs where the workspaces of these are the largest they may be, or only where they are
   the smallest. A program in doubt does not count as fitting.

`assemble.py` asks this of every analysis, so that `analyze`, `fit`, `what-if` and the others give one
verdict.
"""

from __future__ import annotations

from analyzer.runtimes.base import UNLIMITED, Limit
from analyzer.runtimes.events import AllocationEvent, Malloc
from analyzer.runtimes.timeline import Simulation
from analyzer.runtimes.variants import Variants

_DOUBT = "that depends on a workspace that cuDNN was not asked about (analyze explain cudnn-convolution)"


def bounded(variants: Variants, limit: Limit) -> tuple[Simulation, str]:
    """Return the simulation under a limit, and why it is uncertain, "" if certain."""
    events, simulation = variants.prediction.events, variants.simulated(limit)
    if simulation.failure is not None:
        runs = unasked(events) and _simulated_at_bound(variants, limit, -1).failure is None
        return simulation, _DOUBT if runs else ""
    if doubt := doubt_of(events, simulation):
        return simulation, doubt
    if not unasked(events):
        return simulation, ""
    larger = _simulated_at_bound(variants, limit, 1)
    in_doubt = larger.failure is not None or bool(doubt_of(events, larger))
    return simulation, _DOUBT if in_doubt else ""


def _simulated_at_bound(variants: Variants, limit: Limit | None, sign: int) -> Simulation:
    """Simulate with the workspaces cuDNN was not asked about at their largest (sign 1) or smallest (-1)."""
    sizes = [(request.moved(sign) if request.is_unasked else request).nbytes for request in variants.requests]
    return variants.simulated(limit, tuple(sizes))


def most_in_doubt(variants: Variants) -> tuple[int, int] | None:
    """Return the peak bytes allocated and held with room by a program that ran on its device, with the
    workspaces cuDNN was not asked about at their largest; None where it surely runs there with these, too."""
    prediction = variants.prediction
    if prediction.simulation is None or prediction.limited is None or not unasked(prediction.events):
        return None
    larger = _simulated_at_bound(variants, None, 1)
    if larger.failure is None and not doubt_of(prediction.events, larger):
        return None
    free = _simulated_at_bound(variants, UNLIMITED, 1)
    return free.peak_allocated, free.peak_reserved


def convolves(events: tuple[AllocationEvent, ...]) -> bool:
    """Return whether a request is a convolution's workspace, which a cuDNN plan decides."""
    return any(isinstance(event, Malloc) and event.plan != "" for event in events)


def unasked(events: tuple[AllocationEvent, ...]) -> bool:
    """Return whether a convolution's workspace was not asked of cuDNN."""
    return any(isinstance(event, Malloc) and event.is_unasked for event in events)


def doubt_of(events: tuple[AllocationEvent, ...], simulation: Simulation) -> str:
    """Return why a program that was served is uncertain: a first plan had no room and the next ones are
    unknown; "" if that is not so."""
    refused = (events[position] for position in simulation.refused)
    unknown = any(
        (event.is_unasked and event.nbytes > 0) or not getattr(event.smaller, "known", True)
        for event in refused
        if isinstance(event, Malloc)
    )
    return _DOUBT if unknown else ""
