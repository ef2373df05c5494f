"""bitsandbytes: quantizing, and the steps of its optimizers.

Source: bitsandbytes 0.50, `backends/cuda/ops.py`: the library's kernels are given all the memory they use. What
`gemm_4bit` does is recorded operator by operator (`capture/pytorch/kernels/quantized.py`).
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.layout import contiguous_copy_bytes
from analyzer.runtimes.pytorch.scratch.script import Script, rule


@rule("bitsandbytes::quantize_4bit", "bitsandbytes::quantize_blockwise")
def bitsandbytes_quantize(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A contiguous copy of the input if it is not; the scales are made before the values, though they come second.

    Source: `backends/cuda/ops.py` (`quantize_4bit`, `quantize_blockwise`).
    """
    del device
    script.temporary(contiguous_copy_bytes(operator.inputs[0]))
    script.output(1)
    script.output(0)


@rule(
    "bitsandbytes::dequantize_4bit",
    "bitsandbytes::dequantize_blockwise",
    "bitsandbytes::optimizer_update_8bit_blockwise",
    "bitsandbytes::optimizer_update_32bit",
)
def bitsandbytes_in_place(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The kernels take nothing besides the result, if there is one.

    Source: `backends/cuda/ops.py`: results are made before the kernels are called; steps write to parameters and state.
    """
    del operator, device
    script.outputs()


@rule("bitsandbytes::int8_linear_matmul")
def bitsandbytes_product(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Nothing besides the result; the library's handle of cuBLAS is its own, beside those of PyTorch's threads.

    Source: `backends/cuda/ops.py` (`_int8_linear_matmul_impl`), `functional.py` (`CUBLAS_Context`), `csrc/ops.cuh` (`Context`).
    """
    del operator, device
    script.library("cublas@bitsandbytes")
    script.outputs()
