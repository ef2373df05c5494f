"""Softmaxes that take more than the copies of what is not contiguous.

Source: `aten/src/ATen/native/cuda/SoftMax.cu` (`host_softmax`, `softmax_backward_cuda_out`),
`aten/src/ATen/native/SoftMax.cpp` and `TensorConversions`/`transformers/attention.cpp` (`_safe_softmax`).

Not modelled: softmax over sparse or nested tensors.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, dtype_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, is_contiguous
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, converted, reduce
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule
from analyzer.runtimes.pytorch.scratch.tensor_iterator import pointwise_strides

_PADDING, _MASKED_ROW = 1, 1024


@rule("aten::_softmax_backward_data", name="softmax-grad")
def softmax_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Gradient times output is a temporary of the gradient's size, laid out as a pointwise result; it and the
    output are copied where they are not contiguous.
    """
    grad, output = present(operator, "grad_output"), present(operator, "output")
    script.outputs()
    shape, strides = pointwise_strides((grad, output))
    product = replace(grad, shape=shape, stride=strides, offset=0)
    script.temporary(bytes_of(product))
    script.copies(product, output)


@rule("aten::_masked_softmax", name="masked-softmax")
def masked_softmax(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """One kernel over rows of up to 1,024, where the mask is contiguous, and one of padding or as large as
    the input; else what is masked, and its softmax, before the result.

    Source: `aten/src/ATen/native/transformers/cuda/attention.cu` and `cuda/SoftMax.cu`
    (`masked_softmax_cuda`).
    """
    source, mask = present(operator, "self"), present(operator, "mask")
    fits = is_contiguous(mask) and source.shape[-1:] <= (_MASKED_ROW,)
    if not (fits and (mask.shape == source.shape or operator.argument("mask_type") == _PADDING)):
        script.temporaries(bytes_of(source), bytes_of(source))
    script.outputs()


@rule("aten::_safe_softmax")
def safe_softmax(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Softmax of the math attention path: also a mask of masked elements, a flag a row, the reduction of the
    mask, and a scalar; an input that is converted or not contiguous is copied.
    """
    source, result = present(operator, "self"), present(operator, 0)
    dim = operator.integer("dim", default=-1) % max(len(source.shape), 1)
    copy = None
    if operator.argument("dtype") is not None:
        source, copy = converted(script, source, result.dtype)
    script.output(0)
    if not is_contiguous(source):
        script.release(script.temporary(bytes_of(source)))
    if copy is not None:
        script.release(copy)
    mask = replace(source, dtype="bool", offset=0)
    script.temporary(mask.element_count)
    script.temporary(mask.element_count // max(source.shape[dim], 1) if source.shape else 1)
    reduce(script, device, mask, frozenset({dim}), ("bool",), kernel=ReductionKernel(1), keepdim=True)
    script.temporary(dtype_bytes(result.dtype))
