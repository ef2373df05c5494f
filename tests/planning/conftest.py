"""torchvision beside a CPU-only torch, for the measured cases; and no setting that another test's models left behind."""

from __future__ import annotations

import pytest

from tests.models.torchvision_cpu import torchvision_schemas

__all__ = ["torchvision_schemas"]


@pytest.fixture(autouse=True)
def without_monais_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """MONAI sets cuBLAS's variable when it is imported; worker processes would take it for one they were started with."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
