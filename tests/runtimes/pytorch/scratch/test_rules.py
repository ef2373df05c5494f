"""Small cases worked by hand, and properties."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from analyzer.devices import load
from analyzer.graph import Operator, TensorMeta, contiguous_strides
from analyzer.runtimes.pytorch.scratch import Give, Output, Take, kernel_allocations
from analyzer.runtimes.pytorch.scratch.cub import aliased_bytes, radix_sort_bytes, scan_bytes
from analyzer.runtimes.pytorch.scratch.layout import (
    is_channels_last,
    is_contiguous,
    is_dense,
    suggests_channels_last,
)
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, staging
from analyzer.runtimes.pytorch.scratch.tensor_iterator import (
    IteratedLoop,
    pointwise_strides,
    reduction_loop,
)
from tests.schemas import called

H200 = load("h200")


def tensor(*shape: int, stride: tuple[int, ...] = (), dtype: str = "float32", storage: int = 0) -> TensorMeta:
    return TensorMeta(storage, shape, stride or contiguous_strides(shape), dtype)


def takes(operator: Operator) -> list[int]:
    return [
        step.nbytes
        for step in kernel_allocations(operator, H200).steps
        if isinstance(step, Take) and not step.workspace
    ]


def workspaces(operator: Operator, device=H200) -> list[tuple[str, int]]:  # type: ignore[no-untyped-def]
    return [
        (step.workspace, step.nbytes)
        for step in kernel_allocations(operator, device).steps
        if isinstance(step, Take) and step.workspace
    ]


def test_bias_gradient_by_hand() -> None:
    """Sum of 2048 x 768 over rows: 4 results a load, so blocks of 128 threads, 32 lanes x 4 warps, 6 columns.

    A thread would add 512 values: over 256, so rows are split. 132 x 16 blocks fit; 352 a column; the cap of 16 values
    a thread allows 32. Buffer: 4 B x 768 x 32 x 32 lanes x 4; semaphores: 4 B x 6 columns.
    """
    operator = called(0, "aten::sum.dim_IntList", (tensor(2048, 768), (0,), True), (tensor(1, 768),))
    assert takes(operator) == [4 * 768 * 32 * 32 * 4, 4 * 6]


def test_small_reduction_needs_nothing() -> None:
    operator = called(0, "aten::sum.dim_IntList", (tensor(8, 1000), (1,)), (tensor(8),))
    assert takes(operator) == []


def test_integer_sum_converts_first() -> None:
    operator = called(0, "aten::sum", (tensor(1000, dtype="bool"),), (tensor(dtype="int64"),))
    assert takes(operator) == [8000]


def test_layer_norm_copies_what_is_not_contiguous() -> None:
    source = tensor(4, 8, 16, stride=(16, 64, 1))
    operator = called(
        0,
        "aten::native_layer_norm",
        (source, (16,), tensor(16), tensor(16), 1e-5),
        (tensor(4, 8, 16), tensor(4, 8, 1), tensor(4, 8, 1)),
    )
    steps = kernel_allocations(operator, H200).steps
    assert isinstance(steps[0], Take)
    assert steps[0].nbytes == 4 * 8 * 16 * 4
    assert [type(step) for step in steps[1:]] == [Output, Output, Output, Give]


def test_cublaslt_takes_its_workspace_where_the_bias_is_fused() -> None:
    bias = called(
        0, "aten::addmm", (tensor(10), tensor(100, 784), tensor(784, 10, stride=(1, 784))), (tensor(100, 10),)
    )
    assert workspaces(bias) == [("cublas", 32 << 20), ("cublaslt", 1 << 20)]
    matrix = dataclasses.replace(bias, arguments=(tensor(100, 10), *bias.arguments[1:]))
    assert workspaces(matrix) == [("cublas", 32 << 20)]
    plain = called(0, "aten::mm", (tensor(100, 784), tensor(784, 10)), (tensor(100, 10),))
    assert workspaces(plain) == [("cublas", 32 << 20)]
    assert workspaces(plain, dataclasses.replace(H200, cublas_workspace_bytes=0)) == []
    assert workspaces(bias, dataclasses.replace(H200, cublas_workspace_bytes=0)) == []
    small = dataclasses.replace(H200, cublas_workspace_bytes=131072)
    assert workspaces(bias, small) == [("cublas", 131072), ("cublaslt", 131072)]


def test_operand_blas_cannot_read_is_copied() -> None:
    column = tensor(50, 64, stride=(128, 2))
    operator = called(0, "aten::mm", (column, tensor(64, 30)), (tensor(50, 30),))
    assert takes(operator) == [50 * 64 * 4]
    slice_ = tensor(50, 64, stride=(128, 1))
    assert takes(dataclasses.replace(operator, arguments=(slice_, tensor(64, 30)))) == []


def test_loss_keeps_its_elements_in_the_result() -> None:
    operator = called(0, "aten::mse_loss", (tensor(300, 1000), tensor(300, 1000)), (tensor(),))
    outputs = [step for step in kernel_allocations(operator, H200).steps if isinstance(step, Output)]
    assert outputs == [Output(0, 1_200_000)]


def test_of_an_unknown_operator_only_the_results_are_counted() -> None:
    strided = tensor(10, 20, stride=(1, 10))
    allocations = kernel_allocations(called(0, "mylib::thing", (strided,), (tensor(10, 20),)), H200)
    assert not allocations.known
    assert allocations.steps == (Output(0),)


def test_the_default_overload_is_no_part_of_a_name() -> None:
    arguments = (tensor(), tensor(4, 8), tensor(4, dtype="int64"), None, 1, -100, tensor())
    plain = called(0, "aten::nll_loss_backward", arguments, (tensor(4, 8),))
    named = dataclasses.replace(plain, name="aten::nll_loss_backward.default")
    assert kernel_allocations(plain, H200).steps == kernel_allocations(named, H200).steps == (Output(0),)


def test_cub_arithmetic() -> None:
    assert aliased_bytes(1, 257) == 256 + 512 + 255
    assert radix_sort_bytes(H200, 2000) == 1
    assert radix_sort_bytes(H200, 2401, 8) == 3583
    assert radix_sort_bytes(H200, 4096) == 83455
    assert scan_bytes(H200, 4096) == 1279


def test_loop_of_a_channel_reduction() -> None:
    """(N, C, H, W) over all but C: height and width merge, batch stays apart, C comes last."""
    loop = reduction_loop(tensor(2, 3, 4, 5), frozenset({0, 2, 3}), ("float32",))
    assert loop.shape == (20, 2, 3)
    assert loop.strides == ((0, 0, 4), (4, 240, 80))
    assert loop.reduced_dim_count == 2
    assert loop.output_element_count == 3


def test_loop_too_long_for_32_bits_is_halved() -> None:
    """4 GiB: rows are 2^31 bytes apart, further than 32 bits reach; one row's last element, at 2^31 - 4, is not."""
    loop = reduction_loop(tensor(2, 1 << 29), frozenset({1}), ("float32",))
    parts = list(loop.parts())
    assert [part.shape for part in parts] == [(1 << 29, 1)] * 2
    assert sum(part.element_count for part in parts) == loop.element_count
    assert all(part.fits_32bit() for part in parts)


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=5).map(tuple)


@st.composite
def dense_tensors(draw: st.DrawFn) -> TensorMeta:
    shape = draw(shapes)
    stride = [0] * len(shape)
    step = 1
    for dim in draw(st.permutations(range(len(shape)))):
        stride[dim] = step
        step *= shape[dim]
    return TensorMeta(0, shape, tuple(stride), "float32")


@given(dense_tensors())
def test_pointwise_results_lie_as_a_dense_input_does(source: TensorMeta) -> None:
    shape, stride = pointwise_strides((source,))
    assert shape == source.shape
    assert is_dense(source)
    assert is_dense(dataclasses.replace(source, stride=stride))
    assert all(a == b for a, b, size in zip(stride, source.stride, shape, strict=True) if size > 1)


@given(dense_tensors(), st.data())
def test_reduction_loops_keep_every_element(source: TensorMeta, data: st.DataObject) -> None:
    dims = data.draw(st.sets(st.integers(0, len(source.shape) - 1)))
    loop = reduction_loop(source, frozenset(dims), ("float32",))
    assert loop.element_count == source.element_count
    kept = 1
    for dim, size in enumerate(source.shape):
        kept *= 1 if dim in dims else size
    assert loop.output_element_count == kept
    assert len(loop.shape) <= len(source.shape)


@given(
    st.integers(1, 1 << 20),
    st.integers(1, 4096),
    st.sampled_from([4, 8, 16]),
    st.booleans(),
    st.integers(1, 256),
)
def test_staging_holds_every_result_once_a_block(
    rows: int, columns: int, width: int, along: bool, sms: int
) -> None:
    """A whole number of blocks a result, at most one for every 16 inputs, each with at most 512 partial results."""
    device = dataclasses.replace(H200, sm_count=sms)
    strides = ((0, 4), (4, 4 * rows)) if along else ((0, 4), (4 * columns, 4))
    needs = staging(IteratedLoop((rows, columns), strides, 1), 4, 0, ReductionKernel(width), device)
    assert needs.buffer_bytes % (width * columns) == 0
    assert needs.buffer_bytes // (width * columns) <= -(-rows // 16) * 512
    assert (needs.buffer_bytes == 0) == (needs.semaphore_bytes == 0)


def test_channels_last_is_seen() -> None:
    image = tensor(2, 3, 4, 5, stride=(60, 1, 15, 3))
    assert is_channels_last(image)
    assert suggests_channels_last(image)
    assert not is_contiguous(image)
    assert not suggests_channels_last(tensor(2, 3, 4, 5))
