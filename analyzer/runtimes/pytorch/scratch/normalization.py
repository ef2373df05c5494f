"""Batch, layer, group and RMS normalisation.

`SyncBatchNorm`'s parts of it (statistics, their exchange, normalising) are in `synchronised.py`.

Source: `aten/src/ATen/native/cuda/layer_norm_kernel.cu` (`LaunchGammaBetaBackwardCUDAKernel`),
`group_norm_kernel.cu`, `Normalization.cu` and `Normalization.cuh` (`flexible_launch_configs`),
`aten/src/ATen/native/cudnn/BatchNorm.cpp`. The formula of cuDNN's workspace is not PyTorch's: it was read off
46 recorded workspaces of ResNet-50 (H200, cuDNN 9.19) and 16 of other shapes, which it gives to the byte.

Not modelled: fewer than 8 channels, and row-block sizes cuDNN chooses on other devices.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES
from analyzer.libraries.cudnn.normalization import workspace_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.layout import (
    accumulator_bytes,
    accumulator_dtype,
    bytes_of,
    contiguous_copy_bytes,
    format_copy_bytes,
    is_channels_last,
    is_contiguous,
    is_one_row,
    suggests_channels_last,
)
from analyzer.runtimes.pytorch.scratch.reduction import (
    ReductionKernel,
    converted,
    power_of_two_below,
    reduce,
    sum_over,
)
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, present, rule

_SPLIT_ROWS, _ROWS_PER_BLOCK, _LANES = 64 * 1024, 32, 32
_MOST_BLOCKS = 64 * 1024 // 2


# Releases in which group normalization copies and sums by itself.
_WITHOUT_SUMS = Span(since=(2, 15))


@rule("aten::native_layer_norm_backward", name="layer-norm-grad")
def layer_norm_backward(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Copies of what is not contiguous; with more than 65,536 rows and few columns, weight and bias gradients
    are summed in two stages: partial sums of a row for every 32 rows, and gradients that are thrown away.
    """
    _rows_backward(operator, device, script, operator.flags("output_mask", 3))


@rule("aten::_fused_rms_norm_backward", name="rms-norm-grad")
def rms_norm_backward(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """As layer norm's backward pass, for a weight alone: copies of what is not contiguous and, with more than
    65,536 rows and few columns, partial sums of the weight's gradient and a gradient that is thrown away.
    """
    _rows_backward(operator, device, script, (*operator.flags("output_mask", 2), False))


def _rows_backward(
    operator: Operator, device: DeviceProfile, script: Script, wanted: tuple[bool, ...]
) -> None:
    """Allocate for the gradients of a row-wise normalization: copies, results and partial sums."""
    grad, source, weight = (
        present(operator, "grad_out"),
        present(operator, "input"),
        operator.tensor("weight"),
    )
    script.copies(source, weight, operator.tensor("bias"))
    gradients = [index for index in (1, 2) if wanted[index] and index < len(operator.outputs)]
    columns = weight.element_count if weight is not None else 0
    rows = source.element_count // columns if columns else 0
    column_blocks = -(-columns // _LANES)
    splits = rows > _SPLIT_ROWS and columns // _LANES < device.sm_count // 2 and bool(gradients)
    if wanted[0]:
        script.output(0)
    if not splits or weight is None:
        script.outputs()
        script.copies(grad)
        return
    discarded = [script.temporary(bytes_of(weight)) for _ in gradients]
    grad_copy = script.temporary(contiguous_copy_bytes(grad))
    blocks = min(_MOST_BLOCKS // column_blocks, -(-rows // _ROWS_PER_BLOCK))
    partial = replace(weight, shape=(blocks, columns), stride=(columns, 1), offset=0)
    partials = [script.temporary(bytes_of(partial)) for _ in gradients]
    for index, old in zip(gradients, discarded, strict=True):
        script.output(index)
        sum_over(script, device, partial, (0,))
        script.release(old)
    script.release(*reversed(partials), grad_copy)


@rule("aten::native_group_norm")
def group_norm(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """With a weight or a bias: two factors a sample and channel, in the accumulator's type."""
    source = operator.tensor("input")
    script.outputs()
    if script.torch_release in _WITHOUT_SUMS:  # until 2.14 it is copied before
        script.copies(source)
    affine = operator.tensor("weight") or operator.tensor("bias")
    if source is None or affine is None or operator.integer("HxW") == 1:
        return
    factors = operator.integer("N") * operator.integer("C") * accumulator_bytes(source.dtype)
    script.temporaries(factors, factors)


@rule("aten::native_group_norm_backward", name="group-norm-grad")
def group_norm_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Two sums a sample and channel in the accumulator's type; for the input's gradient also two factors a
    sample and group, and one a sample and channel with a weight. From torch 2.15 on no sums of channels of
    one number, and what is not contiguous is copied here (until 2.14 by the formula).

    Source: `aten/src/ATen/native/cuda/group_norm_kernel.cu`; PyTorch 2.11's and 2.15's own host code.
    """
    source, grad = operator.tensor("input"), operator.tensor("grad_out")
    since_then = script.torch_release in _WITHOUT_SUMS
    script.copies(grad, source) if since_then else ()
    script.outputs()
    if source is None:
        return
    width = accumulator_bytes(source.dtype)
    samples, groups = operator.integer("N"), operator.integer("group")
    per_channel = samples * operator.integer("C") * width
    per_group = samples * groups * width
    per_pixel = operator.integer("HxW") > 1
    if per_pixel or not since_then:
        script.temporaries(per_channel, per_channel)
    if operator.flags("output_mask", 3)[0]:
        factors = [script.temporary(per_group), script.temporary(per_group)]
        if operator.tensor("weight") is not None and per_pixel:
            factors.append(script.temporary(per_channel))
        script.release(*factors)


def _cudnn_workspace(source: TensorMeta, backward: bool) -> int:
    """Workspace bytes of cuDNN's persistent mode (`libraries/cudnn/normalization.py`)."""
    rows = source.element_count // source.shape[1] if source.shape[1] else 0
    element = ELEMENT_BYTES[source.dtype]
    nbytes: int = workspace_bytes(rows, source.shape[1], element, backward=backward)
    return nbytes


def _is_persistent(source: TensorMeta) -> bool:
    """Return whether `getCudnnBatchNormMode` is persistent; ambiguous formats are contiguous."""
    return len(source.shape) > 2 and suggests_channels_last(source)


@rule("aten::cudnn_batch_norm", sure=Basis.MEASURED)
def cudnn_batch_norm(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """cuDNN takes a workspace in its persistent mode, which PyTorch chooses in training for channels-last
    input: for each block of rows 8 bytes a channel and flags, and 1 KiB of control data; channels count in
    multiples of 64, of 16 where 4 does not divide them, and of 4 where there are fewer.

    Results: (out, mean, inverse std, reserve)
    Measured: what a handle says of 5,200 calls, each right to the byte (H200, cuDNN 9.19).
    """
    script.library("cudnn")
    source = operator.tensor("input")
    training = bool(operator.integer("training", default=1))
    for index in range(min(3, len(operator.outputs))):
        script.output(index)
    if source is not None and training and _is_persistent(source):
        script.temporary(_cudnn_workspace(source, backward=False), Basis.MEASURED)
    script.outputs()


@rule("aten::cudnn_batch_norm_backward", name="cudnn-batch-norm-grad", sure=(Basis.EXACT, Basis.MEASURED))
def cudnn_batch_norm_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The gradient is brought into the input's memory format by a copy; then, for channels-last input, the
    workspace of cuDNN's persistent mode: 8 bytes a channel for every 96 rows, flags, and 1 KiB of control
    data.

    Measured: what a handle says of 5,200 calls, each right to the byte (H200, cuDNN 9.19).
    """
    script.library("cudnn")
    source, grad = present(operator, "input"), present(operator, "grad_output")
    persistent = _is_persistent(source)
    script.temporary(format_copy_bytes(grad, persistent))
    script.outputs()
    if persistent:
        script.temporary(_cudnn_workspace(source, backward=True), Basis.MEASURED)


def channels_last_staging(source: TensorMeta, values_per_channel: int) -> tuple[int, int]:
    """Return the bytes of staging and of semaphores with which PyTorch's own kernels reduce a channels-last
    tensor over thread blocks (`flexible_launch_configs`).
    """
    channels = source.shape[1]
    rows = source.element_count // channels
    width = min(power_of_two_below(channels), 32)
    height = min(power_of_two_below(-(-rows // 16)), 512 // width)
    if width * height != 512:
        width = min(power_of_two_below(channels), 512 // height)
    columns = -(-channels // width)
    blocks = min(-(-rows // (height * 16)), 128)
    if blocks < 8:
        return 0, 0
    return values_per_channel * channels * blocks * accumulator_bytes(source.dtype), 4 * columns


def _uses_channels_last_kernels(source: TensorMeta) -> bool:
    return is_channels_last(source) or (is_contiguous(source) and source.stride[1] == 1)


@rule("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_batch_norm_with_update")
def native_batch_norm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """PyTorch's own batch norm in training: a channels-last input is reduced over thread blocks through a
    staging buffer with semaphores; one that is neither channels-last nor contiguous is reduced as any tensor
    is (`mean_and_variance`).
    """
    source = filled(operator, "input")
    script.outputs()
    if len(source.shape) < 2:
        return
    if not operator.integer("training", default=1):  # `_batch_norm_with_update` says nothing: it trains
        return
    two_dims = len(source.shape) == 2 and is_contiguous(source)
    if two_dims or (len(source.shape) == 4 and is_channels_last(source) and not is_contiguous(source)):
        script.temporaries(*channels_last_staging(source, 4))
    elif not is_contiguous(source):
        mean_and_variance(script, device, source)


def mean_and_variance(script: Script, device: DeviceProfile, source: TensorMeta) -> None:
    """Each channel's, of a tensor that is neither contiguous nor channels-last: bfloat16 is copied in float32
    before, float16 is read as it is.

    Source: `aten/src/ATen/native/cuda/Normalization.cu` (`batch_norm_mean_var`),
    `aten/src/ATen/native/ReduceOpsUtils.h` (`make_reduction`).
    """
    wide = accumulator_dtype(source.dtype)
    read = source if source.dtype == "float16" else converted(script, source, wide)[0]
    reduce(
        script,
        device,
        read,
        frozenset(range(len(source.shape))) - {1},
        (wide,) * 2,
        kernel=ReductionKernel(16),
        accumulates_in_result=False,
    )


@rule("aten::native_batch_norm_backward", "aten::batch_norm_backward", name="native-batch-norm-grad")
def native_batch_norm_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Channels-last goes through two sums a channel, with a staging buffer, then an elementwise kernel; in
    evaluation the inverse deviation is computed anew if the forward pass (cuDNN's) saved none. Otherwise
    input and gradient are seen as batch, channels and the rest, which takes a copy where that is not one row.
    """
    grad, source = operator.tensor("grad_out"), filled(operator, "input")
    if not _uses_channels_last_kernels(source) or (is_contiguous(source) and len(source.shape) != 2):
        script.output(0)
        for tensor in (source, grad):
            if tensor is not None and not is_one_row(tensor.shape[2:], tensor.stride[2:]):
                script.temporary(bytes_of(tensor))
        script.outputs()
        return
    per_channel = source.shape[1] * accumulator_bytes(source.dtype)
    saved = operator.tensor("save_invstd", "save_var")
    if not operator.integer("train", "update", default=1) and (saved is None or saved.element_count == 0):
        script.temporary(per_channel)
    script.temporaries(per_channel, per_channel)
    for index in (1, 2):
        if index < len(operator.outputs):
            script.output(index)
    staging = script.temporaries(*channels_last_staging(source, 2))
    script.release(*reversed(staging))
    script.output(0)
