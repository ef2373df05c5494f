"""Quantizing: PyTorch's fake quantization, whose scales are learned or observed; bitsandbytes, and the steps
of its optimizers.

Source: `aten/src/ATen/native/quantized/` `FakeQuantPerTensorAffine.cpp`, `FakeQuantPerChannelAffine.cpp`,
`cuda/FusedObsFakeQuant.cu`; bitsandbytes 0.50, `backends/cuda/ops.py`: the library's kernels are given all
the memory they use. `gemm_4bit` is recorded operator by operator (`capture/pytorch/kernels/quantized.py`).
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, dtype_bytes
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, contiguous_like, is_channels_last
from analyzer.runtimes.pytorch.scratch.reduction import both_extremes, sum_over
from analyzer.runtimes.pytorch.scratch.script import Script, filled, present, rule

_MATRIX, _FLOAT = 2, 4


@rule("bitsandbytes::quantize_4bit", "bitsandbytes::quantize_blockwise")
def bitsandbytes_quantize(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A contiguous copy of the input if it is not; the scales are made before the values, though they come
    second.

    Source: `backends/cuda/ops.py` (`quantize_4bit`, `quantize_blockwise`).
    """
    script.copies(operator.inputs[0])
    script.output(1)
    script.output(0)


@rule("bitsandbytes::int8_linear_matmul")
def bitsandbytes_product(_operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Nothing besides the result; the library's handle of cuBLAS is its own, beside those of PyTorch's
    threads.

    Source: `backends/cuda/ops.py` (`_int8_linear_matmul_impl`), `functional.py` (`CUBLAS_Context`),
    `csrc/ops.cuh` (`Context`).
    """
    script.library("cublas@bitsandbytes")
    script.outputs()


@rule(
    "aten::quantize_per_tensor",
    "aten::quantize_per_tensor_dynamic",
    "aten::quantize_per_channel",
    "aten::dequantize",
    "aten::int_repr",
    name="quantize",
)
def quantize(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result, and a copy of what is neither contiguous nor channels-last; its extremes first, where they
    decide the scale.

    Source: `aten/src/ATen/quantized/Quantizer.cpp`, `native/quantized/QTensor.cpp`
    (`quantize_per_tensor_dynamic`). Not modelled: what a tensor quantized by channels keeps of its scales.
    """
    source = operator.tensor("self")
    if source is not None and operator.name.endswith("_dynamic") and source.element_count:
        script.release(*both_extremes(script, device, source))
    script.outputs()
    if source is not None and not is_channels_last(source):
        script.copies(source)


@rule(
    "aten::_fake_quantize_learnable_per_tensor_affine_backward",
    "aten::_fake_quantize_learnable_per_channel_affine_backward",
    name="learned-quantize-grad",
)
def learned_quantization_gradient(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Gradients of scale and zero point for every element, then their sums; of channels, the zero points as
    whole numbers, of which the smallest and the largest are looked at.
    """
    source, points = filled(operator, "self"), present(operator, "zero_point")
    axis = operator.integer("axis", default=-1)
    if dtype_bytes(source.dtype) < _FLOAT:  # computed in float32, all of it
        for tensor in (source, operator.tensor("grad"), operator.tensor("scale"), points):
            script.temporary(0 if tensor is None else tensor.element_count * _FLOAT)
        source = replace(contiguous_like(source), dtype="float32")
    if axis >= 0:
        integers = replace(points, dtype="int32")
        script.temporary(bytes_of(integers))
        script.release(*[script.temporary(dtype_bytes(integers.dtype)) for _ in range(2)])
    script.output(0)
    every = [script.temporary(bytes_of(source)) for _ in range(2)]
    dims = None if axis < 0 else tuple(place for place in range(len(source.shape)) if place != axis)
    for result in (1, 2):
        script.output(result)
        sum_over(script, device, source, dims)
    script.release(*every)


@rule("aten::_fused_moving_avg_obs_fq_helper", name="observed-quantize")
def observed_quantization(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A copy of what is not contiguous, its smallest and largest value (of each row, where rows are quantized
    apart), then the results."""
    source = present(operator, "self")
    if not source.shape:
        return
    script.copies(source)
    rows = bool(operator.integer("per_row_fake_quant"))
    if rows:
        axis = 0 if len(source.shape) == _MATRIX else operator.integer("ch_axis")
        extremes = [script.temporary(source.shape[axis] * dtype_bytes(source.dtype)) for _ in range(2)]
    else:
        extremes = list(both_extremes(script, device, contiguous_like(source)))
    script.release(*extremes)
    for result in (1, 0) if rows else (0, 1):
        script.output(result)
