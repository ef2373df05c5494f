"""Kernels that read contiguous tensors alone: which of an operator's tensors are copied, and when.

1. Before the results: the input of `kthvalue`, of `median` along a dimension and of `_adaptive_avg_pool3d`;
   input and indices of `max_unpool2d` and `max_unpool3d`; the gradient of `fractional_max_pool2d`.
2. After them: the input of `adaptive_max_pool3d` (those of which nothing else is to be said are
   `pooling.py`'s contiguous-only).
3. Besides: `renorm` takes a factor a row, `unfold`'s gradient the positions along its dimension, a mean by
   `scatter_reduce` counts.

Source: `aten/src/ATen/native/cuda/` `Sorting.cpp` (`kthvalue_cuda_template`), `AdaptiveAveragePooling3d.cu`,
`AdaptiveMaxPooling3d.cu`, `MaxUnpooling.cu`, `FractionalMaxPool2d.cu`, `UnfoldBackwardKernel.cu`;
`aten/src/ATen/native/` `Normalization.cpp` (`renorm_out`), `TensorAdvancedIndexing.cpp`
(`scatter_reduce_two`); orders and sizes as recorded (H200, torch 2.11,
`tests/data/h200/operators_layouts.json.gz`).
"""

from __future__ import annotations

import math

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, dtype_bytes
from analyzer.runtimes.pytorch.scratch.layout import (
    accumulator_dtype,
    bytes_of,
)
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, reduce
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule

_INDEX_BYTES = 8
_WITH_BATCH = 5  # dimensions of a batch of volumes


@rule(
    "aten::kthvalue",
    "aten::median.dim",
    "aten::nanmedian.dim",
    "aten::fractional_max_pool2d_backward",
    name="copied-first",
)
def copied_first(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A first argument that is not contiguous is copied before the results."""
    script.copies(operator.tensor("grad_output", "self"))
    script.outputs()


@rule("aten::_adaptive_avg_pool3d", name="adaptive-average-3d")
def adaptive_average_3d(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A batch that is not contiguous is copied before the result; one volume is read as it lies."""
    source = operator.tensor("self")
    if source is not None and len(source.shape) == _WITH_BATCH:
        script.copies(source)
    script.outputs()


@rule("aten::adaptive_max_pool3d", name="adaptive-max-3d")
def adaptive_max_3d(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A batch that is not contiguous is copied after the results; one volume is read as it lies."""
    source = operator.tensor("self")
    script.outputs()
    if source is not None and len(source.shape) == _WITH_BATCH:
        script.copies(source)


@rule("aten::max_unpool2d", "aten::max_unpool3d", name="unpooling")
def unpooling(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Input and indices are copied before the result where they are not contiguous."""
    script.copies(*(operator.tensor(name) for name in ("self", "indices")))
    script.outputs()


@rule("aten::renorm", "aten::renorm_")
def renorm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The norm of every row, with the staging memory of its reduction, and the factor a row is multiplied by,
    which overwrites the norm where it has its type."""
    source = present(operator, "self")
    script.outputs()
    if not source.shape:
        return
    dim = operator.integer("dim") % len(source.shape)
    norm = {"complex64": "float32", "complex128": "float64"}.get(
        source.dtype, accumulator_dtype(source.dtype)
    )
    script.temporary(source.shape[dim] * dtype_bytes(norm))
    others = frozenset(range(len(source.shape))) - {dim}
    reduce(script, device, source, others, (norm,), kernel=ReductionKernel(dtype_bytes(norm)), keepdim=True)
    if norm != source.dtype:
        script.temporary(source.shape[dim] * dtype_bytes(source.dtype))


@rule("aten::unfold_backward", name="unfold-grad")
def unfold_gradient(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The positions in the result along the dimension that was unfolded, up to the end of the last piece;
    pieces that do not overlap are copied to their places.

    Source: `native/UnfoldBackward.h` (`_make_unfold_backward_iter_over_grad_in`).
    """
    script.outputs()
    result = present(operator, 0)
    if not result.shape:
        return
    step, size = operator.integer("step", default=1), operator.integer("size", default=1)
    pieces = operator.tensor("grad_in")
    if step < size and pieces is not None:
        dimension = operator.integer("dim") % len(result.shape)
        last = (pieces.shape[dimension] - 1) * step + size
        script.temporary(min(result.shape[dimension], last) * _INDEX_BYTES)


@rule("aten::scatter_reduce", "aten::scatter_reduce_", name="scatter-mean")
def scatter_mean(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A mean: ones of the source's size are counted where they go, in a tensor of the result's size, and of
    none a mask is made. Any other reduction takes nothing."""
    script.outputs()
    source, values = present(operator, "self"), present(operator, "src")
    if operator.argument("reduce") != "mean":
        return
    script.temporaries(math.prod(values.shape) * dtype_bytes(values.dtype), bytes_of(source))
    script.temporary(source.element_count)
