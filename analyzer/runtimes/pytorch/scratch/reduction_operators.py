"""Operators that reduce: sums, means, norms, moments, extremes, logic, and what is made of them.

Each names its accumulator, and the widths of its loads where they differ from `reduction.py`'s default; the
rest follows from shape and strides.

Source: `aten/src/ATen/native/cuda/ReduceSumProdKernel.cu`, `ReduceMomentKernel.cu`, `ReduceNormKernel.cu`,
`ReduceLogicKernel.cu`, `Reduce{Max,Min}ValuesKernel.cu`, `ReduceArg{Max,Min}ReductionKernel.cu`,
`ReduceAMinMaxKernel.cu`; input conversion from `make_reduction_from_out_ty` of `ReduceOpsUtils.h`;
`SummaryOps.cu` for `histc`; `native/Normalization.cpp` (`renorm_out`). Of lists of tensors:
`ForeachReduceOp.cu`, `MultiTensorApply.cuh` (`kChunkSize`); every other multi-tensor kernel takes addresses
by value and nothing besides (`inert.py`).

Not modelled: lists of mixed types, layouts or devices, whose tensors are reduced one by one.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, contiguous_strides, dtype_bytes
from analyzer.graph.model import tensors_in
from analyzer.runtimes.pytorch.scratch.layout import (
    accumulator_bytes,
    accumulator_dtype,
    bytes_of,
    preserved_strides,
)
from analyzer.runtimes.pytorch.scratch.reduction import (
    FLOAT_16,
    ReductionKernel,
    converted,
    made_contiguous,
    reduce,
    reduced_dims,
)
from analyzer.runtimes.pytorch.scratch.script import Script, present, rule

_CHUNK_ELEMENTS = 65536


def _staged(
    operator: Operator,
    device: DeviceProfile,
    script: Script,
    kernel: ReductionKernel,
    *,
    source: TensorMeta | None = None,
    dtypes: tuple[str, ...] | None = None,
    keepdim: bool | None = None,
    in_result: bool = False,
) -> None:
    """Allocate for a reduction along the call's dimensions. source: what is read, else the first argument;
    dtypes: of what is found, else the results'; keepdim: else as the call says; in_result: the results are
    added up in place."""
    source = source or operator.inputs[0]
    output_types = tuple(output.dtype for output in operator.outputs if output is not None)
    reduce(
        script,
        device,
        source,
        reduced_dims(source, operator.integers("dim")),
        dtypes or output_types,
        kernel=kernel,
        keepdim=bool(operator.integer("keepdim")) if keepdim is None else keepdim,
        accumulates_in_result=in_result,
    )


def _sum_like(operator: Operator, device: DeviceProfile, script: Script, *, real: bool = False) -> None:
    """sum, prod, mean, norm: accumulate in `accumulator_dtype`, of complex numbers in the result's type where
    that is `real`; integers are converted to the result's type first."""
    source, result = operator.inputs[0], present(operator, 0)
    script.outputs()
    computes_in = source.dtype
    if not (source.dtype in FLOAT_16 and result.dtype == "float32"):
        computes_in = result.dtype if not source.dtype.startswith("complex") else source.dtype
    copy, _ = converted(script, source, computes_in)
    kernel = ReductionKernel(accumulator_bytes(result.dtype if real else copy.dtype))
    _staged(operator, device, script, kernel, source=copy, dtypes=(result.dtype,), in_result=True)


@rule("aten::sum", "aten::sum.dim_IntList", "aten::nansum", "aten::mean", "aten::mean.dim")
def sum_and_mean(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result, a copy of integers and bools in the result's type, and the staging memory of the
    reduction."""
    _sum_like(operator, device, script)


@rule("aten::prod", "aten::prod.dim_int")
def product(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result, a copy of integers and bools in the result's type, and the staging memory of the
    reduction."""
    _sum_like(operator, device, script)


@rule(
    "aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", "aten::norm.Scalar", "aten::linalg__powsum"
)
def norm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result, a copy where it is of another type, and the staging memory of the reduction; magnitudes of
    complex numbers are summed up as real ones."""
    _sum_like(operator, device, script, real=operator.inputs[0].dtype.startswith("complex"))


@rule("aten::linalg_vector_norm")
def vector_norm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """As any norm; of single elements it is their magnitude (`linalg_vector_norm_out`, LinearAlgebra.cpp),
    but of a scalar along a dimension, which has no size there."""
    source, dims = operator.inputs[0], operator.integers("dim")
    alone = all(source.shape[dim] == 1 for dim in reduced_dims(source, dims))
    alone = alone and not (dims and not source.shape)
    if alone and operator.argument("ord", default=2) != 0:
        magnitude(operator, device, script)
    else:
        norm(operator, device, script)


@rule("aten::var", "aten::std", "aten::var_mean", "aten::std_mean")
def moments(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Variance, deviation and their pairs with the mean: the results, then the staging memory of a reduction
    whose accumulator is a running (mean, squares, int32 count, float count)."""
    present(operator, 0)
    script.outputs()
    accumulator = 32 if operator.inputs[0].dtype == "float64" else 16
    _staged(operator, device, script, ReductionKernel(accumulator))


@rule("aten::all", "aten::any", "aten::_is_all_true", "aten::_is_any_true", name="all-any")
def logic(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The results are bool, but the staging memory of the reduction is of the input's type
    (`func_wrapper<bool>`, ReduceLogicKernel.cu).
    """
    source, result = operator.inputs[0], operator.outputs[0]
    script.outputs()
    # One element is converted and copied (`ReduceOps.cpp`).
    if source.element_count == 1 and source.dtype != "bool":
        script.release(script.temporary(1))
    dtypes = (result.dtype if result is not None else "bool",)
    kernel = ReductionKernel(dtype_bytes(source.dtype))
    _staged(operator, device, script, kernel, dtypes=dtypes, in_result=True)


@rule("aten::amax", "aten::amin", "aten::max", "aten::min")
def extremes(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Largest and smallest values: the results, then the staging memory of a reduction that accumulates in
    the type itself, or, where positions are wanted too, in pairs of value and 64-bit index (16 bytes).
    """
    if operator.name.endswith((".dim", ".dim_max", ".dim_min")):
        _with_index(operator, device, script)
        return
    if operator.name.endswith(".other"):
        return  # pointwise
    source = operator.inputs[0]
    script.outputs()
    if operator.name in ("aten::max", "aten::min"):  # of everything: `ReduceAllOps.cpp` makes it contiguous
        source = made_contiguous(script, source)
    kernel = ReductionKernel(dtype_bytes(source.dtype))
    _staged(operator, device, script, kernel, source=source, dtypes=(source.dtype,), in_result=True)


def _with_index(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A (value, 64-bit index) pair: 16 bytes for every type, since the index is aligned to 8."""
    script.outputs()
    _staged(operator, device, script, ReductionKernel(16))


@rule("aten::argmax", "aten::argmin", name="argmax")
def arguments_of_extremes(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Positions of extremes: staging memory of (value, index) pairs of 16 bytes. Without `dim` a
    non-contiguous input is flattened, which copies it (`argmax_argmin_impl`, ReduceOps.cpp).
    """
    source = operator.inputs[0]
    if operator.argument("dim") is not None:
        _with_index(operator, device, script)
        return
    script.outputs()
    flat = replace(source, shape=(source.element_count,), stride=(1,))
    if contiguous_strides(source.shape) != source.stride:
        script.temporary(bytes_of(source))
    kernel = ReductionKernel(16)
    _staged(operator, device, script, kernel, source=flat, dtypes=("int64",), keepdim=False)


@rule("aten::aminmax", "aten::_aminmax", name="aminmax")
def both_extremes(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Smallest and largest value in one pass: staging memory of pairs of values (ReduceAMinMaxKernel.cu). Of
    all values at once: what is not contiguous is copied.
    """
    source = operator.inputs[0]
    script.outputs()
    if operator.argument("dim") is None:
        source = made_contiguous(script, source)
    kernel = ReductionKernel(2 * dtype_bytes(source.dtype))
    _staged(operator, device, script, kernel, source=source, dtypes=(source.dtype,) * 2)


@rule("aten::hash_tensor")
def hash_of_tensor(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result, and the staging memory of a reduction of 64-bit words.

    Source: `aten/src/ATen/native/cuda/ReduceSumProdKernel.cu` (`xor_sum_kernel_cuda`).
    """
    script.outputs()
    kernel = ReductionKernel(8)
    _staged(operator, device, script, kernel, dtypes=("uint64",), keepdim=False, in_result=True)


@rule("aten::count_nonzero.dim_IntList")
def count_nonzero(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A mask of one byte an element before the result, converted whole to int64 and summed.

    Source: `aten/src/ATen/native/TensorAdvancedIndexing.cpp` (`count_nonzero_cuda`).
    """
    source = operator.inputs[0]
    mask = replace(source, dtype="bool", offset=0, stride=preserved_strides(source))
    script.temporary(mask.element_count)
    script.outputs()
    copy, _ = converted(script, mask, "int64")
    dims = reduced_dims(copy, operator.integers("dim"))
    reduce(script, device, copy, dims, ("int64",), kernel=ReductionKernel(8))


@rule("aten::histc")
def histogram(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Where the limits are equal (as they are unless given) the extremes are found first, each with a
    reduction's staging memory.
    """
    source = operator.inputs[0]
    script.outputs()
    if operator.argument("min", default=0) != operator.argument("max", default=0) or not source.element_count:
        return
    for _ in range(2):
        extreme = script.temporary(dtype_bytes(source.dtype))
        kernel = ReductionKernel(dtype_bytes(source.dtype))
        reduce(script, device, source, reduced_dims(source, None), (source.dtype,), kernel=kernel)
        script.release(extreme)


@rule("aten::abs", "aten::abs_")
def magnitude(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Pointwise; a complex argument's magnitude is computed as complex, a temporary of the input's size, and
    its real part copied (UnaryOps.cpp).
    """
    script.outputs()
    _as_complex(operator, script)


@rule("aten::angle")
def angle(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """As a magnitude, but the result is allocated last (`unary_op_impl_with_complex_to_float_out`,
    UnaryOps.cpp)."""
    _as_complex(operator, script)
    script.outputs()


def _as_complex(operator: Operator, script: Script) -> None:
    source = operator.inputs[0]
    if source.dtype.startswith("complex"):
        script.temporary(bytes_of(source))


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
