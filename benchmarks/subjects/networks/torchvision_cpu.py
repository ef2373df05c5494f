"""torchvision beside a CPU-only torch: its wheel is built for CUDA and registers kernels for two operators that only
its CUDA library declares, so they are declared here before it is imported."""

from __future__ import annotations

import torch

_declared: list[torch.library.Library] = []  # what an operator's library declared goes with it


def enable() -> None:
    """Make `import torchvision` work. Nothing to do on a CUDA build of torch, or where it is done."""
    if torch.version.cuda is None and not torch._C._jit_get_schemas_for_operator("torchvision::nms"):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.append(library)
