"""Operators that CUDA has no kernel of its own for, and PyTorch makes of others: `torch.cdist` of many
points, `torch.dist`, `torch.block_diag`, bilinear layers. Their parts are what is recorded.

1. Which they are `native_functions.yaml` says: a CompositeExplicit kernel and none for CUDA. A build of
   PyTorch for the CPU cannot be asked, so they are named here; a test holds the names to what every release
   says (`tests/data/releases/schemas`).
2. The parts come from PyTorch's own kernel, which runs on tensors without memory while the recorder looks on.
   Autograd has been there before: gradients go by the formula of the whole, as on CUDA.

Source: `aten/src/ATen/native/native_functions.yaml`; the kernels' files: `Distance.cpp` (`_euclidean_dist`,
`dist`), `Linear.cpp` (`_trilinear`), `TensorShape.cpp` (`block_diag`, `unsafe_split_with_sizes`),
`PackedSequence.cpp`, `ConvolutionTBC.cpp`.

Two more are handled here because PyTorch asks whether tensors are CUDA's, or has another kernel for those
that have no memory: moments of complex numbers, and convolutions differentiated twice.

Not here: kernels that do something else for tensors without memory (`kaiser_window`), that are
followed as one operator for a reason (a rule, views and their copies).
"""

from __future__ import annotations

from typing import Any

import torch

from analyzer.capture.pytorch.recording.recorder import OperatorHandler, Recorder, ReplacementCall

aten = torch.ops.aten
_KEYS = (
    torch._C.DispatchKey.CompositeExplicitAutograd,
    torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional,
)
_NODE, _MADE = "ConvolutionBackwardBackward0", "analyzer: contiguous weights"
_COPIED_BY = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative)
# By name: not every release has all of them.
_NAMES = """
    affine_grid_generator.default _euclidean_dist.default _native_batch_norm_legit_no_training.default
    _pack_padded_sequence.default _trilinear.default _unsafe_masked_index.default
    _unsafe_masked_index_put_accumulate.default addr_.default allclose.default bartlett_window.default
    bartlett_window.periodic binary_cross_entropy_with_logits.default blackman_window.default
    blackman_window.periodic block_diag.default cholesky_solve.default conv_tbc.default
    count_nonzero.default dist.default embedding_renorm.default fft_fftfreq.default fft_rfftfreq.default
    isinf.default ldexp.Tensor ldexp_.default linalg_pinv.atol_rtol_tensor linspace.Scalar_Tensor
    linspace.Tensor_Scalar linspace.Tensor_Tensor logspace.Scalar_Tensor logspace.Tensor_Scalar
    logspace.Tensor_Tensor logsumexp.default logsumexp.out masked_scatter_backward.default mvlgamma.default
    mvlgamma_.default norm.ScalarOpt_dtype put.default rrelu_with_noise_backward.default
    soft_margin_loss.default soft_margin_loss.out soft_margin_loss_backward.default
    soft_margin_loss_backward.grad_input
"""
NAMES = tuple(_NAMES.split())


def _followed(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # A recorder is asked behind the keys that copy what is conjugated or negated; parts are called before.
    with recorder:
        include = torch._C._dispatch_tls_local_include_set()
        exclude = torch._C._dispatch_tls_local_exclude_set()
        for key in _COPIED_BY:
            exclude = exclude.remove(key)
        with torch._C._ForceDispatchKeyGuard(include, exclude):
            return func._op_dk(key_of(func), *args, **kwargs)


def key_of(func: Any) -> torch._C.DispatchKey:
    """Return the dispatch key under which PyTorch has the operator's composite kernel."""
    return next(key for key in _KEYS if _has(func, key))


def _has(func: Any, key: torch._C.DispatchKey) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key.name)


def _overloads() -> list[Any]:
    """Return the operators of these names that the installed release has, and makes of others so."""
    split = (name.split(".") for name in NAMES)
    overloads = [getattr(getattr(aten, name, None), overload, None) for name, overload in split]
    return [func for func in overloads if func is not None and any(_has(func, key) for key in _KEYS)]


def _moments(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Variance and deviation of complex numbers: those of the real and of the imaginary parts, added up.

    Source: `aten/src/ATen/native/ReduceOps.cpp` (`std_var_out`, `std_var_mean_out`).
    """
    x, *rest = args
    if not x.is_complex():
        return NotImplemented
    kernel = aten.var.correction if func in _ALONE else aten.var_mean.correction
    with recorder:
        real, imaginary = (
            [*_each(kernel(part_of(x), *rest, **kwargs))] for part_of in (torch.real, torch.imag)
        )
        result = real[0] + imaginary[0]
        if func in (aten.std.correction, aten.std_mean.correction):
            result.sqrt_()
        moments = result if func in _ALONE else (result, torch.complex(real[1], imaginary[1]))
        for parts in (imaginary, real):  # in the order of C++
            while parts:
                parts.pop()
        return moments


def _each(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _contiguous_weight(recorder: Recorder, func: Any, args: tuple[Any, ...], _: Any) -> Any:
    """Make contiguous what a convolution differentiated twice hands on as weights, before it convolves:
    PyTorch does so where that `is_cuda`, which tensors without memory are not; for them the kernel would make
    the copy, behind its result.

    Source: `aten/src/ATen/native/Convolution.cpp` (`_convolution_double_backward`).
    """
    x, weight, *rest = args
    if weight.is_contiguous():
        return NotImplemented
    node: Any = torch._C._current_autograd_node()
    if node is None or node.name() != _NODE:
        return NotImplemented
    if weight.shape != node._saved_weight.shape:  # a variable of this convolution alone
        with recorder:
            return ReplacementCall(func, (x, weight.contiguous(), *rest))
    copy = node.metadata.get(_MADE)
    if copy is None:
        copy = node.metadata[_MADE] = {}
        node.register_hook(lambda *_: copy.clear())
    place = (weight.untyped_storage()._cdata, weight.storage_offset(), weight.stride())
    if place not in copy:
        with recorder:
            copy[place] = weight.contiguous()
    return ReplacementCall(func, (x, copy[place], *rest))


_ALONE = (aten.var.correction, aten.std.correction)
_TOGETHER = (aten.var_mean.correction, aten.std_mean.correction)
HANDLERS: dict[Any, OperatorHandler] = dict.fromkeys(_overloads(), _followed)
OTHERS: dict[Any, OperatorHandler] = {
    **dict.fromkeys((*_ALONE, *_TOGETHER), _moments),
    aten.convolution.default: _contiguous_weight,
}
