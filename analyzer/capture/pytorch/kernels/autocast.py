"""Autocast as on CUDA, for meta tensors.

PyTorch's own AutocastCUDA kernels skip tensors that are not CUDA tensors, so `torch.autocast("cuda")` does
nothing to meta tensors. This module registers kernels with the same policies under the same dispatch key
while a step is captured:

1. The lists of operators by policy are those of `aten/src/ATen/autocast_mode.h` (torch 2.11).
2. `lower_precision`: floating-point arguments (but float64) are cast to the autocast type; `fp32`: to
   float32; `fp32_set_opt_dtype`: a float16/bfloat16 first argument makes the result float32 through the dtype
   argument; `promote`: to the widest floating-point type among the arguments. Arguments are cast last to
   first, as the compiler evaluates them (recorded order of allocations).
3. Casts of float32 leaves that require grad are cached until the outermost autocast context ends
   (`cached_cast`, `aten/src/ATen/autocast_mode.cpp`); the cached copies live as long as anything saved them.
   In inference mode none is cached, and one that is first needed without gradients is made with them (pull
   request 165068, torch 2.11).
4. In inference mode no autograd key takes a composite operator apart, so the recorder does, behind autocast,
   which then acts on the parts (`recording/autocasting.py`), as in the library.
5. `_cudnn_rnn`, whatever the autocast type: weights are copied into one flat buffer of float16, not cached;
   then cell, hidden and input are cast (`aten/src/ATen/cudnn/AutocastRNN.cpp`).

Not modelled: `rms_norm`, which PyTorch casts to float32 since 2.12 (the measurements are of 2.11); inference
mode before 2.11. Banned functions (`binary_cross_entropy`) are left to PyTorch's own kernel, which raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from analyzer.capture.pytorch.kernels.layouts import overload
from analyzer.capture.pytorch.kernels.recurrent import flat_rnn_count
from analyzer.capture.pytorch.patches import registered, replaced
from analyzer.capture.pytorch.recording import autocasting
from analyzer.capture.pytorch.recording.autocasting import KEY

_LISTED = {
    "lower_precision": """
        _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
        conv_transpose2d.input conv_transpose3d.input convolution cudnn_convolution
        cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm
        baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell
        gru_cell rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention
        scaled_dot_product_attention _cudnn_rnn
    """,
    "fp32": """
        acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
        pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim
        nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss
        nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
        margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
        binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
        _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
        _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa
        upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
    """,
    "fp32_set_opt_dtype": """
        prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
        linalg_matrix_norm.str_ord sum sum.dim_IntList
    """,
    "fp32_append_dtype": "norm.Scalar norm.ScalarOpt_dim",
    "promote": """
        addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    """,
}
POLICIES = {policy: names.split() for policy, names in _LISTED.items()}

_HALF = (torch.float16, torch.bfloat16)


class _CastCache:
    """Casts of float32 leaves, weak on the parameter; cleared with the outermost context."""

    def __init__(self) -> None:
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def clear(self) -> None:
        self._copies.clear()

    def cast(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor in `dtype`; a weight's cast is cached until autocast ends."""
        if (
            not tensor.is_floating_point()
            or tensor.dtype in (dtype, torch.float64)
            or tensor.device.type != "meta"
        ):
            return tensor
        cacheable = (
            tensor.dtype is torch.float32
            and dtype in _HALF
            and tensor.requires_grad
            and tensor.is_leaf
            and not tensor._is_view()
            and torch.is_autocast_cache_enabled()
            and not torch.is_inference_mode_enabled()
        )
        if not cacheable:
            return tensor.to(dtype)
        entry = self._copies.get(id(tensor))
        if entry is None:
            with torch.enable_grad():
                entry = self._copies[id(tensor)] = (tensor, tensor.to(dtype))
        return entry[1]

    def cast_all(self, arguments: Any, dtype: torch.dtype) -> Any:
        if isinstance(arguments, torch.Tensor):
            return self.cast(arguments, dtype)
        if isinstance(arguments, (list, tuple)):
            return type(arguments)(self.cast_all(part, dtype) for part in arguments)
        return arguments


def _tensors(arguments: Any) -> Iterator[torch.Tensor]:
    if isinstance(arguments, torch.Tensor):
        yield arguments
    elif isinstance(arguments, (list, tuple)):
        for part in arguments:
            yield from _tensors(part)


def _kernel(operator: Any, policy: str, cache: _CastCache) -> Callable[..., Any]:
    """Return an operator's autocast kernel under a policy of PyTorch's ("lower_precision", "fp32", ...)."""
    names = [argument.name for argument in operator._schema.arguments]

    def target(arguments: Any) -> torch.dtype | None:
        if policy == "lower_precision":
            return torch.get_autocast_dtype("cuda")
        if policy == "fp32":
            return torch.float32
        if policy == "promote":
            floats = [
                t.dtype for t in _tensors(arguments) if t.is_floating_point() and t.device.type == "meta"
            ]
            return torch.float32 if torch.float32 in floats else torch.get_autocast_dtype("cuda")
        return None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with autocasting.autocast_off():
            dtype = target((args, tuple(kwargs.values())))
            if dtype is not None:
                cast = {name: cache.cast_all(value, dtype) for name, value in reversed(kwargs.items())}
                values = [cache.cast_all(value, dtype) for value in reversed(args)]
                return operator(*reversed(values), **{name: cast[name] for name in kwargs})
            first = next(_tensors(args), None)
            half = first is not None and first.dtype in _HALF and first.device.type == "meta"
            if policy == "fp32_append_dtype":
                if not half:
                    return operator(*args, **kwargs)
                wider = {
                    "norm.Scalar": "norm.ScalarOpt_dtype",
                    "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype",
                }
                return overload(wider[operator.__name__])(*args, **kwargs, dtype=torch.float32)
            place = names.index("dtype")
            wanted_type = kwargs.get("dtype") or (args[place] if place < len(args) else None)
            if half and wanted_type is None:
                args = args[:place]
                kwargs = {**kwargs, "dtype": torch.float32}
            return operator(*args, **kwargs)

    return kernel


def _rnn_kernel(cache: _CastCache) -> Callable[..., Any]:
    """Return the kernel that copies weights to one flat float16 buffer and casts inputs."""

    def kernel(x: Any, weights: Any, stride0: int, buffer: Any, hx: Any, cx: Any, *rest: Any) -> Any:
        with autocasting.autocast_off():
            dtype = torch.float16
            if weights[0].dtype not in (dtype, torch.float64):
                flat = torch.zeros(flat_rnn_count(weights, stride0), dtype=dtype, device=x.device)
                views, offset = [], 0
                for weight in weights:
                    # Not views to autograd, which must not see the buffer: tensors set on its storage.
                    part = torch.empty(0, dtype=dtype, device=x.device)
                    part.set_(flat.untyped_storage(), offset, weight.shape, weight.contiguous().stride())
                    views.append(part.copy_(weight))
                    offset += weight.numel()
                weights, buffer = views, flat
            if cx is not None:
                cx = cache.cast(cx, dtype)
            hx = cache.cast(hx, dtype)
            x = cache.cast(x, dtype)
            return torch.ops.aten._cudnn_rnn(x, weights, stride0, buffer, hx, cx, *rest)

    return kernel


@contextlib.contextmanager
def cuda_autocast() -> Iterator[None]:
    """While open, `torch.autocast("cuda")` acts on meta tensors as it does on CUDA tensors."""
    cache = _CastCache()
    clear, enable = torch.clear_autocast_cache, torch.set_autocast_enabled

    def clear_both() -> None:
        cache.clear()
        clear()

    def enabled(*arguments: Any) -> None:
        enable(*arguments)
        if arguments[0] == "cuda" or len(arguments) == 1:
            autocasting.state.enabled = bool(arguments[-1])

    before, autocasting.state.enabled = autocasting.state.enabled, torch.is_autocast_enabled("cuda")
    included = torch._C._dispatch_tls_is_dispatch_key_included(KEY)
    with registered("AutocastCUDA", _kernels(cache), override=True):
        torch._C._dispatch_tls_set_dispatch_key_included(KEY, True)
        try:
            with replaced({"torch.clear_autocast_cache": clear_both, "torch.set_autocast_enabled": enabled}):
                yield
        finally:
            autocasting.state.enabled = before
            torch._C._dispatch_tls_set_dispatch_key_included(KEY, included)
            cache.clear()


def _kernels(cache: _CastCache) -> dict[Any, Callable[..., Any]]:
    """Overload -> its kernel under autocast."""
    kernels: dict[Any, Callable[..., Any]] = {}
    for policy, listed in POLICIES.items():
        for operator in map(overload, listed):
            kernels[operator] = _kernel(operator, policy, cache)
    # After its entry among the lower-precision operators, which it replaces: weights are cast into one
    # buffer.
    kernels[torch.ops.aten._cudnn_rnn.default] = _rnn_kernel(cache)
    return kernels
