"""bitsandbytes on CUDA: what its fused operators do one after the other, and where its paged state lies.

1. `gemm_4bit` multiplies by a 4-bit weight. For few rows one kernel does it; otherwise the whole weight is
   written out in the input's type, behind its scales where these are quantized too, and an ordinary product
   follows. Which, the library decides by the GPU and the sizes in Python code of its own, which is asked for
   the device profile.
2. LLM.int8() writes its inputs out in 8 bits, and the product in 32 before it is scaled; columns with large
   values are multiplied apart.
3. State of the paged optimizers is managed memory (`cudaMallocManaged`): it is no part of what PyTorch's
   allocator has, and may leave the GPU. Here it is host memory, and the notes say how much there is.

Source: bitsandbytes 0.50, `backends/cuda/ops.py` (`gemm_4bit`, `_dequant_linear_fallback`, `int8_*`),
`backends/default/ops.py`, `functional.py` (`get_paged`).
Not modelled: what of the managed memory lies on the GPU.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_MIB = 1 << 20


def gemm_4bit(
    a: Any,
    b: Any,
    shape: Any,
    absmax: Any,
    blocksize: int,
    quant_type: str,
    bias: Any = None,
    absmax_8bit: Any = None,
    absmax_code: Any = None,
    absmax_offset: Any = None,
) -> Any:
    """Return the product of `a` with a weight of `shape`, packed in `b`."""
    inner = a.shape[-1]
    if _one_kernel(a.dtype, a.numel() // inner, shape[0], inner, blocksize):
        return torch.empty((*a.shape[:-1], shape[0]), dtype=a.dtype, device=a.device)
    scales = shifted = None
    if absmax_8bit is not None:
        scales = torch.empty_like(absmax_8bit, dtype=torch.float32)
        shifted = scales + absmax_offset  # both stay until the product is there
    weight = torch.empty(tuple(shape), dtype=a.dtype, device=a.device)
    product = torch.ops.aten.linear(a, weight, bias)
    del scales, shifted
    return product


def _one_kernel(dtype: torch.dtype, rows: int, columns: int, inner: int, blocksize: int) -> bool:
    """Return whether the library has one kernel for it; False where it cannot be asked."""
    try:
        from bitsandbytes.backends.cuda import ops

        forget = getattr(getattr(ops, "_gpu_dispatch_props", None), "cache_clear", None)
        if forget is not None:  # it may remember another GPU
            forget()
        if rows > ops._gemm_4bit_custom_max_m or inner % blocksize:
            return False
        return bool(ops._gemm_4bit_use_custom_fn(0, dtype, rows, columns, inner))
    except (ImportError, AttributeError):
        return False


def int8_vectorwise_quant(a: Any, threshold: float = 0.0) -> Any:
    """Quantize `a` to 8 bits with a scale a row; columns with values of `threshold` or more are assumed or
    asked for."""
    rows = a.numel() // a.shape[-1]
    scales = torch.empty(rows, dtype=torch.float32, device=a.device)
    packed = torch.empty(a.shape, dtype=torch.int8, device=a.device)
    if threshold <= 0:
        return packed, scales, None
    large = a.abs() >= threshold
    columns = (
        torch.argwhere(large.any(dim=0)).view(-1)
        if large.any()
        else torch.empty(0, dtype=torch.int64, device=a.device)
    )
    if rows > 1:
        packed[:, columns] = 0
    return packed, scales, columns


def int8_scaled_mm(
    a: Any, b: Any, row_stats: Any, col_stats: Any, bias: Any = None, dtype: torch.dtype | None = None
) -> Any:
    """Return the product of two matrices of 8 bits in 32, then in float16, then in `dtype`."""
    product = torch.ops.bitsandbytes.int8_linear_matmul(a, b)
    scaled = torch.empty_like(product, dtype=torch.float16)
    if bias is not None and bias.dtype is not torch.float16:
        scaled.add_(bias)
    return scaled.to(dtype or torch.float16)


def int8_mixed_scaled_mm(
    a: Any, ca: Any, cb: Any, sca: Any, scb: Any, outlier_cols: Any = None, bias: Any = None
) -> Any:
    """Return the product of int8 matrices, plus columns of `a` in its own type by dequantized weights."""
    weight = None
    if outlier_cols is not None and outlier_cols.numel():
        part = a[:, outlier_cols].contiguous()
        columns = cb[:, outlier_cols].contiguous()
        weight = (columns * scb.view(-1, 1) * (1 / 127)).to(a.dtype).t()
    else:
        part = torch.empty(0, dtype=a.dtype, device=a.device)
    product = int8_scaled_mm(ca, cb, sca, scb, bias, a.dtype)
    return (product if weight is None else product.addmm(part, weight)), part


# By the operator's name: the library registers its operators when a program imports it.
CHOICES: dict[str, Callable[..., Any]] = {
    f"bitsandbytes::{function.__name__}.default": function
    for function in (gemm_4bit, int8_vectorwise_quant, int8_scaled_mm, int8_mixed_scaled_mm)
}


class Paged:
    """Stands for managed memory from the moment the library is there."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._originals: dict[str, Any] = {}
        self._bytes = 0

    def look(self) -> None:
        """Patch bitsandbytes' paged-memory functions once the program has imported the library."""
        library = sys.modules.get("bitsandbytes.functional")
        if library is None or self._originals:
            return
        for name, stands in (("get_paged", self._get), ("prefetch_tensor", _nothing), ("fill", _nothing)):
            if hasattr(library, name):
                self._originals[name] = getattr(library, name)
                setattr(library, name, stands)

    def close(self) -> None:
        """Restore the library's own functions."""
        library = sys.modules.get("bitsandbytes.functional")
        for name, original in self._originals.items():
            setattr(library, name, original)
        self._originals.clear()
        if self._bytes:
            self._recorder.note(
                f"{self._bytes / _MIB:,.1f} MiB of paged optimizer state are managed memory, which is not"
                " counted: as much of it as the driver keeps on the GPU comes on top"
            )

    def _get(self, *shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
        """Return a paged tensor, which lies in host memory."""
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            tensor = self._recorder.storages.host(torch.empty(shape, dtype=dtype, device="meta"))
        self._bytes += tensor.numel() * dtype.itemsize
        tensor.is_paged = True  # type: ignore[attr-defined]
        tensor.page_deviceid = 0  # type: ignore[attr-defined]
        return tensor


@contextlib.contextmanager
def managed_memory(recorder: Recorder) -> Iterator[None]:
    """While open, state of bitsandbytes' paged optimizers is outside the allocator, as managed memory is."""
    paged = Paged(recorder)
    hook = register_optimizer_step_pre_hook(lambda *_: paged.look())
    try:
        yield
    finally:
        hook.remove()
        paged.close()


def _nothing(*_: Any, **__: Any) -> None:
    """Managed memory is not fetched anywhere, nor filled (`fill` is for paged state alone)."""
