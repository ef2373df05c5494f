"""Convolutions: which backend PyTorch takes, the copies it makes for it, and the workspace cuDNN asks for.

1. 1-D convolutions run as 2-D ones of height 1, on a contiguous input.
2. **Depthwise** convolutions (groups = input channels > 1, not transposed) in NCHW run PyTorch's own kernel,
   without scratch; cuDNN takes them in NHWC, and in float16 where the workload suits it. Everything else is
   cuDNN's.
3. The memory format is channels-last if input or weight suggest it (never for float64). Input, weight and
   incoming gradient not in that format are copied to it.
4. The workspace is cuDNN's choice, per call: `libraries/cudnn/choices.py`. Where there is no room for it, the
   call does not fail: PyTorch catches that, tries cuDNN's next plan, and keeps the one that ran for every
   equal call that follows (`try_configs`, `run_single_conv`): `libraries/cudnn/plans.py` says what these ask
   for.
5. Benchmark mode takes a workspace for cuDNN's trials the first time a thread sees a convolution, as large as
   the largest any plan asks for, halved while there is no room, and has the allocator empty its cache after
   them (`generate_and_filter_plans`, `run_single_conv`, `_cudnn_get_conv_benchmark_empty_cache`).
6. A few kernels make the driver keep local memory beside the allocator: `libraries/cudnn/local_memory.py`.

Source: `aten/src/ATen/native/Convolution.cpp` (`_select_conv_backend`, `_convolution`,
`convolution_backward`, `check_cudnn_depthwise_workload_with_filter`), `ConvUtils.h`
(`cudnn_conv_suggest_memory_format`), `cudnn/ConvShared.cpp`, `cudnn/Conv_v8.cpp` (`run_conv_plan`,
`try_configs`), `cuda/DepthwiseConv2d.cu`; orders checked against recorded allocation histories.

Not modelled: plans that cuDNN builds but cannot run, convolutions too large for 32-bit indices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analyzer.devices import DeviceProfile
from analyzer.devices.architectures import DEPTHWISE_OF_ANY_TYPE
from analyzer.graph import Operator, TensorMeta, contiguous_strides
from analyzer.libraries.cudnn.choices import UNKNOWN, Choices, NextPlans, Workspace, choices_of
from analyzer.libraries.cudnn.convolution import ELEMENT_BYTES, Convolution
from analyzer.libraries.cudnn.plans import ConvolutionSettings
from analyzer.parametric.lanes import Lanes, NotTogether
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.layout import (
    bytes_of,
    channels_last_order,
    contiguous_copy_bytes,
    contiguous_like,
    format_copy_bytes,
    suggests_channels_last,
)
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, part, present, rule
from analyzer.runtimes.pytorch.scratch.without_cudnn import Windows
from analyzer.runtimes.pytorch.scratch.without_cudnn import backward as own_backward
from analyzer.runtimes.pytorch.scratch.without_cudnn import forward as own_forward

# Torch until 2.3 has cuDNN 8, which has no descriptions and was asked nothing: a published ResNet-50 took 236
# MiB more with it than with cuDNN 9.1.
_CUDNN_8 = Span(until=(2, 3))
_NO_CUDNN = "no_cudnn"


@dataclass(frozen=True, slots=True)
class _Geometry:
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    groups: int
    # More padding of the result than cuDNN has (`use_cudnn`, `is_output_padding_big`).
    padded_widely: bool


def _geometry(operator: Operator, spatial_count: int) -> _Geometry:
    """Return padding, stride and dilation, one number per spatial dimension, or one for all."""

    def expanded(sizes: tuple[int, ...] | None, default: int) -> tuple[int, ...]:
        values = sizes or (default,)
        return values * spatial_count if len(values) == 1 else values

    stride = expanded(operator.integers("stride"), 1)
    added = expanded(operator.integers("output_padding"), 0)
    return _Geometry(
        expanded(operator.integers("padding"), 0),
        stride,
        expanded(operator.integers("dilation"), 1),
        bool(operator.argument("transposed")),
        operator.integer("groups", default=1),
        any(more >= step for more, step in zip(added, stride, strict=False)),
    )


def _windows(source: TensorMeta, weight: TensorMeta, result: TensorMeta, geometry: _Geometry) -> Windows:
    """Return the same as PyTorch's own kernels see it."""
    ones = {*geometry.stride, *weight.shape[2:]} == {1} and set(geometry.padding) == {0}
    dilated = any(step != 1 for step in geometry.dilation)
    return Windows(source, weight, result, geometry.groups, geometry.transposed, not ones, dilated)


def _as_2d(tensor: TensorMeta) -> TensorMeta:
    """`unsqueeze(2)` of a 3-D tensor."""
    shape, stride = tensor.shape, tensor.stride
    return replace(
        tensor, shape=(*shape[:2], 1, shape[2]), stride=(*stride[:2], shape[2] * stride[2], stride[2])
    )


def _as_called(
    operator: Operator, device: DeviceProfile, script: Script, other: TensorMeta
) -> tuple[TensorMeta, TensorMeta, TensorMeta, _Geometry, bool]:
    """Return input, weight, `other` (the result or its gradient), how windows move, and whether cuDNN is not
    taken; of 1-D convolutions as the 2-D ones they run as."""
    source, weight = filled(operator, "input"), present(operator, "weight")
    geometry = _geometry(operator, len(weight.shape) - 2)
    if len(weight.shape) == 3:
        script.copies(source)
        source, weight, other = _as_2d(contiguous_like(source)), _as_2d(weight), _as_2d(other)
        padding, stride, dilation = (0, *geometry.padding), (1, *geometry.stride), (1, *geometry.dilation)
        geometry = replace(geometry, padding=padding, stride=stride, dilation=dilation)
    off = _NO_CUDNN in operator.settings or geometry.padded_widely
    return source, weight, other, geometry, off or _lacks_type(source, weight, geometry, device)


def _wants_channels_last(one: TensorMeta, other: TensorMeta) -> bool:
    """`cudnn_conv_suggest_memory_format`."""
    if "float64" in (one.dtype, other.dtype):
        return False
    return suggests_channels_last(one) or suggests_channels_last(other)


def _runs_depthwise(
    source: TensorMeta, weight: TensorMeta, geometry: _Geometry, device: DeviceProfile, off: bool
) -> bool:
    """Return whether PyTorch's own depthwise kernel runs. off: cuDNN is not taken."""
    channels = source.shape[1]
    depthwise = (
        not geometry.transposed and channels == geometry.groups > 1 and weight.shape[0] % channels == 0
    )
    return depthwise and (off or not _cudnn_takes_depthwise(source, weight, geometry, device))


def _lacks_type(source: TensorMeta, weight: TensorMeta, geometry: _Geometry, device: DeviceProfile) -> bool:
    """Return whether cuDNN is not given the type: bfloat16 before compute capability 8
    (`supportsBFloat16ConvolutionWithCuDNNv8`, `cuda/detail/CUDAHooks.cpp`)."""
    if "bfloat16" not in (source.dtype, weight.dtype) or device.architecture.ampere:
        return False
    depthwise = not geometry.transposed and source.shape[1] == geometry.groups > 1
    of_any_type = depthwise and device.releases["torch"] in DEPTHWISE_OF_ANY_TYPE
    return not (of_any_type and _wants_channels_last(source, weight))


def _cudnn_takes_depthwise(
    source: TensorMeta, weight: TensorMeta, geometry: _Geometry, device: DeviceProfile
) -> bool:
    """Return PyTorch's `use_cudnn_depthwise`; planes only from compute capability 7 on
    (`supportsDepthwiseConvolutionWithCuDNN`, `cuda/detail/CUDAHooks.cpp`)."""
    if _wants_channels_last(source, weight):
        return True
    if (
        not device.architecture.volta
        or source.dtype != "float16"
        or weight.dtype != "float16"
        or len(source.shape) != 4
    ):
        return False
    batch, channels, height, width = source.shape
    stride = geometry.stride[1]
    if any(step != 1 for step in geometry.dilation) or channels < 32:
        return False
    if geometry.stride[0] != stride and height != 1:
        return False
    if height == 1 and stride == 1:
        return True
    filter_size = weight.shape[3]
    if weight.shape[2] != filter_size or filter_size not in (1, 3, 5) or width < 7:
        return False
    if stride == 1:
        return True
    if stride != 2:
        return False
    if batch == 1:
        return filter_size != 1 or width <= 28
    if filter_size == 1:
        return batch <= 16 and channels >= 128 and width <= 7
    return channels >= 512 or (channels >= 256 and width >= 28)


# Returns the workspace's token. `x`: the side with the input's channels.
@part("cudnn-convolution", sure=(Basis.MEASURED, Basis.BOUNDED))
def _workspace(
    script: Script,
    device: DeviceProfile,
    settings: ConvolutionSettings,
    operation: str,
    x: TensorMeta,
    weight: TensorMeta,
    geometry: _Geometry,
    channels_last: bool,
) -> int:
    """The workspace of one convolution is cuDNN's choice, call by call: what it answered for such a
    convolution, recorded or asked of the library itself, or, where nobody can be asked, a bound. With
    benchmark mode on, one as large as the largest any plan asks for comes first, the first time a convolution
    is seen, and the allocator's cache is emptied after it.

    Source: `analyzer/libraries/cudnn/choices.py`; `aten/src/ATen/native/cudnn/` `Conv_v8.cpp`
    (`run_conv_plan`) asks for it.
    """
    if x.dtype not in ELEMENT_BYTES:
        return script.temporary(0)
    script.library("cudnn")
    moves = (geometry.padding, geometry.stride, geometry.dilation)
    call = Convolution(operation, x.dtype, channels_last, x.shape, weight.shape, *moves)
    choices = choices_of(device)
    # PyTorch keeps the plan that ran for every later call that is the same.
    plan = f"{call!r} {settings.deterministic} {settings.allow_tf32}"
    batch: Any = x.shape[0]
    if isinstance(batch, Lanes):
        sizes, basis = _at_batches(choices, call, batch, settings)
        return script.temporary(sizes, basis, plan)
    if settings.benchmark:
        (tried,) = choices.workspaces([call], settings, trial=True)
        basis = Basis.BOUNDED if tried.source == UNKNOWN else Basis.MEASURED
        script.trials(tried.nbytes, basis, plan, *_off(tried))
    workspace = choices.workspace(call, settings)
    if kept := choices.local_memory(call, settings, workspace.nbytes):
        script.library(kept)
    basis = Basis.BOUNDED if workspace.source == UNKNOWN else Basis.MEASURED
    following = NextPlans(choices, call, settings, workspace.nbytes)
    half = workspace.nbytes // 2 if device.releases["torch"] in _CUDNN_8 else 0
    more, less = (max(end, half) for end in _off(workspace))
    return script.temporary(workspace.nbytes, basis, plan, following, more, less)


def _off(workspace: Workspace) -> tuple[int, int]:
    """Return the bytes by which a workspace may be larger, and smaller."""
    return workspace.high_bytes - workspace.nbytes, workspace.nbytes - workspace.low_bytes


def _at_batches(
    choices: Choices, call: Convolution, batches: Lanes, settings: ConvolutionSettings
) -> tuple[Any, Basis]:
    """Return workspaces at many batches, asked together, without fallback plans."""
    others: tuple[Any, ...] = (*call.x_shape[1:], *call.w_shape)
    if settings.benchmark or any(isinstance(size, Lanes) for size in others):
        raise NotTogether
    workspaces = choices.workspaces(
        [call._replace(x_shape=(batch, *call.x_shape[1:])) for batch in batches.values.tolist()], settings
    )
    basis = Basis.BOUNDED if any(each.source == UNKNOWN for each in workspaces) else Basis.MEASURED
    return Lanes(np.array([each.nbytes for each in workspaces], np.int64)), basis


@rule("aten::convolution", "aten::_convolution")
def convolution(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A copy of the input in the format the kernel wants (channels-last if input or weight suggest it), the
    result, a copy of the weight likewise, then cuDNN's workspace. Depthwise convolutions run PyTorch's own
    kernel, without workspace. A transposed one is the data gradient of the one it transposes, and its data
    gradient that one's forward pass.
    """
    source, weight, result, geometry, off = _as_called(operator, device, script, present(operator, 0))
    if _runs_depthwise(source, weight, geometry, device, off):
        script.copies(source, weight)
        script.output(0)
        return
    if off:
        bias = operator.tensor("bias") is not None
        own_forward(script, device, _windows(source, weight, result, geometry), bias)
        return
    channels_last = _wants_channels_last(source, weight)
    script.temporary(format_copy_bytes(source, channels_last))
    script.output(0)
    script.temporary(format_copy_bytes(weight, channels_last))
    operation, x = ("data", result) if geometry.transposed else ("forward", source)
    _workspace(script, device, _settings(operator), operation, x, weight, geometry, channels_last)


def _settings(operator: Operator) -> ConvolutionSettings:
    """Return the cuDNN settings at the operator's call."""
    settings = operator.settings
    return ConvolutionSettings(
        "benchmark" in settings, "deterministic" in settings, "no_tf32" not in settings
    )


@rule("aten::convolution_backward")
def convolution_grad(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """For each gradient wanted, the input's before the weight's: the result, copies in the kernel's format of
    what it reads, and cuDNN's workspace; all but the result is given back before the next. The bias gradient,
    a plain sum, comes last.
    """
    source, weight, grad, geometry, off = _as_called(
        operator, device, script, present(operator, "grad_output")
    )
    wanted = operator.flags("output_mask", 3)
    if _runs_depthwise(source, weight, geometry, device, off):
        _depthwise_backward(script, grad, source, weight, wanted)
    elif off:
        own_backward(script, device, _windows(source, weight, grad, geometry), grad, wanted)
        return
    else:
        _cudnn_backward(script, device, _settings(operator), (grad, source, weight), geometry, wanted)
    if wanted[2]:
        script.output(2)
        sum_over(script, device, grad, (0, *range(2, len(grad.shape))))


def _depthwise_backward(
    script: Script, grad: TensorMeta, source: TensorMeta, weight: TensorMeta, wanted: tuple[bool, ...]
) -> None:
    grad_copy = script.temporary(contiguous_copy_bytes(grad))
    for index, other in ((1, source), (0, weight)):
        if wanted[index]:
            copy = script.temporary(contiguous_copy_bytes(other))
            script.output(index)
            script.release(copy)
    script.release(grad_copy)


def _cudnn_backward(
    script: Script,
    device: DeviceProfile,
    settings: ConvolutionSettings,
    tensors: tuple[TensorMeta, TensorMeta, TensorMeta],
    geometry: _Geometry,
    wanted: tuple[bool, ...],
) -> None:
    """`cudnn_convolution_backward` and `cudnn_convolution_transpose_backward`."""
    grad, source, weight = tensors
    held = []
    if wanted[1]:
        channels_last = _wants_channels_last(source, weight)
        held.append(script.temporary(format_copy_bytes(source, channels_last)))
        source = _formatted(source, channels_last)
    channels_last = suggests_channels_last(source)
    if geometry.transposed:
        converts = format_copy_bytes(grad, channels_last) > 0
    else:  # `to(memory_format)` leaves a tensor alone that already suggests the format
        converts = suggests_channels_last(grad) != channels_last
    if converts:
        held.append(script.temporary(bytes_of(grad)))
        grad = _formatted(grad, channels_last)
    x, y = (grad, source) if geometry.transposed else (source, grad)
    if wanted[0]:
        channels_last = _wants_channels_last(grad, weight)
        script.output(0)
        copies = [script.temporary(format_copy_bytes(part, channels_last)) for part in (weight, grad)]
        operation = "forward" if geometry.transposed else "data"
        copies.append(_workspace(script, device, settings, operation, x, weight, geometry, channels_last))
        script.release(*reversed(copies))
    if wanted[1]:
        channels_last = _wants_channels_last(source, grad)
        copies = [script.temporary(format_copy_bytes(part, channels_last)) for part in (y, x)]
        script.output(1)
        copies.append(_workspace(script, device, settings, "weight", x, weight, geometry, channels_last))
        script.release(*reversed(copies))
    script.release(*reversed(held))


def _formatted(tensor: TensorMeta, channels_last: bool) -> TensorMeta:
    """Return the tensor as `contiguous(format)` returns it."""
    if not format_copy_bytes(tensor, channels_last):
        return tensor
    if not channels_last:
        return contiguous_like(tensor)
    strides = contiguous_strides(tensor.shape, channels_last_order(len(tensor.shape)))
    return replace(tensor, stride=strides, offset=0)
