"""Reductions: when one result needs several thread blocks, they meet in a staging buffer in global memory.

1. A thread block is as wide as the fastest dimension of the input allows (at most 512 threads); loads are vectorised
   along the input when the reduced dimension is the fast one, along the results otherwise.
2. A reduced dimension is spread over a warp's lanes if it is the fast one, over a block's warps if that leaves every
   thread enough values, and over `blocks_per_result` thread blocks if a thread would still add up 256 values or more
   and the results alone do not fill the GPU: this depends on its SM count.
3. Only the last needs memory: a **buffer** of accumulator size × results × blocks per result (× the lanes and vector
   width that hold separate results), then a **semaphore** of 4 bytes per column of blocks, both until the call ends.
4. A loop too long for 32-bit offsets runs in parts, each with its own buffer; a 16-bit float result (or one its
   accumulator cannot be stored in) then needs an accumulation buffer over all of the results as well.
5. A source that must be converted first (integer sums, bool means) is copied whole, before the buffer.

Source: `ReduceConfig`, `setReduceConfig` and `gpu_reduce_kernel` of `aten/src/ATen/native/cuda/Reduce.cuh` (unchanged
between torch 2.11 and 2.13); accumulators from `ReduceSumProdKernel.cu`, `ReduceMomentKernel.cu`,
`ReduceNormKernel.cu`, `ReduceLogicKernel.cu`, `Reduce{Max,Min}ValuesKernel.cu`, `ReduceArg{Max,Min}Kernel.cu`,
`ReduceAMinMaxKernel.cu`; input conversion from `make_reduction_from_out_ty` of `ReduceOpsUtils.h`.

Not modelled: reductions on several streams (each call allocates on the current one).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.scratch.layout import (
    accumulator_bytes,
    argument,
    bytes_of,
    contiguous_strides,
    integer_at,
    integers_at,
    preserved_strides,
)
from analyzer.scratch.script import Rule, Script, rule
from analyzer.scratch.tensor_iterator import Loop, reduction_loop

_WARP = 32
_SEMAPHORE_BYTES = 4
_VALUES_PER_THREAD_LEAST, _VALUES_PER_THREAD_MOST = 16, 256
_FLOAT_16 = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class Kernel:
    """A reduction kernel: bytes of its accumulator, and how many inputs one load takes."""

    accumulator_bytes: int
    input_vector: int = 4


@dataclass(frozen=True, slots=True)
class Staging:
    """Global memory one launch takes, in bytes; both 0 when every result fits one thread block."""

    buffer_bytes: int
    semaphore_bytes: int


def _ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _power_of_two_below(value: int) -> int:
    return 1 << (value.bit_length() - 1) if value > 0 else 1


def staging(loop: Loop, element_bytes: int, offset: int, kernel: Kernel, device: DeviceProfile) -> Staging:
    """The staging memory of one launch (rules 1 to 3). `offset`: the input's storage offset in elements."""
    outputs = loop.output_element_count
    inputs_per_output = loop.element_count // outputs
    reduced = loop.reduced_dim_count
    source = loop.strides[-1]

    vector = 1
    if loop.shape:
        along_input = reduced == len(loop.shape) or source[0] < source[reduced]
        width, height = (inputs_per_output, outputs) if along_input else (outputs, inputs_per_output)
        fastest = source[0] if along_input else source[reduced]
        if fastest == element_bytes:
            if along_input and width >= 128 and reduced == 1:
                width //= kernel.input_vector
            elif not along_input:
                vector = _output_vector(loop, element_bytes, offset)
                width //= vector
    else:
        along_input, width, height = True, 1, 1

    most_threads = (256 if element_bytes == 16 else 512) // vector
    width_power = _power_of_two_below(width) if width < most_threads else most_threads
    height_power = _power_of_two_below(height) if height < most_threads else most_threads
    block_width = min(width_power, _WARP)
    block_height = min(height_power, most_threads // block_width)
    block_width = min(width_power, most_threads // block_height)

    step_input, step_output = (block_width, 1) if along_input else (1, block_width)
    values_per_thread = _ceil_div(inputs_per_output, step_input)
    across_warps = values_per_thread >= min(block_height * 16, _VALUES_PER_THREAD_MOST)
    if across_warps:
        step_input *= block_height
        values_per_thread = _ceil_div(inputs_per_output, step_input)
    else:
        step_output *= block_height

    columns = _ceil_div(outputs // vector, step_output)
    target = device.sm_count * (device.max_threads_per_sm // (block_width * block_height))
    if not across_warps or values_per_thread < _VALUES_PER_THREAD_MOST or columns > target:
        return Staging(0, 0)
    blocks_per_result = max(
        min(_ceil_div(target, columns), _ceil_div(values_per_thread, _VALUES_PER_THREAD_LEAST)),
        _ceil_div(values_per_thread, _VALUES_PER_THREAD_MOST),
    )
    if blocks_per_result <= 1:
        return Staging(0, 0)
    buffer_bytes = kernel.accumulator_bytes * outputs * blocks_per_result
    if not along_input:
        buffer_bytes *= block_width * vector
    return Staging(buffer_bytes, _SEMAPHORE_BYTES * columns)


def _output_vector(loop: Loop, element_bytes: int, offset: int) -> int:
    """How many neighbouring results one load serves: 4, 2 or 1, as alignment, extent and strides divide."""
    fastest = loop.reduced_dim_count
    vector = 4
    others = (stride // element_bytes for dim, stride in enumerate(loop.strides[-1]) if dim != fastest)
    for value in (offset, loop.shape[fastest], *others):
        while value % vector:
            vector //= 2
    return vector


def reduce(
    script: Script,
    device: DeviceProfile,
    source: TensorMeta,
    reduced: frozenset[int],
    result_dtypes: tuple[str, ...],
    *,
    kernel: Kernel,
    keepdim: bool = False,
    accumulates_in_result: bool = True,
) -> None:
    """Tell a reduction's staging memory (rules 3 and 4): taken, used and given back before this returns."""
    if source.element_count == 0:
        return
    loop = reduction_loop(source, reduced, result_dtypes, keepdim)
    width = dtype_bytes(source.dtype)
    parts = tuple(loop.parts())
    held = []
    narrow = dtype_bytes(result_dtypes[0]) < kernel.accumulator_bytes
    in_result = accumulates_in_result and not (source.dtype in _FLOAT_16 and result_dtypes[0] == source.dtype)
    if len(parts) > 1 and not in_result and narrow:
        held.append(script.temporary(loop.output_element_count * kernel.accumulator_bytes))
    for part in parts:
        needs = staging(part, width, source.offset, kernel, device)
        buffer = script.temporary(needs.buffer_bytes)
        semaphore = script.temporary(needs.semaphore_bytes)
        script.release(semaphore)
        script.release(buffer)
    for token in held:
        script.release(token)


def converted(script: Script, source: TensorMeta, dtype: str) -> tuple[TensorMeta, int | None]:
    """`source.to(dtype)`: the copy (dense tensors keep their strides) and its token, or itself and None."""
    if source.dtype == dtype:
        return source, None
    copy = replace(source, dtype=dtype, offset=0, stride=preserved_strides(source))
    return copy, script.temporary(bytes_of(copy))


def reduced_dims(source: TensorMeta, dims: tuple[int, ...] | None) -> frozenset[int]:
    """Dimensions as non-negative numbers; none or no list means all of them."""
    rank = len(source.shape)
    if not dims:
        return frozenset(range(rank))
    return frozenset(dim % rank if rank else 0 for dim in dims) & frozenset(range(rank))


def _sum_like(vectorises_halves: bool, dims_at: int) -> Rule:
    """sum, prod, mean, norm: accumulate in `accumulator_dtype`; integers are converted to the result's type first."""

    def tell(operator: Operator, device: DeviceProfile, script: Script) -> None:
        source, result = operator.inputs[0], operator.outputs[0]
        if result is None:
            return
        script.outputs()
        dims = integers_at(operator, dims_at, "dim") if dims_at else None
        keepdim = bool(integer_at(operator, dims_at + 1, "keepdim", 0)) if dims_at else False
        computes_in = source.dtype
        if not (source.dtype in _FLOAT_16 and result.dtype == "float32"):
            computes_in = result.dtype if not source.dtype.startswith("complex") else source.dtype
        copy, _ = converted(script, source, computes_in)
        vector = 8 if vectorises_halves and dtype_bytes(copy.dtype) == 2 else 4
        kernel = Kernel(accumulator_bytes(copy.dtype), vector)
        reduce(
            script, device, copy, reduced_dims(source, dims), (result.dtype,), kernel=kernel, keepdim=keepdim
        )

    return tell


# Half precision loads 8 inputs at a time in sum and mean alone (`is_16_bits`, ReduceSumProdKernel.cu, ReduceMomentKernel.cu).
rule("aten::sum", "aten::sum.dim_IntList", "aten::nansum", "aten::mean", "aten::mean.dim")(_sum_like(True, 1))
rule("aten::prod", "aten::prod.dim_int")(_sum_like(False, 1))
rule("aten::linalg_vector_norm")(_sum_like(False, 2))
rule("aten::norm.ScalarOpt_dim", "aten::norm.ScalarOpt_dim_dtype", "aten::norm.Scalar")(_sum_like(False, 2))


def _welford(
    operator: Operator, device: DeviceProfile, script: Script, dims: tuple[int, ...] | None, keepdim: bool
) -> None:
    """var, std and their pairs with the mean: a running (mean, squares, int32 count, float count)."""
    source, result = operator.inputs[0], operator.outputs[0]
    if result is None:
        return
    script.outputs()
    accumulator = 32 if source.dtype == "float64" else 16
    dtypes = tuple(output.dtype for output in operator.outputs if output is not None)
    reduce(
        script,
        device,
        source,
        reduced_dims(source, dims),
        dtypes,
        kernel=Kernel(accumulator, 2),
        keepdim=keepdim,
        accumulates_in_result=False,
    )


@rule("aten::var", "aten::std", "aten::var_mean", "aten::std_mean")
def moments(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """`.dim(self, dim, unbiased, keepdim)`, `.correction(self, dim, *, correction, keepdim)`, or over everything.

    Loads are vectorised by 2 (`gpu_reduce_kernel<scalar_t, out_t, 2>`, ReduceMomentKernel.cu).
    """
    second = argument(operator, 1, "dim")
    dims = second if not isinstance(second, bool) else None
    keepdim = (
        integer_at(operator, 3, "keepdim", 0)
        if operator.name.endswith(".dim")
        else operator.keywords.get("keepdim")
    )
    found = tuple(dim for dim in dims if isinstance(dim, int)) if isinstance(dims, tuple) else None
    if isinstance(dims, int):
        found = (dims,)
    _welford(operator, device, script, found, bool(keepdim))


@rule("aten::all", "aten::any")
def logic(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Results are bool, but the accumulator is of the input's type (`func_wrapper<bool>`, ReduceLogicKernel.cu)."""
    source = operator.inputs[0]
    dims = integers_at(operator, 1, "dim")
    script.outputs()
    keepdim = bool(integer_at(operator, 2, "keepdim", 0))
    result = operator.outputs[0]
    dtype = result.dtype if result is not None else "bool"
    reduce(
        script,
        device,
        source,
        reduced_dims(source, dims),
        (dtype,),
        kernel=Kernel(dtype_bytes(source.dtype)),
        keepdim=keepdim,
    )


@rule("aten::amax", "aten::amin", "aten::max", "aten::min")
def extremes(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Values alone, over everything or a list of dimensions: accumulates in the type itself."""
    if operator.name.endswith((".dim", ".dim_max", ".dim_min")):
        _with_index(operator, device, script, 1)
        return
    if operator.name.endswith(".other"):
        return  # pointwise
    source = operator.inputs[0]
    script.outputs()
    dims = integers_at(operator, 1, "dim")
    keepdim = bool(integer_at(operator, 2, "keepdim", 0))
    kernel = Kernel(dtype_bytes(source.dtype))
    reduce(
        script, device, source, reduced_dims(source, dims), (source.dtype,), kernel=kernel, keepdim=keepdim
    )


def _with_index(operator: Operator, device: DeviceProfile, script: Script, dims_at: int) -> None:
    """A (value, 64-bit index) pair: 16 bytes for every type, since the index is aligned to 8."""
    source = operator.inputs[0]
    script.outputs()
    dims = integers_at(operator, dims_at, "dim")
    keepdim = bool(integer_at(operator, dims_at + 1, "keepdim", 0))
    dtypes = tuple(output.dtype for output in operator.outputs if output is not None)
    reduce(
        script,
        device,
        source,
        reduced_dims(source, dims),
        dtypes,
        kernel=Kernel(16),
        keepdim=keepdim,
        accumulates_in_result=False,
    )


@rule("aten::argmax", "aten::argmin")
def arguments_of_extremes(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Without `dim` a non-contiguous input is flattened, which copies it (`argmax_argmin_impl`, ReduceOps.cpp)."""
    source = operator.inputs[0]
    if argument(operator, 1, "dim") is not None:
        _with_index(operator, device, script, 1)
        return
    script.outputs()
    flat = replace(source, shape=(source.element_count,), stride=(1,))
    if contiguous_strides(source.shape) != source.stride:
        script.temporary(bytes_of(source))
    reduce(script, device, flat, frozenset({0}), ("int64",), kernel=Kernel(16), accumulates_in_result=False)


@rule("aten::aminmax")
def both_extremes(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A pair of values (ReduceAMinMaxKernel.cu)."""
    source = operator.inputs[0]
    script.outputs()
    dim = operator.keywords.get("dim")
    dims = (dim,) if isinstance(dim, int) else None
    kernel = Kernel(2 * dtype_bytes(source.dtype))
    keepdim = bool(operator.keywords.get("keepdim"))
    reduce(
        script,
        device,
        source,
        reduced_dims(source, dims),
        (source.dtype,) * 2,
        kernel=kernel,
        keepdim=keepdim,
        accumulates_in_result=False,
    )


@rule("aten::logsumexp")
def log_sum_exp(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """(self, dim, keepdim): the maxima and which are infinite; then the exponentials, whole, and their sum."""
    source, result = operator.inputs[0], operator.outputs[0]
    script.outputs()
    if result is None:
        return
    dims = reduced_dims(source, integers_at(operator, 1, "dim"))
    maxima = script.temporary(bytes_of(result))
    reduce(
        script, device, source, dims, (source.dtype,), kernel=Kernel(dtype_bytes(source.dtype)), keepdim=True
    )
    script.release(script.temporary(result.element_count))
    script.release(maxima)
    exponentials = script.temporary(bytes_of(source))
    script.temporary(bytes_of(result))
    sum_over(script, device, replace(source, stride=preserved_strides(source), offset=0), tuple(dims))
    script.release(exponentials)


@rule("aten::count_nonzero")
def count_nonzero(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """(self): a mask, summed as any bool tensor is (rule 5)."""
    source = operator.inputs[0]
    mask = replace(source, dtype="bool", offset=0, stride=preserved_strides(source))
    script.temporary(mask.element_count)
    script.outputs()
    copy, _ = converted(script, mask, "int64")
    reduce(script, device, copy, reduced_dims(copy, None), ("int64",), kernel=Kernel(8))


@rule("aten::histc")
def histogram(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """(self, bins, min, max): without limits, the extremes are found first."""
    source = operator.inputs[0]
    script.outputs()
    for _ in range(2):
        extreme = script.temporary(dtype_bytes(source.dtype))
        kernel = Kernel(dtype_bytes(source.dtype))
        reduce(script, device, source, reduced_dims(source, None), (source.dtype,), kernel=kernel)
        script.release(extreme)


@rule("aten::abs", "aten::angle")
def magnitude(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Pointwise; a complex argument's magnitude is computed as complex, then its real part copied (UnaryOps.cpp)."""
    source = operator.inputs[0]
    script.outputs()
    if source.dtype.startswith("complex"):
        script.temporary(bytes_of(source))


def sum_over(
    script: Script, device: DeviceProfile, source: TensorMeta, dims: tuple[int, ...] | None = None
) -> None:
    """The staging memory of a `sum` inside another operator, for floating-point tensors."""
    vector = 8 if dtype_bytes(source.dtype) == 2 else 4
    kernel = Kernel(accumulator_bytes(source.dtype), vector)
    reduce(script, device, source, reduced_dims(source, dims), (source.dtype,), kernel=kernel)
