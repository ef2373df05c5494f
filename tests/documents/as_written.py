"""A document's script, captured as it was written, and its requests on the simulated allocator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from analyzer.allocators import create  # noqa: E402
from analyzer.capture.pytorch.capture import capture_script  # noqa: E402
from analyzer.capture.pytorch.recording.recorder import Recorder  # noqa: E402
from analyzer.devices import load  # noqa: E402
from analyzer.runtimes.pytorch.eager import requests  # noqa: E402
from analyzer.runtimes.timeline import Simulation, simulate  # noqa: E402


def simulation(script: Callable[[Recorder], None], cublas_workspace_bytes: int) -> Simulation:
    """Capture `script(recorder)`, which marks its own events, on an A100 with this cuBLAS workspace."""
    # The documents are older than torch 2.9: what cuBLASLt takes for a call is given back before they look.
    device = load("a100-40gb")
    device = dataclasses.replace(
        device, cublas_workspace_bytes=cublas_workspace_bytes, releases={**device.releases, "torch": (2, 8)}
    )
    return simulate(requests(capture_script(script, device), device).events, create("pytorch"))


def allocated(script: Callable[[Recorder], None], cublas_workspace_bytes: int = 0) -> dict[str, int]:
    """Bytes allocated at each marked event."""
    return {mark.event: mark.allocated for mark in simulation(script, cublas_workspace_bytes).marks}
