"""What PyTorch does with requests: on which allocator, and what its process holds besides."""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Graph
from analyzer.runtimes.base import Prediction
from analyzer.runtimes.pytorch.eager import Requests
from analyzer.runtimes.pytorch.outside import device_used, notes_on_nccl
from analyzer.runtimes.pytorch.scratch.fourier import notes_on_transforms
from analyzer.runtimes.pytorch.settings import limited, make_allocator, notes_on, notes_on_ties, pool_bytes
from analyzer.runtimes.variants import Plain


def predicted(
    asked: Requests, graph: Graph, profile: DeviceProfile, conf: str, plain: Plain | None = None
) -> Prediction:
    """Return the prediction of a graph's requests. conf: the allocator's settings; plain: of `Prediction`."""
    return Prediction(
        events=asked.events,
        allocator=lambda: make_allocator(conf, profile),
        device_used=lambda simulation: (
            device_used(simulation.peak_reserved, asked.libraries, profile, graph.communicators)
            + pool_bytes(conf)
        ),
        libraries=asked.libraries,
        unknown=asked.unknown,
        notes=(
            *notes_on(conf),
            *notes_on_ties(profile, asked.libraries),
            *notes_on_nccl(graph.communicators, profile),
            *notes_on_transforms(graph.operators),
        ),
        limited=lambda limit_bytes, device: limited(conf, profile, limit_bytes, device),
        plain=plain,
    )
