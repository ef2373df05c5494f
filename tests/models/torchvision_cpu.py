"""torchvision beside a CPU-only torch: a fixture for the modules of tests that need it or transformers."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="module")
def torchvision_schemas() -> Iterator[None]:
    """torchvision's wheel, which transformers imports too, needs two of its operators declared beside a CPU-only torch."""
    library = None
    if torch.version.cuda is None and "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    yield
    del library
