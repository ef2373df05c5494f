"""Convolutions without cuDNN, called by their own names: windows as columns, one sample after the other, and
cuBLAS.

1. Input and weight are copied where they are not contiguous; where a sample has no batch it is given one.
2. The columns of one sample: as many rows as a window has elements, and a column for each place of the
   result. A kernel of size 1 that neither skips nor pads needs none.
3. A transposed one with a bias adds it as a product with ones.

Source: `aten/src/ATen/native/cuda/` `ConvolutionMM2d.cu`, `NaiveDilatedConvolution.cu`,
`NaiveConvolutionTranspose2d.cu` and `3d.cu`, `DepthwiseConv2d.cu`; orders and sizes as PyTorch's own host
code asks under the emulated runtime (torch 2.11).

Not modelled: gradients.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, contiguous_copy_bytes
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule
from analyzer.runtimes.pytorch.scratch.without_cudnn import Windows, products


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
