"""Settings of matrix products at the moment of a call: `Operator.settings` of them.

1. "tf32": float32 operands may be rounded (`torch.backends.cuda.matmul.allow_tf32`,
   `torch.set_float32_matmul_precision("high")` or "medium", `.matmul.fp32_precision` "tf32"); by default they
   are not.

Source: `aten/src/ATen/Context.cpp` (`allowTF32CuBLAS`).
"""

from __future__ import annotations

import torch

_aten = torch.ops.aten
PRODUCTS = frozenset(
    {
        _aten.mm.default,
        _aten.bmm.default,
        _aten.addmm.default,
        _aten.baddbmm.default,
        _aten.addbmm.default,
        _aten.mv.default,
        _aten.addmv.default,
        _aten.dot.default,
    }
)
_NONE: frozenset[str] = frozenset()
_TF32 = frozenset({"tf32"})


def product_settings() -> frozenset[str]:
    """Return the settings of matrix products that differ from PyTorch's defaults."""
    return _TF32 if _allows_tf32() else _NONE


def _allows_tf32() -> bool:
    """Older and newer setting; the older one's reader refuses where a program has used the newer one."""
    try:
        return bool(torch._C._get_cublas_allow_tf32())
    except RuntimeError:
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")
