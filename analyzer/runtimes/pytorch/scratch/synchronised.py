"""Batch norm over all ranks (`SyncBatchNorm`), in its parts: a rank's own statistics, everybody's as one,
normalising.

Ranks exchange tensors of the program like any other (`torch/nn/modules/_functions.py`).

Source: `aten/src/ATen/native/cuda/Normalization.cu` and `Normalization.cuh`.

Not modelled: tensors of more than 2^31 elements, whose kernels take other ways and the same memory.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, nbytes_of
from analyzer.runtimes.pytorch.scratch.layout import (
    bytes_of,
    is_channels_last,
    is_contiguous,
    is_one_row,
)
from analyzer.runtimes.pytorch.scratch.normalization import channels_last_staging, mean_and_variance
from analyzer.runtimes.pytorch.scratch.script import Script, filled, present, rule


def _has_channels_innermost(tensor: TensorMeta) -> bool:
    """`batch_norm_use_channels_last_kernels`: four dimensions in that order, or a matrix."""
    four = len(tensor.shape) == 4 and is_channels_last(tensor)
    return four or (is_contiguous(tensor) and tensor.stride[1] == 1)


def _merged_copy_bytes(tensor: TensorMeta) -> int:
    """Return the bytes of `tensor.reshape(samples, channels, -1)`; 0 if its last dimensions merge."""
    return 0 if is_one_row(tensor.shape[2:], tensor.stride[2:]) else bytes_of(tensor)


@rule("aten::batch_norm_stats")
def batch_norm_stats(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The statistics `SyncBatchNorm` computes of its own input: a channels-last one is reduced over thread
    blocks through a staging buffer with semaphores.

    Results: (mean, inverse deviation)
    Source: `aten/src/ATen/native/cuda/Normalization.cu` (`batch_norm_stats_cuda`), `Normalization.cuh`.
    """
    source = filled(operator, "input")
    script.outputs()
    if _has_channels_innermost(source):
        script.temporaries(*channels_last_staging(source, 4))
    else:
        script.temporary(_merged_copy_bytes(source))


@rule("aten::batch_norm_update_stats")
def batch_norm_update_stats(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """As `batch_norm_stats`; what is neither contiguous nor channels-last is reduced as any tensor is
    (`mean_and_variance`).

    Source: `aten/src/ATen/native/cuda/Normalization.cu` (`batch_norm_mean_var`).
    """
    source = present(operator, "input")
    if is_contiguous(source) or _has_channels_innermost(source):
        batch_norm_stats(operator, device, script)
        return
    script.outputs()
    mean_and_variance(script, device, source)


@rule("aten::batch_norm_gather_stats")
def batch_norm_gather_stats(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """All ranks' statistics as one, where every rank has as many elements: their number is copied to the
    device, a whole number a rank, and converted to the type of the running mean.

    Source: `aten/src/ATen/native/cuda/Normalization.cu` (`batch_norm_gather_stats_cuda`).
    """
    means = present(operator, "mean")
    kind = operator.tensor("running_mean") or present(operator, "input")
    double_means = script.temporary(8 * means.shape[0])
    script.temporary(nbytes_of(means.shape[0], kind.dtype))
    script.release(double_means)
    script.outputs()


@rule("aten::batch_norm_elemt")
def batch_norm_elemt(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Nothing besides the result; where the input is neither contiguous nor channels-last (of four
    dimensions), a one for a weight that is not there, and a zero for a bias.

    Source: `aten/src/ATen/native/cuda/Normalization.cu` (`batch_norm_elementwise`).
    """
    source, mean = present(operator, "input"), present(operator, "mean")
    script.outputs()
    if is_contiguous(source) or _has_channels_innermost(source):
        return
    for name in ("weight", "bias"):
        if operator.tensor(name) is None:
            script.temporary(nbytes_of(1, mean.dtype))


@rule("aten::batch_norm_backward_reduce", name="batch-norm-reduce-grad")
def batch_norm_backward_reduce(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Two sums a channel and two gradients; channels-last tensors are reduced over thread blocks through a
    staging buffer with semaphores.

    Source: `aten/src/ATen/native/cuda/Normalization.cu` (`batch_norm_backward_reduce_cuda`),
    `Normalization.cuh`.
    """
    grad, source = present(operator, "grad_out"), filled(operator, "input")
    if _has_channels_innermost(grad) and _has_channels_innermost(source):
        script.outputs()
        script.temporaries(*channels_last_staging(source, 2))
        return
    for tensor in (source, grad):
        script.temporary(_merged_copy_bytes(tensor))
    script.outputs()


@rule("aten::batch_norm_backward_elemt", name="batch-norm-elemt-grad")
def batch_norm_backward_elemt(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Nothing besides the result where the gradient is channels-last, else copies of input and gradient that
    cannot be flattened.

    Source: `aten/src/ATen/native/cuda/Normalization.cu` (`batch_norm_backward_elemt_cuda`).
    """
    grad, source = operator.tensor("grad_out"), operator.tensor("input")
    if grad is not None and source is not None and not _has_channels_innermost(grad):
        for tensor in (source, grad):
            script.temporary(_merged_copy_bytes(tensor))
    script.outputs()
