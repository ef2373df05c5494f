"""Which attention kernel CUDA runs, and what happens around it.

Source: `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp` (constraints and priority),
`transformers/attention.cpp` (masks, padding), torch 2.11; the choices on the H200 are the recorded ones
(`tests/data`, probe of 27 cases).

1. Order of preference: on compute capability 9.x and 10.x since torch 2.11 (with cuDNN > 9.15.1, which its
   CUDA 13 wheels have) cuDNN, flash, efficient, math; elsewhere flash, efficient, math.
2. cuDNN: float16/bfloat16, sm80 or newer, head sizes ≤ 128 (256 on 9.0; on 10.x since torch 2.14) and
   multiples of 8, key length > 1, query length > 1 with dropout, last stride 1, a mask of two or four
   dimensions (`check_attn_mask_shape`). Since torch 2.12 it is not taken with dropout. Differences between
   releases are their own binaries' choices (`torch._fused_sdp_choice`, emulated; `tests/data/releases`).
3. flash: float16/bfloat16, sm80 or newer, no mask, equal head sizes ≤ 256, square when causal, last stride
   1.
4. efficient: float16, float32, bfloat16 (sm80+), sm50 or newer, head size aligned for tensor cores, last
   stride 1, equal numbers of heads (grouped queries are not supported before torch 2.13). The mask's last
   stride must be 1 too, for every kernel (`check_last_dim_stride_equals_1_dense`).
5. A boolean mask becomes an additive one in the query's type; efficient pads the mask's last stride to 8
   elements.
6. `math` is PyTorch's own composite code, which runs as it is.
7. `multi_head_attention_forward` drops the projections it has no use for any more, outside of TorchScript,
   since torch 2.12 (`torch/nn/functional.py`); until then they lived to its end.

Not modelled: nested tensors, `sdpa_kernel` contexts other than those that switch a backend off.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.jit._builtins import _register_builtin

from analyzer.releases import Span

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.compatible import CompatibleDevices
    from analyzer.devices.architectures import Architecture

aten = torch.ops.aten
# Releases that prefer cuDNN where it can; that take it with dropout.
PREFERS_CUDNN, CUDNN_DROPS_OUT = Span(since=(2, 11)), Span(until=(2, 11))
# Three dimensions are heads of one batch: PyTorch 2.15's own host code.
TAKES_ONE_BATCH = Span(since=(2, 15))
KEEPS_PROJECTIONS = Span(until=(2, 11))
_HALF = (torch.float16, torch.bfloat16)
_PARSING = threading.Lock()


@functools.cache
def _drops() -> frozenset[int]:
    """Return the lines of `multi_head_attention_forward` that call `is_scripting` before a drop."""
    lines, first = inspect.getsourcelines(F.multi_head_attention_forward)
    with _PARSING:  # which CPython 3.11 cannot do in two threads at once ("recursion depth mismatch")
        tree = ast.parse(textwrap.dedent("".join(lines)))
    asking = (
        node for node in ast.walk(tree) if isinstance(node, ast.If) and isinstance(node.body[0], ast.Delete)
    )
    return frozenset(first - 1 + node.lineno for node in asking)


def is_scripting() -> bool:
    """Replace `torch.jit.is_scripting` where the simulated release has code the installed one drops."""
    caller = sys._getframe(1)
    return caller.f_code is F.multi_head_attention_forward.__code__ and caller.f_lineno in _drops()


_register_builtin(is_scripting, "aten::is_scripting")  # what TorchScript compiles asks so, too


class AttentionChoice:
    """`scaled_dot_product_attention` as the device runs it."""

    def __init__(self, compatible: CompatibleDevices) -> None:
        self._alike = compatible
        self._release = compatible.device.releases["torch"]

    def backend(self, q: Any, k: Any, v: Any, mask: Any, dropout_p: float, is_causal: bool, gqa: bool) -> str:
        """Return the kernel chosen for these arguments: "cudnn", "flash", "efficient" or "math"."""

        def decide(architecture: Architecture) -> str:
            self._architecture = architecture
            return self._backend(q, k, v, mask, dropout_p, is_causal, gqa)

        return self._alike.decided(decide)

    def takes(self, name: str, sdpa: Any) -> bool:
        """Return whether the "cudnn", "flash" or "efficient" kernel takes a call (`SDPAParams`)."""

        def decide(architecture: Architecture) -> bool:
            self._architecture = architecture
            call = (sdpa.query, sdpa.key, sdpa.value, sdpa.attn_mask, sdpa.dropout, sdpa.is_causal)
            return bool(getattr(self, f"_{name}")(*call, sdpa.enable_gqa))

        return self._alike.decided(decide)

    def _backend(
        self, q: Any, k: Any, v: Any, mask: Any, dropout_p: float, is_causal: bool, gqa: bool
    ) -> str:
        """Return the first backend in PyTorch's order that takes the call, else "math"."""
        order = ["flash", "efficient"]
        if self._architecture.prefers_cudnn and self._release in PREFERS_CUDNN:
            order.insert(0, "cudnn")
        if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
            return "math"
        for name in order:
            if getattr(self, f"_{name}")(q, k, v, mask, dropout_p, is_causal, gqa):
                return name
        return "math"

    def _dense(self, q: Any, k: Any, v: Any, mask: Any, gqa: bool, supports_gqa: bool) -> bool:
        """Return whether shapes, heads and mask suit a fused kernel."""
        if 0 in (q.size(2), k.size(2), v.size(2)) or q.size(0) != k.size(0) or q.size(0) != v.size(0):
            return False
        same_heads = q.size(1) == k.size(1) == v.size(1)
        if not same_heads and not (
            gqa and supports_gqa and k.size(1) == v.size(1) and q.size(1) % k.size(1) == 0
        ):
            return False
        if mask is not None and mask.stride(-1) != 1:
            return False
        return all(t.stride(-1) == 1 or t.size(-1) == 1 for t in (q, k, v))

    def _half(self, q: Any, k: Any, v: Any) -> bool:
        allowed = _HALF if self._architecture.ampere else (torch.float16,)
        return q.dtype in allowed and q.dtype == k.dtype == v.dtype

    def _cudnn(self, q: Any, k: Any, v: Any, mask: Any, dropout_p: float, is_causal: bool, gqa: bool) -> bool:
        """Return whether cuDNN takes the call: `can_use_cudnn_attention`, `sdp_utils.cpp`."""
        if (
            not torch.backends.cuda.cudnn_sdp_enabled()
            or not self._architecture.ampere
            or not self._half(q, k, v)
        ):
            return False
        if mask is not None and (mask.requires_grad or mask.dim() not in (2, 4)):
            return False
        if dropout_p and self._release not in CUDNN_DROPS_OUT:
            return False
        widest = 256 if self._release in self._architecture.wide_heads else 128
        sizes = q.size(3) <= widest and v.size(3) <= widest and q.size(3) % 8 == 0 and v.size(3) % 8 == 0
        lengths = k.size(2) != 1 and not (dropout_p and q.size(2) == 1)
        return sizes and lengths and self._dense(q, k, v, mask, gqa, True)

    def _flash(self, q: Any, k: Any, v: Any, mask: Any, dropout_p: float, is_causal: bool, gqa: bool) -> bool:
        """Return whether FlashAttention takes the call: `can_use_flash_attention`, `sdp_utils.cpp`."""
        if (
            not torch.backends.cuda.flash_sdp_enabled()
            or not self._architecture.ampere
            or not self._half(q, k, v)
        ):
            return False
        if mask is not None or not (q.size(3) == k.size(3) == v.size(3) <= 256):
            return False
        if is_causal and q.size(2) != k.size(2):
            return False
        grad = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
        narrow = grad and self._architecture.narrow_backward
        if narrow and not (q.size(3) <= 192 or (not dropout_p and q.size(3) > 224)):
            return False
        return self._dense(q, k, v, mask, gqa, True)

    def _efficient(
        self, q: Any, k: Any, v: Any, mask: Any, dropout_p: float, is_causal: bool, gqa: bool
    ) -> bool:
        """Return whether memory-efficient attention takes the call: `can_use_mem_efficient_attention`,
        `sdp_utils.cpp`."""
        if not torch.backends.cuda.mem_efficient_sdp_enabled():
            return False
        allowed = (*_HALF, torch.float32) if self._architecture.ampere else (torch.float16, torch.float32)
        if q.dtype not in allowed or not (q.dtype == k.dtype == v.dtype):
            return False
        if mask is not None and mask.requires_grad and not torch.is_grad_enabled():
            return False
        bits = 16 if q.dtype in _HALF else 32
        aligned = self._architecture.ampere or (bits == 16 and self._architecture.volta)
        alignment = 128 // bits if aligned else 1
        if q.size(3) != k.size(3) or q.size(3) % alignment or v.size(3) % alignment:
            return False
        if any(t.stride(-1) != 1 for t in (q, k, v)):
            return False
        return self._dense(q, k, v, mask, gqa, False)

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        """`aten::scaled_dot_product_attention` for meta tensors that stand for CUDA ones."""
        if query.dim() == key.dim() == value.dim() == 3 and self._release in TAKES_ONE_BATCH:
            q, k, v = (t.unsqueeze(0) for t in (query, key, value))
            mask = attn_mask.unsqueeze(0) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
            if self.backend(q, k, v, mask, dropout_p, is_causal, enable_gqa) != "math":
                return self(q, k, v, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa).squeeze(
                    0
                )
        backend = self.backend(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        mask = _additive(attn_mask, query)
        grad = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        if backend == "cudnn":
            return aten._scaled_dot_product_cudnn_attention(
                query, key, value, mask, grad, dropout_p, is_causal, False, scale=scale
            )[0]
        if backend == "flash":
            size = query.size(3)
            scale = size**-0.5 if scale is None else scale
            if size % 8:
                query, key, value = (F.pad(t, (0, 8 - size % 8)) for t in (query, key, value))
            result = aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale
            )[0]
            return result[..., :size] if size % 8 else result
        if backend == "efficient":
            if mask is not None:
                mask = _aligned(mask).expand(query.size(0), query.size(1), query.size(2), key.size(2))
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, grad, dropout_p, is_causal, scale=scale
            )[0]
        return attention_math(
            query, key, value, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]


def _additive(mask: Any, query: Any) -> Any:
    """Return a boolean mask as one to be added (`convert_boolean_attn_mask`)."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    minus_infinity = torch.scalar_tensor(float("-inf"), dtype=query.dtype, device=query.device)
    return torch.where(mask, 0.0, minus_infinity)


def attention_math(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: Any = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`_scaled_dot_product_attention_math` on CUDA: half computed in float32, mask added in place.

    PyTorch's own composite adds the mask out of place for meta tensors, which keeps the scores twice.
    """
    original = query.dtype
    if original in _HALF and not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed():
        query, key, value = query.to(torch.float32), key.to(torch.float32), value.to(torch.float32)
    factor = (query.size(-1) ** -0.5 if scale is None else abs(scale)) ** 0.5
    arguments = [query, key, value]  # which C++ keeps to the end
    query = aten.mul.Scalar(query, -factor if scale is not None and scale < 0 else factor)
    if is_causal:
        ones = torch.ones((query.size(-2), key.size(-2)), dtype=torch.bool, device=query.device)
        attn_mask = ones.tril()
        del ones
    attn_mask = _additive(attn_mask, query)
    if enable_gqa and query.size(-3) != key.size(-3):
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    scores = query.matmul(aten.mul.Scalar(key.transpose(-2, -1), factor))
    if attn_mask is not None:
        scores.add_(attn_mask)
    weights = aten._safe_softmax(scores, -1)
    del scores
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    # C++ evaluates the parts of the pair last to first.
    probabilities = weights.to(original)
    out = weights.matmul(value).to(original)
    # C++ drops its locals last to first; Python would go the other way. Of a pair the first goes first.
    del weights
    del key, value
    del query
    del attn_mask
    while arguments:
        arguments.pop()
    return out, probabilities


def _aligned(mask: Any) -> Any:
    """Return the mask as efficient attention takes it: strides are multiples of 8 elements."""
    if mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    size = mask.size(-1)
    return F.pad(mask, (0, 8 - size % 8))[..., :size]
