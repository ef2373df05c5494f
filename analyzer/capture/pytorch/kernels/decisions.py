"""Operators that CUDA runs as other operators than a CPU or meta tensor would.

PyTorch decides these in C++ by the tensor's device, which for a meta tensor falls out differently. While a
step is captured, this module registers the CUDA decision for meta tensors, one function an operator, each
citing the source; those of recurrent layers and of the CTC loss are in `recurrent.py` and `ctc.py`.
`FUSED` are operators without a meta kernel that CUDA implements as a sequence of others: the sequence is
given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.kernels import ctc, matrix_rank, recurrent
from analyzer.capture.pytorch.kernels.attention import AttentionChoice, attention_math
from analyzer.capture.pytorch.kernels.layouts import accumulated
from analyzer.capture.pytorch.kernels.results import META_KERNELS
from analyzer.capture.pytorch.patches import registered
from analyzer.capture.pytorch.recording.formulas import cumprod_backward
from analyzer.releases import Span

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.compatible import CompatibleDevices

aten = torch.ops.aten


def dropout(x: Any, p: float, train: bool) -> Any:
    """`aten/src/ATen/native/Dropout.cpp`: fused on CUDA for 0 < p < 1."""
    if train and 0 < p < 1 and x.numel():
        return aten.native_dropout(x, p, True)[0]
    if p == 0 or not train or x.numel() == 0:
        return x
    return x.mul(torch.zeros((), dtype=x.dtype, device=x.device))


def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> Any:
    """`_batch_norm_impl_index`, `Normalization.cpp`: cuDNN if eligible; for empty input only what is kept."""
    if not x.numel():
        kept = [x.new_empty(x.shape[1:2] or 0, dtype=accumulated(x.dtype)) for _ in range(2)]
        out = x.clone()
        if weight is not None:
            out = out * weight[0]
        if bias is not None:
            out = out + bias[0]
        del kept
        return out
    eligible = (
        cudnn
        and torch.backends.cudnn.enabled
        and weight is not None
        and bias is not None
        and x.dtype is not torch.bfloat16
        and weight.dtype is not torch.bfloat16
        and (x.dtype is not torch.float16 or weight.dtype is torch.float32)
        and ((mean is None) == (var is None))
        and (mean is not None or training)
        and x.dim() >= 3
        and x.size(0) <= (880801 if training else 65535)
        and eps >= 1e-5
        and x.numel() < 2**31
    )
    if not eligible:
        return aten.native_batch_norm(x, weight, bias, mean, var, training, momentum, eps)[0]
    x = x.contiguous(memory_format=_suggested(x))
    return aten.cudnn_batch_norm(
        x, weight.contiguous(), bias.contiguous(), mean, var, training, momentum, eps
    )[0]


# Releases that compute a single row with its bias at once.
FUSES_ROW = Span(since=(2, 11))


def linear_row(x: Any, weight: Any, bias: Any = None) -> Any:
    """`linear`, which handles one dimension as it does two (`_flatten_nd_linear`)."""
    if bias is not None and x.dim() == 1:
        return aten.addmm(bias, x.reshape(-1, x.size(0)), weight.t()).view(-1)
    return linear(x, weight, bias)


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """`aten/src/ATen/native/Linear.cpp`: one `addmm` for 2-D or contiguous input, else bias in place.

    PyTorch's own composite adds the bias out of place for meta tensors. Contiguous input of more than three
    dimensions goes the same way as of three: recorded (MaxViT, Swin v2).
    """
    if bias is not None and x.dim() == 2:
        return aten.addmm(bias, x, weight.t())
    if bias is not None and x.dim() >= 3 and x.is_contiguous():
        flat = aten.addmm(bias, x.reshape(-1, x.size(-1)), weight.t())
        return flat.view(*x.shape[:-1], flat.size(1))
    out = aten.matmul(x, weight.t())
    if bias is not None:
        out.add_(bias)
    return out


def softmax(kernel: Any) -> Callable[..., Any]:
    """`aten/src/ATen/native/SoftMax.cpp`, of a softmax or its logarithm: float16 to float32 without a
    converted copy."""

    def decided(x: Any, dim: int, dtype: Any = None) -> Any:
        if x.dtype is torch.float16 and dtype is torch.float32:
            return kernel(x, dim, True)
        return kernel(x if dtype is None else x.to(dtype), dim, False)

    return decided


# Until torch 1.10 the gradient of a softmax holds its input, which it does not read (pytorch/pytorch#49600,
# mended by #65242).
KEEPS_SOFTMAX_INPUT = Span(until=(1, 10))


def keeping_input(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a softmax so that its input lives until the gradient is computed."""

    def kept(x: Any, dim: int, dtype: Any = None) -> Any:
        result = function(x, dim, dtype)
        if result.grad_fn is not None:
            held = [x]
            result.grad_fn.metadata["input"] = held
            result.grad_fn.register_hook(lambda *_: held.clear())
        return result

    return kept


def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """`aten/src/ATen/native/WeightNorm.cpp`: one fused kernel if the first or last dimension is kept."""
    if dim in (0, v.dim() - 1):
        return aten._weight_norm_interface(v.contiguous(), g.contiguous(), dim)[0]
    return v * (g / torch.norm_except_dim(v, 2, dim))


def _suggested(x: Any) -> torch.memory_format:
    """`suggest_memory_format`: channels-last only when the strides say so and contiguous does not."""
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
        return torch.channels_last
    if x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d) and not x.is_contiguous():
        return torch.channels_last_3d
    return torch.contiguous_format


def _native_multi_head_attention(choice: AttentionChoice) -> Callable[..., Any]:
    """`native_multi_head_attention_cuda`: the inference path of MultiheadAttention."""

    def run(
        query: Any,
        key: Any,
        value: Any,
        embed_dim: int,
        num_head: int,
        qkv_weight: Any,
        qkv_bias: Any,
        proj_weight: Any,
        proj_bias: Any,
        mask: Any = None,
        need_weights: bool = True,
        average: bool = True,
        mask_type: Any = None,
    ) -> Any:
        batch, length, width = query.shape
        head = width // num_head
        heads = query.as_strided(
            (batch, num_head, length, head),
            (query.stride(0), head * query.stride(2), query.stride(1), query.stride(2)),
        )
        alone = mask is None and query is key and key is value and not need_weights and head % 8 == 0
        if alone and choice.backend(heads, heads, heads, None, 0.0, False, False) != "math":
            x = aten.linear(query, qkv_weight, qkv_bias)
            q, k, v = (t.view(batch, -1, num_head, head).transpose(1, 2) for t in x.chunk(3, -1))
            y = aten.scaled_dot_product_attention(q, k, v, None, 0.0, False)
            out = aten.linear(y.transpose(1, 2).reshape(batch, -1, embed_dim), proj_weight, proj_bias)
            del y  # before the projection, as C++ drops its locals
            return out, None
        if query is key and key is value:
            # Below autograd nothing requires grad, which decides how `matmul` folds.
            qkv = aten.matmul(query.detach(), qkv_weight.detach().t())
        elif key is value:
            wq, wkv = qkv_weight.split([embed_dim, 2 * embed_dim], 0)
            qkv = torch.cat([aten.linear(query, wq), aten.linear(key, wkv)], 2)
        else:
            wq, wk, wv = qkv_weight.chunk(3, 0)
            qkv = torch.cat([aten.linear(query, wq), aten.linear(key, wk), aten.linear(value, wv)], 2)
        q, k, v = aten._transform_bias_rescale_qkv(qkv, qkv_bias, num_head)
        del qkv
        q, k, v = (t.view(batch * num_head, t.size(2), head) for t in (q, k, v))
        weights = torch.bmm(q, k.transpose(1, 2)).view(batch, num_head, length, -1)
        if mask is not None:
            flags = mask.to(
                torch.bool
            )  # `masked_softmax` (`transformers/attention.cpp`) takes additive masks as flags
            weights = aten._masked_softmax(
                weights, flags.view(1, 1, length, length) if mask_type == 0 else flags, 3, mask_type
            )
            del flags
        else:
            weights = aten._softmax.out(weights, 3, False, out=weights)
        # The product is written over q.
        context = aten.bmm.out(weights.view(batch * num_head, length, -1), v, out=q).view(
            batch, num_head, length, head
        )
        if not need_weights:
            del weights
        out = aten.linear(context.transpose(1, 2).reshape(batch, length, width), proj_weight, proj_bias)
        if not need_weights:
            return out, None
        return out, (weights.sum(1).div_(num_head) if average else weights)

    return run


def transformer_encoder_layer(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: Any = None,
) -> Any:
    """`transformer_encoder_layer_forward`: TransformerEncoderLayer's inference path."""

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        return aten.layer_norm(x, [embed_dim], weight, bias, eps)

    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
    attend = aten._native_multi_head_attention
    x = attend(x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type)[0]
    x.add_(src)
    if not norm_first:
        x = norm(x, norm_weight_1, norm_bias_1)
    pre_ffn = x
    if norm_first:
        x = norm(x, norm_weight_2, norm_bias_2)
    wide = aten._addmm_activation(ffn_bias_1, x.view(-1, x.size(-1)), ffn_weight_1.t(), use_gelu=use_gelu)
    narrow = aten.linear(wide.view(*src.shape[:-1], -1), ffn_weight_2, ffn_bias_2)
    del wide  # `ffn` is over, which was given x
    x = narrow
    x.add_(pre_ffn)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


def isclose(x: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """`TensorCompare.cpp`: NaNs in both are found in place."""
    floating = x.is_floating_point() or x.is_complex()
    if not (equal_nan and floating and x.dtype is other.dtype and rtol >= 0 and atol >= 0):
        return aten.isclose.default.decompose(x, other, rtol, atol, equal_nan)
    close = x == other
    close.bitwise_or_(x.isnan().bitwise_and_(other.isnan()))
    if rtol == atol == 0:
        return close
    share = rtol * other
    magnitude = share.abs()
    allowed = atol + magnitude
    del magnitude, share  # in the order of C++
    actual = (x - other).abs()
    close.bitwise_or_(actual.isfinite().bitwise_and_(actual <= allowed))
    return close


def svdvals(x: Any, *, driver: str | None = None) -> Any:
    """`BatchLinearAlgebra.cpp`: vectors are computed where a gradient needs them; of meta tensors always."""
    return aten._linalg_svd(x, False, torch.is_grad_enabled() and x.requires_grad, driver=driver)[1]


def eigvalsh(x: Any, uplo: str = "L") -> Any:
    """Eigenvalues come from `_linalg_eigh`, which also computes vectors if a gradient is needed."""
    return aten._linalg_eigh(x, uplo, torch.is_grad_enabled() and x.requires_grad)[0]


def one_hot(x: Any, num_classes: int = -1) -> Any:
    """`Onehot.cpp`: ones are scattered into zeros; meta tensors are compared with every class instead."""
    if x.numel() == 0:
        return x.new_empty((*x.shape, num_classes))
    if num_classes == -1:
        num_classes = int(x.max().item()) + 1
    return x.new_zeros((*x.shape, num_classes)).scatter_(-1, x.unsqueeze(-1), 1)


def grid_sampler(x: Any, grid: Any, mode: int, padding: int, align: bool) -> Any:
    """`GridSampler.cpp`: cuDNN's for bilinear images with zeros around them and aligned corners."""
    types = (torch.float16, torch.float32, torch.float64)
    possible = torch.backends.cudnn.enabled and x.dtype in types and x.numel() and grid.numel()
    if possible and x.dim() == 4 and (mode, padding, align) == (0, 0, True) and x.size(1) <= 1024:
        return aten.cudnn_grid_sampler(x, grid)
    return (aten.grid_sampler_2d if x.dim() == 4 else aten.grid_sampler_3d)(x, grid, mode, padding, align)


def choices(compatible: CompatibleDevices) -> dict[Any, Callable[..., Any]]:
    """Operator overload → the CUDA decision, for operators PyTorch decomposes by device."""
    attention = AttentionChoice(compatible)
    keeps = compatible.device.releases["torch"] in KEEPS_SOFTMAX_INPUT
    return {
        aten.scaled_dot_product_attention.default: attention,
        aten._native_multi_head_attention.default: _native_multi_head_attention(attention),
        aten._scaled_dot_product_attention_math.default: attention_math,
        aten.linear.default: linear_row if compatible.device.releases["torch"] in FUSES_ROW else linear,
        aten.dropout.default: dropout,
        aten.batch_norm.default: batch_norm,
        **{
            operator: keeping_input(softmax(kernel)) if keeps else softmax(kernel)
            for operator, kernel in (
                (aten.softmax.int, aten._softmax),
                (aten.log_softmax.int, aten._log_softmax),
            )
        },
        aten._weight_norm.default: weight_norm,
        aten.one_hot.default: one_hot,
        aten.isclose.default: isclose,
        aten.linalg_svdvals.default: svdvals,
        aten.linalg_eigvalsh.default: eigvalsh,
        aten.cumprod_backward.default: cumprod_backward,
        aten.grid_sampler.default: grid_sampler,
        **matrix_rank.CHOICES,
        **ctc.decisions(compatible),
        **recurrent.decisions(),
    }


def nested_from_mask_is_possible(_: Any, mask: Any) -> bool:
    """`_nested_tensor_from_mask_left_aligned`: whether all padding is at the end, which only data tells."""
    return bool(mask.all())


FUSED: dict[Any, Callable[..., Any]] = {
    aten._transformer_encoder_layer_fwd.default: transformer_encoder_layer,
    aten._nested_tensor_from_mask_left_aligned.default: nested_from_mask_is_possible,
    aten._cudnn_rnn_flatten_weight.default: recurrent.flatten_rnn_weights,
}


def rms_norm(x: Any, shape: list[int], weight: Any, eps: Any) -> tuple[Any, Any]:
    """`_fused_rms_norm_cuda`, `cuda/layer_norm_kernel.cu`: one kernel on CUDA, several elsewhere."""
    statistics = (*x.shape[: x.dim() - len(shape)], *(1 for _ in shape))
    result = torch.empty_like(x, memory_format=torch.contiguous_format)
    return result, x.new_empty(statistics, dtype=accumulated(x.dtype))


# Operators that have a kernel of their own on CUDA and are composite elsewhere, and the releases of torch
# that have it.
KERNELS: dict[Any, Callable[..., Any]] = {
    aten._fused_rms_norm.default: rms_norm,
    aten._fused_rms_norm_backward.default: META_KERNELS[aten._fused_rms_norm_backward.default],
}
HAS_KERNELS = Span(since=(2, 9))


def first_flash(query: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """FlashAttention 1 (torch 2.0, 2.1): its result is (batch, length, heads, size) in memory.

    Source: `_scaled_dot_product_flash_attention_cuda` of torch 2.1, `transformers/cuda/attention.cu`
    (`attention.view({batch_size, max_seqlen_batch_q, num_heads, head_dim}).transpose(1, 2)`); a model that
    has its heads elsewhere copies it once more. Not modelled: copies of queries, keys and values for the time
    of the kernel.
    """
    _, *rest = torch._meta_registrations.meta__scaled_dot_product_flash_attention(query, *args, **kwargs)
    batch, heads, length, size = query.shape
    return query.new_empty((batch, length, heads, size)).transpose(1, 2), *rest


FIRST_FLASH = Span(until=(2, 1))


def shape_of_sum(one: Any, other: Any, *, alpha: Any = 1) -> Any:
    """`add_zerotensor`, `BinaryOps.cpp`: beside zeros without memory (`_efficientzerotensor`) a sum is a copy
    of the other; only its shape is asked for, of meta tensors, for which the zeros become a number first."""
    for tensor in (one, other):
        if isinstance(tensor, torch.Tensor) and tensor._is_zerotensor():
            aten.zeros.default((), dtype=tensor.dtype, device=tensor.device)
    with _disable_current_modes():
        return torch._refs.add(one, other, alpha=alpha)


@contextlib.contextmanager
def cuda_choices(compatible: CompatibleDevices) -> Iterator[dict[Any, Callable[..., Any]]]:
    """While open, meta tensors take CUDA's decisions; yields the table of replacements."""
    table = choices(compatible)
    # `ActivationMishKernel.cu`: one kernel, its result laid out as the elementwise product is.
    kernels: dict[Any, Callable[..., Any]] = {
        aten.mish_backward.default: torch.mul,
        aten.add.Tensor: shape_of_sum,
    }
    if compatible.device.releases["torch"] in HAS_KERNELS:
        kernels |= KERNELS
    if compatible.device.releases["torch"] in FIRST_FLASH:
        kernels[aten._scaled_dot_product_flash_attention.default] = first_flash
    with registered("AutogradMeta", table), registered("Meta", kernels):
        yield table
