"""Operators over lists of tensors, and dropout.

1. Multi-tensor kernels pass addresses by value: they take nothing beyond their results.
2. `_foreach_norm` (order 1, 2 or infinity) also takes partial sums: per tensor as many as the largest tensor
   has chunks of 65,536 elements, in the accumulator's type; they come before the results.
3. `native_dropout` allocates its mask, then its output.

Source: `aten/src/ATen/native/cuda/ForeachReduceOp.cu`, `MultiTensorApply.cuh` (`kChunkSize`), `Dropout.cu`
(`dropout_cuda`).

Not modelled: the one-by-one route for tensors of mixed types, layouts or devices, which reduces each by
itself.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.graph.model import tensors_in
from analyzer.runtimes.pytorch.scratch.layout import accumulator_bytes
from analyzer.runtimes.pytorch.scratch.script import Script, rule

_CHUNK_ELEMENTS = 65536


@rule("aten::_foreach_norm", "aten::_foreach_max", replace=True)  # every other `_foreach_` is inert
def foreach_reduction(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Norms and maxima of a list of tensors: partial results, for each tensor as many as the largest one has
    chunks of 65,536 elements, in the accumulator's type. They are taken before the results.
    """
    tensors = tuple(tensors_in(operator.argument("self")))
    if tensors:
        chunks = max(-(-tensor.element_count // _CHUNK_ELEMENTS) for tensor in tensors)
        result = next((output for output in operator.outputs if output is not None), tensors[0])
        script.temporary(len(tensors) * chunks * accumulator_bytes(result.dtype))
    script.outputs()


@rule("aten::native_dropout", name="dropout")
def native_dropout(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Dropout allocates its mask before its output, and nothing else.

    Results: (output, mask)
    """
    if len(operator.outputs) > 1:
        script.output(1)
    script.outputs()
