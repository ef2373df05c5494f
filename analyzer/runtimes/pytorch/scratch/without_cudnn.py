"""Convolutions of a program that has switched cuDNN off (`torch.backends.cudnn.enabled`) or that cuDNN does
not have (transposed ones padded by a stride or more; bfloat16 before compute capability 8), their gradients,
and the kernels called by their own names.

1. PyTorch's own kernels run: a sample's windows as columns, and cuBLAS. There are as many rows as a window
   has elements, and a column for each place of the result; a kernel of size 1 that neither skips nor pads
   needs none. A transposed one with a bias adds it as a product with ones. Which kernel runs
   follows from the shape: transposed; dilated, or of volumes; else the plain one. Depthwise ones are
   `convolution.py`'s.
2. With several groups each is one convolution of copies of its channels, and their results are joined. The
   channels of a single sample lie together: they are not copied.
3. Gradients: the plain kernel makes the input's, its columns, the bias's, then the weight's; the dilated one
   all results, then the columns, and a sum of the bias a sample; the transposed one takes columns for the
   input's and again for the weight's. A gradient that is not contiguous is copied.
4. The transposed kernel calls cuBLAS for each sample, forward for the bias once more.

Source: `aten/src/ATen/native/Convolution.cpp` (`_select_conv_backend`, `convolution_backward`),
`cuda/ConvolutionMM2d.cu`, `cuda/NaiveDilatedConvolution.cu`, `cuda/NaiveConvolutionTranspose2d.cu` and
`3d.cu`; order and sizes as PyTorch's own host code asks under the emulated runtime (torch 2.11,
tests/data/emulation/without_cudnn.json).

Not modelled: gradients of kernels called by their own names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.runtimes.pytorch.scratch.blas import take_workspace
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, contiguous_copy_bytes, contiguous_like
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule

_PLANE, _VOLUME = 4, 5


@dataclass(frozen=True, slots=True)
class Windows:
    """A convolution, with or without a batch: its input, weight and result, of all groups, and how it moves.

    moved: a window is larger than one place, or skips or pads. dilated: the kernel of dilated windows runs.
    """

    source: TensorMeta
    weight: TensorMeta
    result: TensorMeta
    groups: int
    transposed: bool
    moved: bool
    dilated: bool

    @property
    def columns(self) -> int:
        """Bytes of one sample's columns, of one group."""
        rank = len(self.weight.shape) - 2
        if self.transposed:
            places, channels = self.source.shape[-rank:], self.weight.shape[1]
        else:
            places, channels = self.result.shape[-rank:], self.source.shape[-rank - 1] // self.groups
        rows = channels * math.prod(self.weight.shape[2:])
        return rows * math.prod(places) * dtype_bytes(self.source.dtype)

    @property
    def bias(self) -> int:
        """Bytes of one group's bias."""
        return self.result.shape[1] // self.groups * dtype_bytes(self.source.dtype)

    @property
    def plain(self) -> bool:
        """Whether `_slow_conv2d` runs."""
        return not self.transposed and not self.dilated and len(self.weight.shape) == _PLANE

    @property
    def calls(self) -> int:
        """How often cuBLAS is called for all samples' columns."""
        samples = self.source.shape[0]
        return samples if self.transposed and isinstance(samples, int) else 1

    def share(self, tensor: TensorMeta) -> int:
        """Return the bytes of one group's part of a tensor."""
        return bytes_of(tensor) // self.groups

    def copy(self, tensor: TensorMeta) -> int:
        """Return the bytes of a copy of one of several groups' channels, of all samples; the input is
        contiguous by then."""
        samples, lies = tensor.shape[0], tensor is self.source or not contiguous_copy_bytes(tensor)
        lie_together = isinstance(samples, int) and samples == 1 and lies
        return 0 if self.groups == 1 or lie_together else self.share(tensor)


def forward(script: Script, device: DeviceProfile, windows: Windows, bias: bool) -> None:
    """Allocate the result and the scratch."""
    copies, parts = script.copies(windows.source, windows.weight), []
    for _ in range(windows.groups):
        copy = script.temporary(windows.copy(windows.source))
        parts.append(_one_forward(script, device, windows, bias))
        script.release(copy)
    if windows.groups > 1:
        script.output(0)
    script.release(*parts, *reversed(copies))


def products(script: Script, device: DeviceProfile, windows: Windows, bias: bool) -> list[int]:
    """Allocate a sample's columns, a bias's ones, and cuBLAS's workspace; return tokens still held."""
    held = []
    if not windows.plain or windows.moved:
        held.append(script.temporary(windows.columns))
    if windows.transposed and bias:
        places = windows.result.shape[2 - len(windows.weight.shape) :]
        held.append(script.temporary(math.prod(places) * dtype_bytes(windows.source.dtype)))
    for _ in range(windows.calls * (2 if windows.transposed and bias else 1)):
        take_workspace(script, device)
    return held


def _one_forward(script: Script, device: DeviceProfile, windows: Windows, bias: bool) -> int:
    """Allocate for one group's forward: the result, or of several groups a temporary, which is returned."""
    volumes = windows.transposed and len(windows.weight.shape) == _VOLUME
    # The result is made like the input first, and resized.
    before = script.temporary(windows.share(windows.source)) if volumes else -1
    made = script.temporary(windows.share(windows.result) if windows.groups > 1 else 0)
    if windows.groups == 1:
        script.output(0)
    script.release(before)
    script.release(*reversed(products(script, device, windows, bias)))
    return made


def backward(
    script: Script, device: DeviceProfile, windows: Windows, grad: TensorMeta, wanted: tuple[bool, ...]
) -> None:
    """Allocate the wanted gradients (of input, weight, bias) and the scratch."""
    given = (windows.source, windows.weight) if wanted[0] or wanted[1] else ()
    copies_of_given, parts = script.copies(*given), []
    for _ in range(windows.groups):
        copies = [script.temporary(windows.copy(tensor)) for tensor in (grad, windows.source)]
        parts += _one_backward(script, device, windows, grad, wanted)
        script.release(*reversed(copies))
    for index, want in enumerate(wanted):
        if want and windows.groups > 1:
            script.output(index)
    script.release(
        *(part for _, part in sorted(parts, key=lambda part: -part[0])), *reversed(copies_of_given)
    )


def _columns(script: Script, device: DeviceProfile, windows: Windows) -> int:
    """Allocate columns, and cuBLAS's workspace for each of its calls; return the columns' token."""
    token = script.temporary(windows.columns)
    for _ in range(windows.calls):
        take_workspace(script, device)
    return token


def _one_backward(
    script: Script, device: DeviceProfile, windows: Windows, grad: TensorMeta, wanted: tuple[bool, ...]
) -> list[tuple[int, int]]:
    """Allocate one group's backward: results, or of several groups temporaries, which are returned."""
    made: list[tuple[int, int]] = []
    sizes = (windows.share(windows.source), windows.share(windows.weight), windows.bias)

    def result(index: int) -> None:
        if wanted[index] and windows.groups == 1:
            script.output(index)
        elif wanted[index]:
            made.append((index, script.temporary(sizes[index])))

    copied = contiguous_copy_bytes(grad) if windows.groups == 1 else 0
    if windows.transposed:
        if wanted[0]:
            copy = script.temporary(copied)
            result(0)
            script.release(_columns(script, device, windows), copy)
        result(1)
        result(2)
        if wanted[1]:
            copy = script.temporary(copied)
            columns = _columns(script, device, windows)
            if wanted[2]:
                shape = (grad.shape[0], grad.shape[1] // windows.groups, *grad.shape[2:])
                part = contiguous_like(replace(grad, shape=shape, stride=()))
                sum_over(script, device, part, (0, *range(2, len(shape))))
            script.release(columns, copy)
        return made
    copy = script.temporary(copied)
    columns = -1
    if windows.plain:
        result(0)
        if wanted[0]:
            columns = _columns(script, device, windows)
        result(2)
        if wanted[2]:
            sum_over(script, device, grad, (0, *range(2, len(grad.shape))))
        result(1)
        if wanted[1] and not wanted[0]:
            columns = _columns(script, device, windows)
    else:
        for index in range(len(wanted)):
            result(index)
        if wanted[0] or wanted[1]:
            columns = _columns(script, device, windows)
        samples = grad.shape[0] if wanted[2] and isinstance(grad.shape[0], int) else 0
        shape = (grad.shape[1] // windows.groups, *grad.shape[2:])
        part = contiguous_like(replace(grad, shape=shape, stride=()))
        for _ in range(samples):
            total = script.temporary(windows.bias)
            sum_over(script, device, part, tuple(range(1, len(shape))))
            script.release(total)
    script.release(columns, copy)
    return made


@rule(
    "aten::_slow_conv2d_forward",
    "aten::slow_conv_dilated2d",
    "aten::slow_conv_dilated3d",
    "aten::slow_conv_transpose2d",
    "aten::slow_conv_transpose3d",
    name="slow-convolution",
)
def slow_convolution(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Copies of what is not contiguous, the result, then a sample's windows as columns, which cuBLAS
    multiplies."""
    source, weight, result = present(operator, "self"), present(operator, "weight"), present(operator, 0)
    transposed, volumes = "transpose" in operator.name, "3d" in operator.name
    before = -1
    if transposed and volumes:  # the result is made like the input first, and resized
        before = script.temporary(bytes_of(source))
    elif transposed:
        before = script.temporary(contiguous_copy_bytes(source))
        script.output(0)
        script.release(before)
    script.copies(source, weight)
    script.outputs()
    script.release(before)
    kernel = operator.integers("kernel_size") or ()
    plain = operator.name.endswith("_slow_conv2d_forward")
    same = set(kernel) == {1} and source.shape[-len(kernel) :] == result.shape[-len(kernel) :]
    windows = Windows(source, weight, result, 1, transposed, not same, not plain and not transposed)
    products(script, device, windows, operator.tensor("bias") is not None)
