"""Kernels that read tensors in one order alone: what of an operator's operands is copied before it runs.

1. Row-major: layer, RMS and group norm, softmax, losses and a table's gradient; the incoming gradient too.
2. In the operator's memory format, channels-last or row-major: convolutions (channels-last where the input or
   the weight is), cuDNN's batch norm, pooling (that of the input).
3. A tensor that is so already, dimensions of size 1 not compared, is not copied.

Source: `aten/src/ATen/native/cuda/` `layer_norm_kernel.cu` and `SoftMax.cu` (`contiguous` of each operand),
`Embedding.cu`, `Loss.cu`, `DilatedMaxPool2d.cu`, `AveragePool2d.cu`; `aten/src/ATen/native/group_norm.cpp`;
`aten/src/ATen/native/cudnn/ConvShared.cpp` (`cudnn_conv_suggest_memory_format`) and `BatchNorm.cpp`.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.graph.model import Operator, TensorMeta, contiguous_strides
from analyzer.tables import by_name
from analyzer_timing.elementwise import copied
from analyzer_timing.rates import Rates
from analyzer_timing.work import Work

_ROW_MAJOR = by_name(
    {
        ("input",): "native_layer_norm _fused_rms_norm native_group_norm",
        ("grad_out", "input"): (
            "native_layer_norm_backward _fused_rms_norm_backward native_group_norm_backward"
        ),
        ("self",): "_softmax _log_softmax nll_loss_forward",
        ("grad_output", "output"): "_softmax_backward_data _log_softmax_backward_data",
        ("grad_output",): "embedding_dense_backward",
    }
)
_FORMATTED = by_name(
    {
        ("input", "weight"): "convolution",
        ("grad_output", "input", "weight"): "convolution_backward",
        ("input",): "cudnn_batch_norm",
        ("grad_output", "input"): "cudnn_batch_norm_backward",
        ("self",): "max_pool2d_with_indices avg_pool2d",
        ("grad_output",): "max_pool2d_with_indices_backward avg_pool2d_backward",
    }
)


def copied_first(operator: Operator, name: str, rates: Rates) -> list[Work]:
    """Return the copies of operands that do not lie as the operator's kernel reads them."""
    names, last = _ROW_MAJOR.get(name, ()), False
    if name in _FORMATTED:
        names = _FORMATTED[name]
        operands = ("input", "weight") if name.startswith("convolution") else ("input", "self")
        last = any(channels_last(tensor) for key in operands if (tensor := operator.tensor(key)) is not None)
    launches = []
    for key in names:
        tensor = operator.tensor(key)
        if tensor is not None and not _same(tensor, target := _lying(tensor, last)):
            launches += copied(tensor, target, rates)
    return launches


def channels_last(tensor: TensorMeta) -> bool:
    """Whether its channels lie side by side."""
    return len(tensor.shape) > 3 and tensor.stride[1] == 1 and tensor.shape[1] > 1 and tensor.stride[-1] != 1


def _lying(tensor: TensorMeta, last: bool) -> TensorMeta:
    """Return the tensor in row-major order, or with its second dimension innermost."""
    rank = len(tensor.shape)
    order = (1, *range(rank - 1, 1, -1), 0) if last and rank > 3 else None
    return replace(tensor, stride=contiguous_strides(tensor.shape, order))


def _same(one: TensorMeta, other: TensorMeta) -> bool:
    """Whether their elements lie alike; dimensions of size 1 may have any stride."""
    return all(size == 1 or a == b for size, a, b in zip(one.shape, one.stride, other.stride, strict=True))
