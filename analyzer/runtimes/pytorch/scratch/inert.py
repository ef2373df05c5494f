"""Operators known to allocate nothing but their results, by the mechanism that makes it so.

1. **Pointwise** operators run through TensorIterator, which on CUDA converts types as it loads (no cast
   copies) and allocates fresh results alone (`TensorIterator.cpp`, `compute_types`: temporaries are made on
   the CPU only). The list is what PyTorch itself tags `pointwise` (`native_functions.yaml`).
2. **Views** share their input's storage; **factories** and **copies** allocate their result and fill it.
3. **Gathers and scatters** write into their result or in place, by atomic adds where needed; **cat** passes
   addresses and shapes as kernel arguments (`cuda/Shape.cu`).
4. **Multi-tensor** operators (`_foreach_*`) and fused optimizers: see
   `reduction_operators.py`.
5. **Collectives** (`c10d`, `_c10d_functional`) work on the tensors they are given: see
   `analyzer_programs/world`. So do FSDP's own operators, but for those in `packed.py`.
6. **Bookkeeping**: profiler marks, assertions, reading one value back to the host.
7. **Kernels written in Triton** write into tensors they are given: see
   `capture/pytorch/kernels/triton_kernels.py`.

Source: the files named, and recorded calls of these operators that request nothing else (H200, torch 2.11,
`tests/data/operators_h200.json.gz`).

An in-place form (trailing underscore) and every overload count as the operator itself.
"""

from __future__ import annotations

from functools import cache

_BY_MECHANISM = {
    "pointwise": """
        acos acosh add addr addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
        bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip clone
        conj_physical copysign cos cosh deg2rad digamma div elu elu_backward eq erf erfc erfinv exp exp2 expm1
        float_power floor floor_divide fmax fmin fmod frac frexp gcd ge gelu gelu_backward glu glu_backward gt
        hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh
        hardtanh_backward heaviside huber_loss_backward hypot i0 igamma igammac isfinite isnan isneginf
        isposinf lcm le leaky_relu leaky_relu_backward lerp lgamma log log10 log1p log2 log_sigmoid_forward
        log_sigmoid_backward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
        logit_backward lt masked_fill maximum minimum mish mish_backward mse_loss_backward mul nan_to_num
        native_dropout_backward ne neg nextafter polygamma positive pow prelu_kernel _prelu_kernel
        _prelu_kernel_backward rad2deg reciprocal relu relu6 remainder round rrelu_with_noise rsqrt rsub selu
        sgn sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc sinh smooth_l1_loss_backward
        softplus softplus_backward softshrink softshrink_backward sqrt square sub tan tanh tanh_backward
        threshold threshold_backward true_divide trunc where xlogy binary_cross_entropy_backward
        special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_entr
        special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
        special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t
        special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
        special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he
        special_laguerre_polynomial_l special_legendre_polynomial_p special_modified_bessel_i0
        special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
        special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_spherical_bessel_j0
        _conj_physical linalg_cross special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
        special_ndtri special_xlog1py special_zeta __ilshift__ __irshift__ __ixor__ __lshift__ __rshift__
        __xor__ __and__ __or__ __iand__ __ior__ masked_scale _masked_scale _fused_dropout complex polar real
        imag view_as_real view_as_complex
    """,
    "views": """
        alias as_strided chunk detach diagonal expand expand_as flatten lift lift_fresh movedim narrow permute
        reshape _reshape_alias select slice split split_with_sizes squeeze swapaxes swapdims t transpose
        unbind unflatten unfold unsqueeze view view_as _unsafe_view _conj _neg_view set_ set_data unsafe_split
        unsafe_chunk _nested_view_from_buffer mT mH T H resize_ resize_as_ as_strided_
    """,
    "factories and copies": """
        arange binomial cauchy copy empty empty_like empty_permuted empty_strided exponential eye fill full
        full_like geometric _standard_gamma _standard_gamma_grad _dirichlet_grad poisson linspace log_normal
        logspace new_empty new_empty_strided new_full new_ones new_zeros normal_functional ones ones_like rand
        rand_like randint randint_like randn randn_like random scalar_tensor uniform zero zeros zeros_like
        _to_copy to _copy_from contiguous tril triu tril_indices triu_indices flip rot90 repeat
        _efficientzerotensor constant_pad_nd expand_copy permute_copy select_copy slice_copy view_copy
        alias_copy narrow_copy diagonal_copy unfold_copy unbind_copy as_strided_copy transpose_copy
        squeeze_copy unsqueeze_copy t_copy diag_embed hamming_window hann_window select_backward
        slice_backward diagonal_backward as_strided_scatter slice_scatter select_scatter diagonal_scatter
        stack hstack vstack pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle pin_memory
        _pin_memory
    """,
    "gathers and scatters": """
        cat gather take index_select index_add index_copy index_fill scatter scatter_add
        grid_sampler_2d grid_sampler_3d grid_sampler_2d_backward
        grid_sampler_3d_backward _weight_norm_interface _weight_norm_interface_backward adaptive_avg_pool3d
         trace put glu_jvp fractional_max_pool2d fractional_max_pool3d
         fractional_max_pool3d_backward
        replication_pad1d_backward _embedding_bag_per_sample_weights_backward _pdist_forward
        replication_pad1d replication_pad2d replication_pad3d replication_pad2d_backward
        replication_pad3d_backward upsample_bicubic2d upsample_linear1d upsample_trilinear3d
        _transform_bias_rescale_qkv batch_norm_gather_stats_with_counts _convert_indices_from_coo_to_csr
        _convert_indices_from_csr_to_coo
    """,
    "optimizers": """
        _fused_adam _fused_adamw _fused_sgd _fused_adagrad _amp_foreach_non_finite_check_and_unscale
        _amp_update_scale
    """,
    "bookkeeping": """
        _local_scalar_dense item is_same_size size stride numel dim is_nonzero _assert_async
        _assert_tensor_metadata _functional_assert_async _has_compatible_shallow_copy_type record_stream equal
        retain_grad requires_grad is_set_to is_coalesced _fill_mem_eff_dropout_mask _use_cudnn_ctc_loss
        q_scale q_zero_point _fused_sdp_choice sym_size sym_stride sym_numel sym_storage_offset is_pinned
        _version
    """,
}
_INERT = frozenset(name for names in _BY_MECHANISM.values() for name in names.split())
_INERT_NAMESPACES = frozenset(
    {"profiler", "prim", "prims", "debugprims", "c10d", "_c10d_functional", "_dtensor", "triton"}
)
_OF_LIBRARIES = {
    "fsdp": {"all_gather_copy_in", "copy_"},
    # Pooling of regions fills its results, and the gradient of an image by atomic adds (`csrc/ops/cuda`).
    "torchvision": {
        f"{name}{what}"
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
        for what in ("", "_backward")
    },
    # Results are made before the kernels are called; steps write to parameters and state
    # (`backends/cuda/ops.py`).
    "bitsandbytes": {
        "dequantize_4bit",
        "dequantize_blockwise",
        "optimizer_update_8bit_blockwise",
        "optimizer_update_32bit",
    },
}
_FOREACH = "_foreach_"


@cache
def is_inert(name: str) -> bool:
    """Return whether the operator `namespace::name[.overload]` needs nothing beyond its results."""
    namespace, _, rest = name.rpartition("::")
    base = rest.partition(".")[0]
    if namespace not in ("aten", ""):
        return namespace in _INERT_NAMESPACES or base.removeprefix("_") in _OF_LIBRARIES.get(namespace, ())
    return base in _INERT or base.rstrip("_") in _INERT or base.startswith(_FOREACH)


def operators() -> tuple[str, ...]:
    """Return every operator of the table, with its namespace."""
    return tuple(f"aten::{name}" for names in _BY_MECHANISM.values() for name in names.split())
