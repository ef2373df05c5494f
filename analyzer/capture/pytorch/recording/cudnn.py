"""cuDNN's settings at the moment of a call: `Operator.settings` of convolutions.

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

_ATEN = torch.ops.aten
CONVOLUTIONS = frozenset(
    {_ATEN.convolution.default, _ATEN._convolution.default, _ATEN.convolution_backward.default}
)


def convolution_settings() -> frozenset[str]:
    """Return the cuDNN settings that differ from PyTorch's defaults."""
    of = torch._C
    settings = {
        "no_cudnn": not of._get_cudnn_enabled(),
        "benchmark": of._get_cudnn_benchmark(),
        "deterministic": of._get_cudnn_deterministic() or of._get_deterministic_algorithms(),
        "no_tf32": not _allows_tf32(),
    }
    return frozenset(name for name, is_set in settings.items() if is_set)


def _allows_tf32() -> bool:
    """Older and newer setting; the older one's reader refuses where a program has used the newer one."""
    try:
        return torch._C._get_cudnn_allow_tf32()
    except RuntimeError:
        cudnn: Any = torch.backends.cudnn
        return cudnn.conv.fp32_precision in ("tf32", "none")
