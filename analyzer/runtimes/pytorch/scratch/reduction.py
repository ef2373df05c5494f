"""Reductions: when one result needs several thread blocks, they meet in a staging buffer in global memory.

1. A thread block is as wide as the fastest dimension of the input allows (at most 512 threads); loads are
   vectorised along the results where the reduced dimension is not the fast one. Where it is, vectorised loads
   change nothing here: they narrow a block only below 2,048 inputs a result, and staging begins at 8,192.
2. A reduced dimension is spread over a warp's lanes if it is the fast one, over a block's warps if that
   leaves every thread enough values, and over `blocks_per_result` thread blocks if a thread would still add
   up 256 values or more and the results alone do not fill the GPU: this depends on its SM count.

Source: `ReduceConfig`, `setReduceConfig` and `gpu_reduce_kernel` of `aten/src/ATen/native/cuda/Reduce.cuh`
(unchanged between torch 2.11 and 2.13), `make_reduction_from_out_ty` of `ReduceOpsUtils.h`.

Not modelled: reductions on several streams (each call allocates on the current one).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analyzer.devices import DeviceProfile
from analyzer.graph import TensorMeta, dtype_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.layout import (
    accumulator_bytes,
    bytes_of,
    contiguous_like,
    preserved_strides,
)
from analyzer.runtimes.pytorch.scratch.script import Script, part
from analyzer.runtimes.pytorch.scratch.tensor_iterator import IteratedLoop, reduction_loop

_WARP = 32
_SEMAPHORE_BYTES = 4
_VALUES_PER_THREAD_LEAST, _VALUES_PER_THREAD_MOST = 16, 256
FLOAT_16 = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True)
class ReductionKernel:
    """A reduction kernel: bytes of its accumulator."""

    accumulator_bytes: int


@dataclass(frozen=True, slots=True)
class Staging:
    """Global memory one launch takes, in bytes; both 0 when every result fits one thread block."""

    buffer_bytes: int
    semaphore_bytes: int


def _ceil_div(value: int, divisor: int) -> int:
    return -(-value // divisor)


def power_of_two_below(value: int) -> int:
    """Return the largest power of two that is not above the value; 1 for none."""
    return 1 << (value.bit_length() - 1) if value > 0 else 1


def staging(
    loop: IteratedLoop, element_bytes: int, offset: int, kernel: ReductionKernel, device: DeviceProfile
) -> Staging:
    """Return the bytes of the staging buffer and its semaphores for one launch: both 0 when every result fits
    one thread block, or when blocks and results fill the GPU. `offset`: the input's storage offset in
    elements.
    """
    outputs = loop.output_element_count
    inputs_per_output = loop.element_count // outputs
    reduced = loop.reduced_dim_count
    source = loop.strides[-1]

    vector = 1
    if loop.shape:
        along_input = reduced == len(loop.shape) or source[0] < source[reduced]
        width, height = (inputs_per_output, outputs) if along_input else (outputs, inputs_per_output)
        fastest = source[0] if along_input else source[reduced]
        if fastest == element_bytes and not along_input:
            vector = _output_vector(loop, element_bytes, offset)
            width //= vector
    else:
        along_input, width, height = True, 1, 1

    most_threads = (256 if element_bytes == 16 else 512) // vector
    width_power = power_of_two_below(width) if width < most_threads else most_threads
    height_power = power_of_two_below(height) if height < most_threads else most_threads
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


def _output_vector(loop: IteratedLoop, element_bytes: int, offset: int) -> int:
    """Return how many neighbouring results one load serves: 4, 2 or 1, by alignment, extent and strides."""
    fastest = loop.reduced_dim_count
    vector = 4
    others = (stride // element_bytes for dim, stride in enumerate(loop.strides[-1]) if dim != fastest)
    for value in (offset, loop.shape[fastest], *others):
        while value % vector:
            vector //= 2
    return vector


@part("reduction-staging")
def reduce(
    script: Script,
    device: DeviceProfile,
    source: TensorMeta,
    reduced: frozenset[int],
    result_dtypes: tuple[str, ...],
    *,
    kernel: ReductionKernel,
    keepdim: bool = False,
    accumulates_in_result: bool = True,
) -> None:
    """One result that many thread blocks add to is met in a staging buffer in global memory: accumulator size
    x results x blocks a result, then 4 bytes of semaphore a column of blocks; both are given back before the
    reduction returns. A loop too long for 32-bit offsets runs in parts, and a narrow result then accumulates
    in a buffer over all results.
    """
    if source.element_count == 0:
        return
    loop = reduction_loop(source, reduced, result_dtypes, keepdim)
    width = dtype_bytes(source.dtype)
    parts = tuple(loop.parts())
    held = []
    narrow = dtype_bytes(result_dtypes[0]) < kernel.accumulator_bytes
    in_result = accumulates_in_result and not (source.dtype in FLOAT_16 and result_dtypes[0] == source.dtype)
    if len(parts) > 1 and not in_result and narrow:
        held.append(script.temporary(loop.output_element_count * kernel.accumulator_bytes))
    for one in parts:
        needs = staging(one, width, source.offset, kernel, device)
        buffer = script.temporary(needs.buffer_bytes)
        semaphore = script.temporary(needs.semaphore_bytes)
        script.release(semaphore, buffer)
    script.release(*held)


@part("type-conversion")
def converted(script: Script, source: TensorMeta, dtype: str) -> tuple[TensorMeta, int | None]:
    """A source of another type than the kernel computes in (integer sums, bool means) is copied whole by
    `source.to(dtype)`; dense tensors keep their strides. Returns the copy and its token, or the source itself
    and None.
    """
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


# Releases of torch that ask for the smallest and the largest value of an index or of what is counted in one
# pass (their binaries:
# `index_put_` with accumulation, `bincount`; tests/runtimes/pytorch/scratch/test_older_releases.py).
BOTH_AT_ONCE = Span(since=(2, 13))


def made_contiguous(script: Script, source: TensorMeta) -> TensorMeta:
    """Return the tensor a full reduction reads, copied if not contiguous (`ReduceAllOps.cpp`)."""
    script.copies(source)
    return contiguous_like(source)


def extreme(script: Script, device: DeviceProfile, source: TensorMeta) -> int:
    """Allocate a largest or smallest value, with a contiguous copy; return its token."""
    width = dtype_bytes(source.dtype)
    result = script.temporary(width)
    with script.function():
        read = made_contiguous(script, source)
        kernel = ReductionKernel(width)
        reduce(script, device, read, reduced_dims(read, None), (read.dtype,), kernel=kernel)
    return result


def both_extremes(script: Script, device: DeviceProfile, source: TensorMeta) -> tuple[int, int]:
    """Return the tokens of the smallest and the largest value of all, in one pass over pairs of values."""
    width = dtype_bytes(source.dtype)
    results = script.temporary(width), script.temporary(width)
    both = (source.dtype, source.dtype)
    kernel = ReductionKernel(2 * width)
    with script.function():
        source = made_contiguous(script, source)
        dims = reduced_dims(source, None)
        reduce(script, device, source, dims, both, kernel=kernel, accumulates_in_result=False)
    return results


def sum_over(
    script: Script, device: DeviceProfile, source: TensorMeta, dims: tuple[int, ...] | None = None
) -> None:
    """The staging memory of a `sum` inside another operator, for floating-point tensors."""
    kernel = ReductionKernel(accumulator_bytes(source.dtype))
    reduce(script, device, source, reduced_dims(source, dims), (source.dtype,), kernel=kernel)
