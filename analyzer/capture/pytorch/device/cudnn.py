"""What a program has set of cuDNN at the moment of a call: `Operator.settings` of convolutions.

1. "benchmark" (`torch.backends.cudnn.benchmark`), "deterministic" (`.deterministic`, or
   `torch.use_deterministic_algorithms`), "no_tf32" (`.allow_tf32` off, or `.conv.fp32_precision` "ieee"),
   "no_cudnn" (`.enabled` off).
2. They are read when the convolution is called, in the backward pass too: PyTorch keeps nothing of the
   forward pass's.

Source: `aten/src/ATen/native/Convolution.cpp` (`convolution`, `convolution_backward`),
`aten/src/ATen/Context.cpp`.
"""

from __future__ import annotations

from typing import Any

import torch

CONVOLUTIONS = frozenset(
    {
        torch.ops.aten.convolution.default,
        torch.ops.aten._convolution.default,
        torch.ops.aten.convolution_backward.default,
    }
)
_NONE: frozenset[str] = frozenset()


def convolution_settings() -> frozenset[str]:
    """Return the cuDNN settings that differ from PyTorch's defaults."""
    torch_c = torch._C
    settings = [] if torch_c._get_cudnn_enabled() else ["no_cudnn"]
    if torch_c._get_cudnn_benchmark():
        settings.append("benchmark")
    if torch_c._get_cudnn_deterministic() or torch_c._get_deterministic_algorithms():
        settings.append("deterministic")
    if not _allows_tf32():
        settings.append("no_tf32")
    return frozenset(settings) if settings else _NONE


def _allows_tf32() -> bool:
    """Older and newer setting; the older one's reader refuses where a program has used the newer one."""
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        cudnn: Any = torch.backends.cudnn
        return cudnn.conv.fp32_precision in ("tf32", "none")
