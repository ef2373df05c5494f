"""Operators with a kernel on a GPU that are not followed, and why: said where a program calls one.

By how the name begins; the longest that fits counts. A test holds the list to the dispatcher's own: every
kernel a GPU has is known by a rule, made of others, or here.
"""

from __future__ import annotations

_QUANTIZED = (
    "quantized tensors other than by one scale, and the layers of quantized networks, are not followed on"
    " a GPU"
)
_NESTED = (
    "nested tensors of the strided layout are not followed; those of the jagged one are (layout=torch.jagged)"
)
_SYMMETRIC = (
    "symmetric memory lies beside the caching allocator's, and is shared by GPUs of which one is followed"
)
_SEMI_STRUCTURED = (
    "cuSPARSELt and CUTLASS choose how a 2:4 sparse matrix is stored, which nobody has recorded"
)
_SPARSE = "this operator on sparse tensors has not been described"
_CUDNN = "programs reach cuDNN's convolutions by convolution; called by this name they are not followed"
_BEGIN = {
    "symm_mem::": _SYMMETRIC,
    "quantized::": _QUANTIZED,
    "quantization::": _QUANTIZED,
    "aten::_make_per_": _QUANTIZED,
    "aten::_empty_affine": _QUANTIZED,
    "aten::_empty_per_channel": _QUANTIZED,
    "aten::empty_quantized": _QUANTIZED,
    "aten::q_per_channel": _QUANTIZED,
    "aten::qscheme": _QUANTIZED,
    "aten::quantized_": _QUANTIZED,
    "aten::_nested_": _NESTED,
    "aten::linear": _NESTED,
    "aten::matmul": _NESTED,
    "aten::to_padded_tensor": _NESTED,
    "aten::value_selecting_reduction_backward": _NESTED,
    "aten::_transformer_encoder_layer_fwd": _NESTED,
    "aten::_cslt_": _SEMI_STRUCTURED,
    "aten::_sparse_semi_structured": _SEMI_STRUCTURED,
    "aten::_to_sparse_semi_structured": _SEMI_STRUCTURED,
    "aten::_sparse_": _SPARSE,
    "aten::sparse_": _SPARSE,
    "aten::resize_as_sparse": _SPARSE,
    "aten::copy_sparse": _SPARSE,
    "aten::hspmm": _SPARSE,
    "aten::native_norm": _SPARSE,
    "aten::_spsolve": _SPARSE,
    "aten::_validate_compressed": _SPARSE,
    "aten::_triton_": "kernels that PyTorch was built to make by Triton exist in no release's wheel",
    "aten::cudnn_convolution": _CUDNN,
    "aten::_cudnn_ctc_loss": "cuDNN keeps the workspace of its CTC loss to itself",
    "aten::_slow_conv2d_backward": "gradients of convolutions without cuDNN have not been described",
    "aten::_mixed_dtypes_linear": (
        "CUTLASS chooses its workspace for products of two types, which nobody has recorded"
    ),
    "aten::_test_": "PyTorch's own tests call it",
}


def reason(name: str) -> str | None:
    """Return why an operator ("aten::_cslt_compress") is not supported; None if that is not intended."""
    prefixes = [begin for begin in _BEGIN if name.startswith(begin)]
    return _BEGIN[max(prefixes, key=len)] if prefixes else None
