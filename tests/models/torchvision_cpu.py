"""torchvision beside a CPU-only torch: a fixture for the modules of tests that need it or transformers, which imports it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.subjects.networks.torchvision_cpu import enable


@pytest.fixture(autouse=True, scope="module")
def torchvision_schemas() -> None:
    enable()
