"""torchvision beside a CPU-only torch, for the measured cases."""

from __future__ import annotations

from tests.models.torchvision_cpu import torchvision_schemas

__all__ = ["torchvision_schemas"]
