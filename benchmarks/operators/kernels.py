"""Kernels of CUDA's that PyTorch's own lists of tests do not reach, each called by itself: a database of `compare.py` ("kernel").

An entry is an operator of `torch.ops` and calls of it: arguments on the CPU, made at a size; a dictionary at the end: by keyword. What a test of PyTorch's covers is not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

aten = torch.ops.aten
Calls = Iterator[tuple[Any, ...]]


class Made(NamedTuple):
    """Makes tensors of a type, `n` times their smallest size."""

    dtype: torch.dtype
    n: int

    def t(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Random numbers."""
        return torch.randn(shape).abs().to(dtype or self.dtype)

    def i(self, *shape: int, below: int = 2, dtype: torch.dtype = torch.long) -> torch.Tensor:
        """Random indices."""
        return torch.randint(0, below, shape, dtype=dtype)


def _quantized(m: Made) -> Calls:
    yield m.t(4 * m.n, 6), 0.1, 3, 0, 255
    yield m.t(4 * m.n, 6, 5), 0.1, 3, 0, 255


def _learned(m: Made, *more: Any) -> Calls:
    yield *(m.t(4 * m.n, 6, 5) for _ in more[:1]), m.t(4 * m.n, 6, 5), m.t(1), m.t(1), 0, 255
    yield *(m.t(8 * m.n, 3) for _ in more[:1]), m.t(8 * m.n, 3), m.t(1), m.t(1), 0, 255


def _learned_channels(m: Made, *more: Any) -> Calls:
    for axis, shape in ((1, (4 * m.n, 6, 5)), (0, (8 * m.n, 3))):
        yield *(m.t(*shape) for _ in more[:1]), m.t(*shape), m.t(shape[axis]), m.t(shape[axis]), axis, 0, 255


def _observed(m: Made) -> Calls:
    for rows, channels in ((False, 1), (True, 6)):
        on = torch.ones(1, dtype=torch.long)
        low, high = m.t(channels), m.t(channels)
        more = (m.t(channels), m.i(channels, dtype=torch.int32), 0.01, 0, 255, 1, rows, False)
        yield m.t(4 * m.n, 6), on, on.clone(), low, high, *more


def _convolved(m: Made, dims: int) -> Calls:
    weight, size = (5, 4, *[3] * dims), [6 * m.n] * dims
    for bias in (None, m.t(5)):
        yield m.t(2, 4, *size), m.t(*weight), [3] * dims, bias, [1] * dims, [1] * dims
    yield m.t(2, 4, *size), m.t(5, 4, *[1] * dims), [1] * dims, None, [1] * dims, [0] * dims


def _dilated(m: Made, dims: int) -> Calls:
    for *found, _stride, padding in _convolved(m, dims):
        yield *found, [1] * dims, padding, [2] * dims


def _transposed(m: Made, dims: int) -> Calls:
    for bias in (None, m.t(5)):
        size = [6 * m.n] * dims
        yield (
            m.t(2, 4, *size),
            m.t(4, 5, *[3] * dims),
            [3] * dims,
            bias,
            [2] * dims,
            [1] * dims,
            [1] * dims,
            [1] * dims,
        )


def _depthwise(m: Made, dims: int) -> Calls:
    for bias in (None, m.t(4)):
        size = [6 * m.n] * dims
        yield m.t(2, 4, *size), m.t(4, 1, *[3] * dims), [3] * dims, bias, [1] * dims, [1] * dims, [1] * dims


def _distances(m: Made) -> Calls:
    for batch in ((), (3,)):
        one, other = m.t(*batch, 5 * m.n, 4), m.t(*batch, 6 * m.n, 4)
        found = torch.cdist(one.double(), other.double(), 1.0).to(m.dtype)
        yield found, one, other, 1.0, found.clone()


def _pairs(m: Made) -> Calls:
    n = 5 * m.n
    found = m.t(n * (n - 1) // 2)
    yield found, m.t(n, 4), 2.0, found.clone()


def _segments(m: Made) -> Calls:
    for how in ("sum", "max", "mean"):
        data, lengths = m.t(6 * m.n, 4), torch.tensor([2 * m.n, 4 * m.n])
        yield m.t(2, 4), m.t(2, 4), data, how, {"lengths": lengths}


def _grids(m: Made) -> Calls:
    yield m.t(2, 2, 3), 2, 3, 4 * m.n, 5 * m.n


def _sampled(m: Made) -> Calls:
    yield m.t(2, 3, 4 * m.n, 5 * m.n), m.t(2, 6, 7 * m.n, 2)


def _softmaxed(m: Made) -> Calls:
    for kind, mask in (
        (0, m.i(6 * m.n, 6 * m.n, dtype=torch.bool)),
        (1, m.i(2, 6 * m.n, dtype=torch.bool)),
        (2, m.i(2, 4, 6 * m.n, 6 * m.n, dtype=torch.bool)),
    ):
        yield m.t(2, 4, 6 * m.n, 6 * m.n), mask, 3, kind


def _softmaxed_back(m: Made) -> Calls:
    shape = (2, 3, 6 * m.n, 6 * m.n)
    yield m.t(*shape), m.t(*shape), m.i(*shape, dtype=torch.bool), 3


def _packed8(m: Made) -> Calls:
    yield (
        m.t(64, 64 * m.n, dtype=torch.bfloat16),
        m.i(48, 64 * m.n, below=100, dtype=torch.int8),
        m.t(48, dtype=torch.bfloat16),
    )


def _labels(m: Made) -> Calls:
    for shape in ((6,), (4 * m.n, 6)):
        for reduction in (0, 1, 2):
            yield m.t(*shape), m.i(*shape, below=6), reduction


def _margins(m: Made) -> Calls:
    for reduction in (0, 1, 2):
        yield m.t(4 * m.n, 6), m.i(4 * m.n, below=6), 1, 1.0, None, reduction


def _jagged(m: Made, back: bool) -> Calls:
    lengths = torch.tensor([0, 2 * m.n, 5 * m.n, 9 * m.n])
    if back:
        yield m.t(3, 4 * m.n, 6), [lengths], 9 * m.n
    else:
        yield m.t(9 * m.n, 6), [lengths], [4 * m.n], 0.5


def _bags(m: Made) -> Calls:
    for mode in (0, 1, 2):
        yield m.t(10 * m.n, 4), m.i(7 * m.n, below=9), torch.tensor([0, 3, 5 * m.n]), False, mode


_NEAREST = ("upsample_nearest", "_upsample_nearest_exact")
ENTRIES: dict[str, Callable[[Made], Calls]] = {
    "_cdist_backward": _distances,
    "_pdist_backward": _pairs,
    "_cdist_forward": lambda m: iter([(m.t(3, 5 * m.n, 4), m.t(3, 6 * m.n, 4), p, 0) for p in (1.0, 0.0, 3.0)]),
    "_cummin_helper": lambda m: iter([(m.t(6, 50 * m.n), m.t(6, 50 * m.n), m.i(6, 50 * m.n), 1)]),
    "_logcumsumexp": lambda m: iter([(m.t(6, 50 * m.n), 1), (m.t(6, 50 * m.n), 0)]),
    "_upsample_nearest_exact3d_backward": lambda m: iter([(m.t(2, 3, 8 * m.n, 9, 7), [8 * m.n, 9, 7], [2, 3, 4 * m.n, 5, 6])]),
    "cudnn_affine_grid_generator_backward": lambda m: iter([(m.t(2, 4 * m.n, 5, 2), 2, 3, 4 * m.n, 5)]),
    "reflection_pad3d_backward": lambda m: iter([(m.t(2, 3, 6 * m.n + 7, 14, 11), m.t(2, 3, 6 * m.n, 7, 8), [1, 2, 3, 4, 5, 2])]),
    "multi_margin_loss_backward": lambda m: iter([(m.t(4 * m.n), *args[:5], 0) for args in _margins(m)]),
    "multilabel_margin_loss_backward": lambda m: iter([(m.t(4 * m.n), m.t(4 * m.n, 6), m.i(4 * m.n, 6, below=6), 0, m.t(4 * m.n, 6))]),
    "_convert_weight_to_int4pack": lambda m: iter([(m.i(64 * m.n, 64, below=255, dtype=torch.uint8), 8)]),
    "_weight_int4pack_mm": lambda m: iter([(m.t(16 * m.n, 128, dtype=torch.bfloat16), m.i(8, 1, 32, 4, dtype=torch.int32), 64, m.t(2, 64, 2, dtype=torch.bfloat16))]),
    "_compute_linear_combination": lambda m: iter([(m.t(5, 3 * m.n, 4), m.t(2, 5))]),
    "_conv_depthwise2d": lambda m: _depthwise(m, 2),
    "conv_depthwise3d": lambda m: _depthwise(m, 3),
    "_slow_conv2d_forward": lambda m: _convolved(m, 2),
    "slow_conv_dilated2d": lambda m: _dilated(m, 2),
    "slow_conv_dilated3d": lambda m: _dilated(m, 3),
    "slow_conv_transpose2d": lambda m: _transposed(m, 2),
    "slow_conv_transpose3d": lambda m: _transposed(m, 3),
    "_fake_quantize_learnable_per_tensor_affine": _learned,
    "_fake_quantize_learnable_per_tensor_affine_backward": lambda m: _learned(m, 1),
    "_fake_quantize_learnable_per_channel_affine": _learned_channels,
    "_fake_quantize_learnable_per_channel_affine_backward": lambda m: _learned_channels(m, 1),
    "fake_quantize_per_tensor_affine_cachemask": _quantized,
    "fake_quantize_per_channel_affine_cachemask": lambda m: iter([(m.t(4 * m.n, 6), m.t(6), m.i(6, dtype=torch.int32), 1, 0, 255)]),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": lambda m: iter([(m.t(4 * m.n, 6), m.t(1), m.i(1, dtype=torch.int32), m.i(1), 0, 255)]),
    "_fused_moving_avg_obs_fq_helper": _observed,
    "_masked_softmax": _softmaxed,
    "_masked_softmax_backward": _softmaxed_back,
    "_segment_reduce_backward": _segments,
    "cudnn_affine_grid_generator": _grids,
    "cudnn_grid_sampler": _sampled,
    "cudnn_grid_sampler_backward": lambda m: iter([(m.t(2, 3, 4 * m.n, 5), m.t(2, 6, 7 * m.n, 2), m.t(2, 3, 6, 7 * m.n))]),
    "embedding_renorm_": lambda m: iter([(m.t(10 * m.n, 4), m.i(7 * m.n, below=9), 1.0, 2.0), (m.t(10 * m.n, 4), m.i(3, 4 * m.n, below=9), 1.0, 2.0)]),
    "_padded_dense_to_jagged_forward": lambda m: _jagged(m, True),
    "_jagged_to_padded_dense_forward": lambda m: _jagged(m, False),
    "glu_jvp": lambda m: iter([(m.t(4 * m.n, 3), m.t(4 * m.n, 6), m.t(4 * m.n, 6), 1)]),
    "glu_backward_jvp": lambda m: iter([(m.t(4 * m.n, 6), m.t(4 * m.n, 3), m.t(4 * m.n, 6), m.t(4 * m.n, 3), m.t(4 * m.n, 6), 1)]),
    "put_": lambda m: iter([(m.t(6, 5 * m.n), m.i(3, 4 * m.n), m.t(3, 4 * m.n)), (m.t(6, 5), m.i(3, 4 * m.n), m.t(3, 4 * m.n), True)]),
    "reflection_pad3d": lambda m: iter([(m.t(2, 3, 6 * m.n, 7, 8), [1, 2, 3, 4, 5, 2])]),
    "multilabel_margin_loss_forward": _labels,
    "multi_margin_loss": _margins,
    "_weight_int8pack_mm": _packed8,
    "batch_norm_update_stats": lambda m: iter([(m.t(4, 5, 6 * m.n), m.t(5), m.t(5), 0.1), (m.t(4 * m.n, 5), None, None, 0.1)]),
    "mode": lambda m: iter([(m.t(6, 5 * m.n), 1), (m.t(6 * m.n, 5), 0), (m.t(50 * m.n),), (m.t(3, 2000 * m.n), 1)]),
    "_unique": lambda m: iter([(m.t(50 * m.n), True, False), (m.t(6, 5 * m.n), True, True)]),
    "unique_dim": lambda m: iter([(m.t(6 * m.n, 5), d, True, inverse, counts) for d in (0, 1) for inverse in (False, True) for counts in (False, True)]),
    "unique_dim_consecutive": lambda m: iter([(m.t(6 * m.n, 5), 0, inverse, True) for inverse in (False, True)]),
    "hash_tensor": lambda m: iter([(m.t(60 * m.n),), (m.t(6, 50 * m.n), [1])]),
    "linalg__powsum": lambda m: iter([(m.t(60 * m.n),), (m.t(6, 50 * m.n), 2, [1])]),
    "_upsample_bicubic2d_aa": lambda m: iter([(m.t(2, 3, 8 * m.n, 9), [5, 6], False)]),
    "_aminmax": lambda m: iter([(m.t(60 * m.n),)]),
    "_cummax_helper": lambda m: iter([(m.t(6, 50 * m.n), m.t(6, 50 * m.n), m.i(6, 50 * m.n), 1)]),
    "_softmax": lambda m: iter([(m.t(6, 5 * m.n), 1, False), (m.t(6, 5 * m.n), 0, False)]),
    "_log_softmax": lambda m: iter([(m.t(6, 5 * m.n), 1, False), (m.t(6, 5 * m.n), 0, False)]),
    "_log_softmax_backward_data": lambda m: iter([(m.t(6, 5 * m.n), m.t(6, 5 * m.n), d, m.dtype) for d in (0, 1)]),
    "kthvalue": lambda m: iter([(m.t(6, 5 * m.n), 2, d) for d in (0, 1)]),
    "max_unpool2d": lambda m: iter([(m.t(2, 3, 4 * m.n, 5), m.i(2, 3, 4 * m.n, 5, below=20), [8 * m.n, 10])]),
    "max_unpool3d": lambda m: iter([(m.t(2, 3, 2 * m.n, 3, 4), m.i(2, 3, 2 * m.n, 3, 4, below=20), [4 * m.n, 6, 8], [2, 2, 2], [0, 0, 0])]),
    "fractional_max_pool2d_backward": lambda m: iter([(m.t(2, 3, 2 * m.n, 3), m.t(2, 3, 6 * m.n, 7), [2, 2], [2 * m.n, 3], m.i(2, 3, 2 * m.n, 3, below=6))]),
    "avg_pool3d": lambda m: iter([(m.t(2, 3, 4 * m.n, 5, 6), [2, 2, 2])]),
    "avg_pool3d_backward": lambda m: iter([(m.t(2, 3, 2 * m.n, 2, 3), m.t(2, 3, 4 * m.n, 5, 6), [2] * 3, [2] * 3, [0] * 3, False, True, None)]),
    **{f"{name}1d": lambda m: iter([(m.t(2, 3, 4 * m.n), [7 * m.n])]) for name in _NEAREST},
    **{f"{name}1d_backward": lambda m: iter([(m.t(2, 3, 7 * m.n), [7 * m.n], [2, 3, 4 * m.n])]) for name in _NEAREST},
    **{f"{name}3d": lambda m: iter([(m.t(2, 3, 4 * m.n, 5, 6), [8 * m.n, 9, 7])]) for name in _NEAREST},
    "upsample_nearest3d_backward": lambda m: iter([(m.t(2, 3, 8 * m.n, 9, 7), [8 * m.n, 9, 7], [2, 3, 4 * m.n, 5, 6])]),
    "upsample_linear1d_backward": lambda m: iter([(m.t(2, 3, 7 * m.n), [7 * m.n], [2, 3, 4 * m.n], False)]),
    "upsample_trilinear3d_backward": lambda m: iter([(m.t(2, 3, 8 * m.n, 9, 7), [8 * m.n, 9, 7], [2, 3, 4 * m.n, 5, 6], False)]),
    **{f"{name}2d{aa}_backward": lambda m: iter([(m.t(2, 3, 8 * m.n, 9), [8 * m.n, 9], [2, 3, 4 * m.n, 5], False)])
       for name, aa in (("_upsample_bilinear", "_aa"), ("_upsample_bicubic", "_aa"), ("upsample_bicubic", ""))},
    "reflection_pad1d": lambda m: iter([(m.t(2, 3, 6 * m.n), [1, 2])]),
    "reflection_pad2d": lambda m: iter([(m.t(2, 3, 6 * m.n, 7), [1, 2, 3, 4])]),
    "reflection_pad1d_backward": lambda m: iter([(m.t(2, 3, 6 * m.n + 3), m.t(2, 3, 6 * m.n), [1, 2])]),
    "reflection_pad2d_backward": lambda m: iter([(m.t(2, 3, 6 * m.n + 7, 10), m.t(2, 3, 6 * m.n, 7), [1, 2, 3, 4])]),
    "cummax": lambda m: iter([(m.t(6, 5 * m.n), d) for d in (0, 1)]),
    "cummin": lambda m: iter([(m.t(6, 5 * m.n), d) for d in (0, 1)]),
    "adaptive_max_pool3d_backward": lambda m: iter([(m.t(2, 3, 2 * m.n, 2, 2), m.t(2, 3, 4 * m.n, 5, 6), m.i(2, 3, 2 * m.n, 2, 2, below=20))]),
    "_adaptive_avg_pool3d_backward": lambda m: iter([(m.t(2, 3, 2 * m.n, 2, 2), m.t(2, 3, 4 * m.n, 5, 6))]),
    "im2col": lambda m: iter([(m.t(2, 3, 6 * m.n, 7), [2, 2], [1, 1], [0, 0], [1, 1])]),
    "nll_loss_forward": lambda m: iter([(m.t(8 * m.n, 6), m.i(8 * m.n, below=6), weight, 1, -100) for weight in (None, m.t(6))]),
    "nll_loss_backward": lambda m: iter(
        [
            (m.t(*of_each), m.t(8 * m.n, 6), m.i(8 * m.n, below=6), weight, int(not of_each), -100, m.t())
            for of_each in ((), (8 * m.n,))
            for weight in (None, m.t(6))
        ]
    ),
    "native_layer_norm": lambda m: iter([(m.t(6 * m.n, 8), [8], *more, 1e-5) for more in ((None, None), (m.t(8), None), (m.t(8), m.t(8)))]),
    "_fused_rms_norm": lambda m: iter([(m.t(6 * m.n, 8), [8], weight, 1e-5) for weight in (None, m.t(8))]),
    "native_dropout": lambda m: iter([(m.t(6 * m.n, 8), 0.5, True)]),
    "_embedding_bag": _bags,
    "_embedding_bag_forward_only": _bags,
    "_thnn_fused_lstm_cell": lambda m: iter([(m.t(4 * m.n, 32), m.t(4 * m.n, 32), m.t(4 * m.n, 8), bias, bias) for bias in (None, m.t(32))]),
    "_thnn_fused_gru_cell": lambda m: iter([(m.t(4 * m.n, 24), m.t(4 * m.n, 24), m.t(4 * m.n, 8), bias, bias) for bias in (None, m.t(24))]),
    "_ctc_loss": lambda m: iter([(m.t(10 * m.n, 3, 6), m.i(3, 4 * m.n, below=5), [10 * m.n] * 3, [4 * m.n] * 3)]),
    "median.dim": lambda m: iter([(m.t(6, 5 * m.n), d) for d in (0, 1)]),
    "nanmedian.dim": lambda m: iter([(m.t(6, 5 * m.n), d) for d in (0, 1)]),
    "_upsample_bilinear2d_aa": lambda m: iter([(m.t(2, 3, 8 * m.n, 9), [5, 6], False)]),
    "adaptive_max_pool2d_backward": lambda m: iter([(m.t(2, 3, 2 * m.n, 2), m.t(2, 3, 4 * m.n, 5), m.i(2, 3, 2 * m.n, 2, below=20))]),
}  # fmt: skip
