"""Results of CUDA operators that meta tensors cannot compute, or compute with other strides than CUDA does.

Each function takes the operator's arguments and returns its results as meta tensors: shapes, strides and
dtypes as the CUDA kernel makes them. Sources are files of `aten/src/ATen/native`, torch 2.11. Those of
recurrent layers and of the CTC loss are in `recurrent.py` and `ctc.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import compute_elementwise_output_strides

from analyzer.capture.pytorch.kernels import ctc, indices, recurrent
from analyzer.capture.pytorch.kernels.layouts import (
    META,
    channels_last_like,
    convolution_format,
    in_format,
    like,
    like_arguments,
    overload,
    own_format,
    statistics,
)
from analyzer.devices.architectures import DEPTHWISE_OF_ANY_TYPE

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.compatible import CompatibleDevices

aten = torch.ops.aten


def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    takes_bfloat16: Callable[[bool], bool] = lambda _: True,
) -> Any:
    """`Convolution.cpp`: output in the format of the library that runs."""
    expected = weight.size(0) if transposed else weight.size(1) * groups
    if x.size(1) != expected:
        raise RuntimeError(
            f"expected input of shape {tuple(x.shape)} to have {expected} channels for a weight of shape"
            f" {tuple(weight.shape)}"
        )
    if x.dtype != weight.dtype:
        raise RuntimeError(f"input is {x.dtype} and weight {weight.dtype}: they must be the same")
    result = aten.convolution.default(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )
    sizes = result.shape[2:]
    if any(size <= 0 for size in sizes):
        raise RuntimeError(
            f"an input of shape {tuple(x.shape)} is too small for a kernel of shape {tuple(weight.shape)}"
        )
    channels = weight.size(1) * groups if transposed else weight.size(0)
    given = functools.partial(takes_bfloat16, not transposed and 1 < groups == x.size(1))
    layout = convolution_format(x, weight, stride, transposed, output_padding, given)
    return in_format((x.size(0), channels, *sizes), x.dtype, layout)


def convolution_backward(
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Any,
    takes_bfloat16: Callable[[bool], bool] = lambda _: True,
) -> Any:
    """`Convolution.cpp`: gradients in the format of the library that runs."""
    given = functools.partial(takes_bfloat16, not transposed and 1 < groups == x.size(1))
    layout = convolution_format(x, weight, stride, transposed, output_padding, given)
    return (
        in_format(x.shape, x.dtype, layout) if mask[0] else None,
        in_format(weight.shape, weight.dtype, layout) if mask[1] else None,
        torch.empty(bias_sizes or (grad.size(1),), dtype=grad.dtype, device=META) if mask[2] else None,
    )


def cudnn_batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """`cudnn/BatchNorm.cpp`: statistics only in training; a scratch rule sizes the reserve."""
    count = weight.shape if training else (0,)
    return (
        torch.empty_like(x, memory_format=own_format(x)),
        torch.empty(count, dtype=weight.dtype, device=META),
        torch.empty(count, dtype=weight.dtype, device=META),
        torch.empty(0, dtype=torch.uint8, device=META),
    )


def native_batch_norm_backward(
    grad: Any,
    x: Any,
    weight: Any,
    mean: Any,
    var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    mask: Any,
) -> Any:
    """`cuda/Normalization.cu`: the input's gradient is contiguous, or channels last as the input; with
    running statistics it is contiguous always (recorded)."""
    dx, *rest = aten.native_batch_norm_backward.default(
        grad, x, weight, mean, var, save_mean, save_invstd, train, eps, mask
    )
    if dx is not None:
        keeps = train and channels_last_like(x)
        dx = torch.empty_like(x) if keeps else torch.empty(x.shape, dtype=dx.dtype, device=META)
    return dx, *rest


def batch_norm_elemt(x: Any, *_: Any, **__: Any) -> Any:
    """`batch_norm_elemt_cuda`, `cuda/Normalization.cu`: in the input's suggested format."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    layout = formats[x.dim()] if channels_last_like(x) else torch.contiguous_format
    return torch.empty(x.shape, dtype=x.dtype, device=META, memory_format=layout)


def _has_channels_innermost(x: Any) -> bool:
    """`batch_norm_use_channels_last_kernels`, `cuda/Normalization.cu`."""
    four = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return bool(four or (x.is_contiguous() and x.stride(1) == 1))


def batch_norm_backward_reduce(
    grad: Any, x: Any, mean: Any, invstd: Any, weight: Any, input_g: bool, weight_g: bool, bias_g: bool
) -> Any:
    """`batch_norm_backward_reduce_cuda`: two sums a channel, and weight and bias gradients.

    The kernels for channels-last tensors make all four, empty ones where there is no weight.
    """
    channels = x.size(1)
    innermost = _has_channels_innermost(grad) and _has_channels_innermost(x)
    if innermost and mean.is_contiguous() and invstd.is_contiguous():
        like_tensor, count = (mean, 0) if weight is None else (weight, channels)
        input_g = weight_g = bias_g = True
    else:
        like_tensor, count = weight, channels

    def gradient(wanted: bool, length: int, like: Any) -> Any:
        return torch.empty(length, dtype=like.dtype, device=META) if wanted else None

    sums = gradient(input_g, channels, mean), gradient(input_g, channels, mean)
    return *sums, gradient(weight_g, count, like_tensor), gradient(bias_g, count, like_tensor)


def batch_norm_backward_elemt(grad: Any, x: Any, *_: Any, **__: Any) -> Any:
    """`batch_norm_backward_elemt_cuda`, `cuda/Normalization.cu`: as the input where the gradient is
    channels-last, else contiguous."""
    return torch.empty_like(x) if _has_channels_innermost(grad) else like(x)


def laid_as_both(operator: Any) -> Callable[..., Any]:
    """Return an operator of one kernel over two tensors: its result lies as they do, the first counting most
    (`TensorIterator.cpp`). PyTorch's function for meta tensors (`torch._decomp`) goes over them in another
    order."""

    def result(*args: Any, **kwargs: Any) -> Any:
        plain = operator(*args, **kwargs)
        operands = (one for one in args[:2] if isinstance(one, torch.Tensor))  # else numbers
        tensors = [one.expand(plain.shape) for one in operands]
        stride = compute_elementwise_output_strides(*tensors)
        return torch.empty_strided(plain.shape, stride, dtype=plain.dtype, device=META)

    return result


def laid_in_half(operator: Any) -> Callable[..., Any]:
    """Likewise, in half precision: PyTorch's meta kernels convert both tensors first, and one that is
    expanded lies row by row then; no kernel of CUDA's converts them (`TensorIterator.cpp`)."""
    as_both = laid_as_both(operator)

    def result(*args: Any, **kwargs: Any) -> Any:
        halves = (torch.float16, torch.bfloat16)
        both = all(isinstance(one, torch.Tensor) for one in args[:2])
        if both and args[0].dtype in halves and 0 in args[0].stride():
            return as_both(*args, **kwargs)
        return operator(*args, **kwargs)

    return result


def contiguous(operator: Any) -> Callable[..., Any]:
    """Return a function that makes an operator's result contiguous, as on CUDA."""
    return lambda *args, **kwargs: like(operator(*args, **kwargs))


def group_norm(x: Any, weight: Any, bias: Any, n: int, c: int, hxw: int, groups: int, eps: float) -> Any:
    """`group_norm.cpp`: contiguous on CUDA; statistics in the parameters' type if it differs."""
    dtype = x.dtype if weight is None else weight.dtype
    statistics = torch.empty((n, groups), dtype=dtype, device=META)
    return torch.empty(x.shape, dtype=x.dtype, device=META), statistics, torch.empty_like(statistics)


def group_norm_backward(
    grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, n: int, c: int, hxw: int, groups: int, mask: Any
) -> Any:
    """`group_norm.cpp`: as the forward pass."""
    dtype = x.dtype if weight is None else weight.dtype
    return (
        torch.empty(x.shape, dtype=x.dtype, device=META) if mask[0] else None,
        torch.empty(c, dtype=dtype, device=META) if mask[1] else None,
        torch.empty(c, dtype=dtype, device=META) if mask[2] else None,
    )


def transform_bias_rescale_qkv(qkv: Any, bias: Any, heads: int) -> Any:
    """`transformers/cuda/attention.cu`: one buffer of three, returned as views."""
    batch, length, width = qkv.shape
    qkv_heads = torch.empty((3, batch, heads, length, width // 3 // heads), dtype=qkv.dtype, device=META)
    return qkv_heads[0], qkv_heads[1], qkv_heads[2]


def grouped_mm(a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """`cuda/GroupedBlas.cpp`: rows start on 16 bytes; also for types PyTorch's meta kernel refuses."""
    if a.dim() == 2 and b.dim() == 3:
        shape: tuple[int, ...] = (a.size(0), b.size(2))
    elif a.dim() == 3 and b.dim() == 2:
        shape = (a.size(1), b.size(1))
    elif a.dim() == 2:
        shape = (offs.size(0), a.size(0), b.size(1))
    else:
        shape = (a.size(0), a.size(1), b.size(2))
    dtype = out_dtype or a.dtype
    step = 16 // dtype.itemsize
    row = -(-shape[-1] // step) * step
    stride = (row, 1) if len(shape) == 2 else (shape[1] * row, row, 1)
    return torch.empty_strided(shape, stride, dtype=dtype, device=META)


def nothing(*_: Any, **__: Any) -> None:
    """In-place operators of the fused optimizers: no results."""


def weight_norm_interface(v: Any, g: Any, dim: int = 0) -> Any:
    """Return the weight and its norms, which are at least float32 (`cuda/WeightNorm.cu`)."""
    dtype = torch.float32 if g.dtype in (torch.float16, torch.bfloat16) else g.dtype
    return torch.empty_like(v), torch.empty_like(g, dtype=dtype)


def cudnn_attention(
    query: Any, key: Any, value: Any, bias: Any, log_sumexp: bool, *rest: Any, **kwargs: Any
) -> Any:
    """Without a later backward pass the log-sum-exp is empty (`run_cudnn_SDP_fprop`, cudnn/MHA.cpp)."""
    operator = aten._scaled_dot_product_cudnn_attention.default
    out, statistics, *others = operator(query, key, value, bias, log_sumexp, *rest, **kwargs)
    if not log_sumexp:
        statistics = torch.empty(0, dtype=torch.float32, device=META)
    return (out, statistics, *others)


def efficient_attention_backward(
    _grad: Any, query: Any, key: Any, value: Any, bias: Any, *rest: Any, **_: Any
) -> Any:
    """`attention_backward.cu`: contiguous; a bias's rows begin at multiples of 16."""
    wants_bias = bias is not None and rest[10]
    width = bias.shape[-1] if wants_bias else 0
    padded = (
        like(bias.new_empty((*bias.shape[:-1], -(-width // 16) * 16)))[..., :width] if wants_bias else None
    )
    return like(query), like(key), like(value), padded


def linalg_lstsq(matrix: Any, other: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """`BatchLinearAlgebra.cpp`: on CUDA only gels, which takes the rank to be full; the solution lies in the
    memory of the right sides."""
    if driver not in (None, "gels"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels), on the GPU")
    vector = matrix.dim() - 1 == other.dim() and other.shape == matrix.shape[:-1]
    sides = other.unsqueeze(-1) if vector else other
    (rows, columns), batch = matrix.shape[-2:], matrix.shape[:-2]
    memory = matrix.new_empty((*batch, sides.shape[-1], max(rows, columns))).mT
    solution = memory[..., :columns, :]
    width = (*batch, sides.shape[-1]) if rows > columns else (0,)
    residuals = matrix.new_empty(width, dtype=torch.empty(0, dtype=matrix.dtype, device=META).real.dtype)
    rank, values = matrix.new_empty(0, dtype=torch.int64), residuals.new_empty(0)
    return solution.squeeze(-1) if vector else solution, residuals, rank, values


def linalg_svd(matrix: Any, *args: Any, **kwargs: Any) -> Any:
    """cuSOLVER gives V; the third result is its conjugated view (`BatchLinearAlgebraLib.cpp`)."""
    left, values, right = aten._linalg_svd.default(matrix, *args, **kwargs)
    if matrix.is_complex():
        torch._C._set_conj(right, True)
    return left, values, right


def geqrf(matrix: Any) -> Any:
    """`BatchLinearAlgebra.cpp`: the factors by columns, and a scale of each reflector."""
    scales = matrix.new_empty((*matrix.shape[:-2], min(matrix.shape[-2:])))
    return torch.empty_like(matrix.mT, memory_format=torch.contiguous_format).mT, scales


def same_types(product: Any) -> Callable[..., Any]:
    """Return a matrix product with CUDA's check (`cuda/Blas.cpp`), which PyTorch's meta kernels leave out."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtypes = {value.dtype for value in args if isinstance(value, torch.Tensor)}
        if len(dtypes) > 1:
            names = " and ".join(sorted(str(dtype)[6:] for dtype in dtypes))
            raise RuntimeError(f"the matrices of {product.name()} must have the same dtype, but got {names}")
        return product(*args, **kwargs)

    return kernel


def of_type(*operands: Any, out: Any = None, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return a product summed in another type than its matrices' (`out_dtype`, since torch 2.8): contiguous
    (`cuda/Blas.cpp`: `_mm_dtype_out_cuda`, `_addmm_dtype_out_cuda`, `baddbmm_out_dtype_cuda`). The meta
    kernels of torch 2.11 multiply by the type as if it were `beta`."""
    left, right, dtype = operands[-3:]
    if out is not None:
        return out
    return torch.empty((*left.shape[:-1], right.shape[-1]), dtype=dtype, device=META)


PRODUCTS = tuple(
    product.default
    for product in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.mv, aten.addmv, aten.dot)
)
# By the operator's name, what each result is like (`layouts.like_arguments`).
LIKE = {
    "_log_softmax_backward_data": "grad_output! input_dtype",  # `SoftMax.cpp`
    "cudnn_batch_norm_backward": "input~, weight, weight",  # `cudnn/BatchNorm.cpp`
    "native_layer_norm_backward": "0?input!, 1?weight!, 2?bias!",  # `cuda/layer_norm_kernel.cu`
    "_fused_rms_norm_backward": "0?input!, 1?weight!",
    "_ctc_loss_backward": "log_probs!",  # `cuda/LossCTC.cu`
    "_thnn_fused_lstm_cell": "cx!, cx!, input_gates!",  # `cuda/RNN.cu`: the gates, activated, come last
    "binary_cross_entropy_backward": "self",  # `cuda/Loss.cu`
    "mse_loss_backward": "self!",  # `Loss.cpp`
    "smooth_l1_loss_backward": "self!",
    "huber_loss_backward": "self!",
    "fractional_max_pool3d_backward": "self!",  # `cuda/FractionalMaxPool3d.cu`
    "multi_margin_loss_backward": "self!",  # `cuda/MultiMarginLoss.cu`
    "multilabel_margin_loss_backward": "self!",  # `cuda/MultiLabelMarginCriterion.cu`
    "glu_backward": "self!",  # `cuda/ActivationGluKernel.cu`
    "cudnn_grid_sampler_backward": "self!, grid!",  # `cudnn/GridSampler.cpp`
    "_masked_softmax": "self",
    "binomial": "count",
    "_sample_dirichlet": "self",
    "_dirichlet_grad": "x",
    "_standard_gamma_grad": "self",
}
META_KERNELS: dict[Any, Callable[..., Any]] = {
    **{
        func: like_arguments(func, text)
        for name, text in LIKE.items()
        for func in [getattr(aten, name).default]
    },
    aten.log_sigmoid_forward.default: lambda x: (
        torch.empty_like(x),
        x.new_empty(0),
    ),  # `Activation.cpp`: the buffer for the backward pass is empty
    **ctc.RESULTS,
    **recurrent.RESULTS,
    **{product: same_types(product) for product in PRODUCTS},
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
    aten.linalg_lstsq.default: linalg_lstsq,
    aten.geqrf.default: geqrf,
    aten._linalg_svd.default: linalg_svd,
    aten._scaled_dot_product_cudnn_attention.default: cudnn_attention,
    aten._efficient_attention_backward.default: efficient_attention_backward,
    aten.cudnn_batch_norm.default: cudnn_batch_norm,
    aten.native_batch_norm_backward.default: native_batch_norm_backward,
    aten.batch_norm_stats.default: statistics,  # `cuda/Normalization.cu`
    aten.batch_norm_gather_stats.default: lambda _x, mean, *a, **k: statistics(mean),
    aten.batch_norm_gather_stats_with_counts.default: lambda _x, mean, *a, **k: statistics(mean),
    aten.batch_norm_elemt.default: batch_norm_elemt,
    aten.batch_norm_backward_reduce.default: batch_norm_backward_reduce,
    aten.batch_norm_backward_elemt.default: batch_norm_backward_elemt,
    aten.nonzero_static.default: lambda x, *, size, fill_value=-1: x.new_empty(
        (x.dim(), size), dtype=torch.int64
    ).t(),  # `cuda/Nonzero.cu`: a row a dimension, transposed
    aten.cudnn_grid_sampler.default: lambda x, grid: x.new_empty(
        (*x.shape[:2], *grid.shape[1:3])
    ),  # `cudnn/GridSampler.cpp`
    aten.native_group_norm.default: group_norm,
    aten.native_group_norm_backward.default: group_norm_backward,
    aten._grouped_mm.default: grouped_mm,
    aten._transform_bias_rescale_qkv.default: transform_bias_rescale_qkv,
    aten._weight_norm_interface.default: weight_norm_interface,
    **indices.RESULTS,
    aten._amp_foreach_non_finite_check_and_unscale_.default: nothing,
    aten._amp_update_scale_.default: lambda scale, *a: scale,
}
_LAID = {
    "in half": """
        add.Tensor sub.Tensor mul.Tensor div.Tensor fmod.Tensor remainder.Tensor eq.Tensor ne.Tensor lt.Tensor
        le.Tensor gt.Tensor ge.Tensor pow.Tensor_Tensor atan2 hypot maximum minimum fmax fmin clamp_min.Tensor
        clamp_max.Tensor sigmoid_backward tanh_backward gelu_backward
    """,
    "as both": """
        softplus_backward hardswish_backward hardtanh_backward logit_backward logical_and logical_or
        logical_xor logaddexp logaddexp2 heaviside xlogy.Tensor special_xlog1py copysign.Tensor
        div.Tensor_mode floor_divide
    """,
}
_ELEMENTWISE = [overload(name) for name in _LAID["in half"].split()]
for _operator in _ELEMENTWISE:
    META_KERNELS[_operator] = laid_in_half(_operator)
# Those whose results nothing decides but the arguments: they are remembered (`meta_cache.py`).
_LAYERS = """
    convolution convolution_backward cudnn_batch_norm cudnn_batch_norm_backward native_batch_norm_backward
    native_layer_norm_backward native_group_norm native_group_norm_backward
"""
BY_SHAPES_ALONE = frozenset((*PRODUCTS, *_ELEMENTWISE, *(getattr(aten, n).default for n in _LAYERS.split())))
for _name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"):
    for _overload in getattr(aten, _name).overloads() if hasattr(aten, _name) else ():
        if not _overload.endswith("out"):
            META_KERNELS[getattr(getattr(aten, _name), _overload)] = nothing
for _operator in map(overload, _LAID["as both"].split()):
    META_KERNELS[_operator] = laid_as_both(_operator)
for _product in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm):
    for _overload in set(_product.overloads()) & {"dtype", "dtype_out"}:
        META_KERNELS[getattr(_product, _overload)] = of_type
# Contiguous, whatever lies how: `Pow.cpp` (a number to the power of a tensor), `PixelShuffle.cpp`,
# `DistributionTemplates.h`.
for _operator in (aten.pow.Scalar, aten.pixel_unshuffle.default, aten.normal.Tensor_Tensor):
    META_KERNELS[_operator] = contiguous(_operator)


def results_on(compatible: CompatibleDevices) -> dict[Any, Callable[..., Any]]:
    """Return all of them, those of convolutions as the device's library has them: cuDNN takes bfloat16 from
    compute capability 8 on (`supportsBFloat16ConvolutionWithCuDNNv8`, `cuda/detail/CUDAHooks.cpp`)."""
    of_any_type = compatible.device.releases["torch"] in DEPTHWISE_OF_ANY_TYPE

    def takes_bfloat16(depthwise: bool) -> bool:
        return (depthwise and of_any_type) or compatible.decided(lambda architecture: architecture.ampere)

    return {
        **META_KERNELS,
        aten.convolution.default: functools.partial(convolution, takes_bfloat16=takes_bfloat16),
        aten.convolution_backward.default: functools.partial(
            convolution_backward, takes_bfloat16=takes_bfloat16
        ),
    }
