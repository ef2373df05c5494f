"""Results of CUDA's kernels that PyTorch has no meta kernel for at all, so that a tensor without memory
cannot be given to them.

By the operator's name, what each result is like (`layouts.like_arguments`). A result with a shape of its own
has a function. Sources are files of `aten/src/ATen/native`, torch 2.11; a test asks the dispatcher which
kernels these are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from analyzer.capture.pytorch.kernels.layouts import META, like_arguments, statistics

aten = torch.ops.aten
_QUANTIZED, _LEARNED = "self, self bool", "self float32, scale float32, zero_point float32"
LIKE = {
    "_fake_quantize_learnable_per_tensor_affine": "self",
    "_fake_quantize_learnable_per_tensor_affine_backward": _LEARNED,
    "_fake_quantize_learnable_per_channel_affine": "self",
    "_fake_quantize_learnable_per_channel_affine_backward": _LEARNED,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _QUANTIZED,
    "fake_quantize_per_tensor_affine_cachemask": _QUANTIZED,
    "fake_quantize_per_channel_affine_cachemask": _QUANTIZED,
    "_masked_softmax_backward": "grad_output",
    "_cummax_helper": "",
    "_cummin_helper": "",
    "_logcumsumexp": "self",
    "_standard_gamma": "self",
    "_fused_dropout": "self, self uint8",  # `cuda/Dropout.cu`
    "glu_jvp": "glu",
    "glu_backward_jvp": "grad_x",
}


def _new(like: torch.Tensor, *shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=like.dtype, device=META)


def _convolved(
    x: Any, weight: Any, size: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1
) -> Any:
    """`cuda/` `DepthwiseConv2d.cu`, `DepthwiseConv3d.cu`, `ConvolutionMM2d.cu`, `NaiveDilatedConvolution.cu`:
    contiguous."""
    groups = x.size(-len(size) - 1) // weight.size(1)
    return _windows(x, weight, (stride, padding, dilation), len(size), groups=groups)


def _transposed(
    x: Any,
    weight: Any,
    size: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
) -> Any:
    """`cuda/NaiveConvolutionTranspose3d.cu`: contiguous."""
    return _windows(x, weight, (stride, padding, dilation), len(size), output_padding)


def _windows(
    x: Any, weight: Any, geometry: tuple[Any, ...], rank: int, output_padding: Any = None, groups: int = 1
) -> Any:
    """Return an empty result of such a convolution, transposed if there is an output padding. geometry:
    stride, padding and dilation, each one number or one for each dimension."""
    *each, more = (
        value if isinstance(value, (list, tuple)) else [value] * rank
        for value in (*geometry, output_padding or 0)
    )
    result = aten.convolution.default(x, weight, None, *each, output_padding is not None, more, groups)
    return _new(x, *result.shape)


def _jagged(dense: Any, offsets: Any, total: Any = None) -> Any:
    """`cuda/jagged_tensors` of `NestedTensor`: all rows packed; `total`, or as many as there is room for."""
    return _new(dense, dense.size(0) * dense.size(1) if total is None else total, *dense.shape[2:])


def _zeros(size: Any, dtype: Any = None, **_: Any) -> Any:
    """Make zeros without memory (`ZeroTensorFallback.cpp`, `TensorFactories.cpp`)."""
    zeros = torch._efficientzerotensor(size, dtype=dtype, device=META)
    zeros.untyped_storage().resize_(0)
    return zeros


# A quantized tensor is followed as the whole numbers it holds: its scale is known to the host alone.
_HELD = {torch.qint8: torch.int8, torch.quint8: torch.uint8, torch.qint32: torch.int32}


def _quantized(x: Any, *args: Any, dtype: Any = None) -> Any:
    """`quantized/Quantizer.cpp`: whole numbers of the input's layout."""
    return torch.empty_like(x, dtype=_HELD[dtype or args[-1]], device=META)


def _is_set_to(x: Any, y: Any) -> bool:
    return bool(x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride())


OF_THEIR_OWN: dict[str, Callable[..., Any]] = {
    "_compute_linear_combination": lambda x, by: _new(x, by.size(0), *x.shape[1:]),  # `LinearAlgebra.cpp`
    "_conv_depthwise2d": _convolved,
    "conv_depthwise3d": _convolved,
    "_slow_conv2d_forward": _convolved,
    "slow_conv_dilated2d": _convolved,
    "slow_conv_dilated3d": _convolved,
    "slow_conv_transpose3d": _transposed,
    "cudnn_affine_grid_generator": lambda theta, n, c, h, w: _new(theta, n, h, w, 2),
    # `cudnn/AffineGridGenerator.cpp`
    "cudnn_affine_grid_generator_backward": lambda grad, n, c, h, w: _new(grad, n, 2, 3),
    "_weight_int4pack_mm": lambda x, weight, *_: _new(x, x.size(0), weight.size(0) * 8),  # `cuda/int4mm.cu`
    "batch_norm_update_stats": statistics,  # `cuda/Normalization.cu`
    "_padded_dense_to_jagged_forward": _jagged,
    "quantize_per_tensor": _quantized,
    "quantize_per_tensor.tensor_qparams": _quantized,
    "quantize_per_tensor_dynamic": lambda x, dtype, _: _quantized(x, dtype),
    "quantize_per_channel": _quantized,
    "dequantize.self": lambda x: torch.empty_like(x, dtype=torch.float32, device=META),
    "int_repr": lambda x: torch.empty_like(x, device=META),
    "q_scale": lambda _: 1.0,
    "q_zero_point": lambda _: 0,
    "_efficientzerotensor": _zeros,
    "is_set_to": _is_set_to,
    "_aminmax": lambda x: (_new(x), _new(x)),  # `ReduceAllOps.cpp`
}


def kernels() -> dict[Any, Callable[..., Any]]:
    """Return the functions that make results, by overload the installed release has."""
    by_operator: dict[Any, Callable[..., Any]] = {}
    for name, text in LIKE.items():
        if hasattr(aten, name):
            func = getattr(aten, name).default
            by_operator[func] = like_arguments(func, text)
    for name, kernel in OF_THEIR_OWN.items():
        base, _, overload = name.partition(".")
        if hasattr(aten, base):
            by_operator[getattr(getattr(aten, base), overload or "default")] = kernel
    return by_operator
