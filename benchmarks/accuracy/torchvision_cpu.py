"""torchvision beside a CPU-only torch: its wheel is built for CUDA and registers kernels for two operators that only
its CUDA library declares, so they are declared here before it is imported."""

from __future__ import annotations

import torch

_library: torch.library.Library | None = None


def enable() -> None:
    """Make `import torchvision` work. Nothing to do on a CUDA build of torch."""
    global _library  # noqa: PLW0603
    if torch.version.cuda is None and _library is None:
        _library = torch.library.Library("torchvision", "DEF")
        _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
