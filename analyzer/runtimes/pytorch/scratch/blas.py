"""Matrix products: cuBLAS's and cuBLASLt's workspaces, and copies of operands BLAS cannot read.

Source: `aten/src/ATen/native/cuda/Blas.cpp` (`addmm_out_cuda_impl`, `prepare_matrix_for_cublas`,
`prepare_batch_matrix_for_cublas`), `aten/src/ATen/cuda/CublasHandlePool.cpp`,
`aten/src/ATen/native/BatchLinearAlgebra.cpp` (`linalg_solve_triangular_out`),
`cuda/linalg/BatchLinearAlgebra.cpp` (`triangular_solve_kernel`); order and sizes as recorded (H200, torch
2.11), other releases as their binaries ask (`tests/data/releases`).

Not modelled: TunableOp, cuBLASLt preferred for everything, sparse operands.
"""

from __future__ import annotations

import math

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.releases import Release, Span
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, is_contiguous, is_dense, turned
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, part, present, rule

# A matrix of one row is a bias too, and then one that is as large as the result, in place or not: PyTorch
# 2.10's, 2.11's and 2.15's own host code. Until 2.9 it was not asked.
_ROW_IS_BIAS, _WHOLE_IS_BIAS = Span(since=(2, 10)), Span(since=(2, 11))


def take_workspace(script: Script, device: DeviceProfile, lt: bool = False) -> None:
    """The workspaces of a product: those the thread keeps, if it has none yet, and those of the call, as the
    release of torch has it. lt: cuBLASLt runs it."""
    script.library("cublas")
    token = _cublaslt_first(script, device) if lt else -1
    _cublas_workspace(script, device)
    script.release(token)
    if lt:
        _cublaslt_workspace(script, device)
        _cublaslt_each_call(script, device)
    else:
        _cublas_each_call(script, device)


@part("cublas-workspace", since=(2, 0), until=(2, 14))
def _cublas_workspace(script: Script, device: DeviceProfile) -> None:
    """Every product through cuBLAS takes the thread's workspace the first time, after its result is
    allocated, and keeps it: 32 MiB on compute capability 9.x (10.x and 12.x since torch 2.12), about 8 MiB on
    others, or what `CUBLAS_WORKSPACE_CONFIG` says: the profile has the size, `with_workspaces`
    (`runtimes/pytorch/settings.py`) puts the variable and the release in. Training takes two, since autograd
    runs the backward pass on a thread of its own. From torch 2.15 on a call gives it back
    (cublas-call-workspace). Before torch 2.0 cuBLAS used memory of its own, which the allocator does not see.

    Source: `aten/src/ATen/cuda/CublasHandlePool.cpp` (`getChosenWorkspaceSize`, `getCurrentCUDABlasHandle`);
    pull request 86645 of PyTorch (October 2022).
    """
    script.workspace("cublas", device.cublas_workspace_bytes)


@part("cublas-call-workspace", since=(2, 15))
def _cublas_each_call(script: Script, device: DeviceProfile) -> None:
    """A product through cuBLAS takes a workspace after its result is allocated, and gives it back when it has
    been asked
    for: as large as the one a thread kept until torch 2.14, and free for anybody in between.

    Source: pull request 194311 of PyTorch (August 2026); PyTorch 2.15's binary, `tests/data/releases`.
    """
    script.release(script.temporary(device.cublas_workspace_bytes))


@part("cublaslt-workspace", since=(2, 9), until=(2, 11))
def _cublaslt_workspace(script: Script, device: DeviceProfile) -> None:
    """A product that cuBLASLt runs (a bias fused into it, 8-bit matrices) takes a further workspace once per
    thread, never more than cuBLAS's own: 1 MiB unless `CUBLAS_WORKSPACE_CONFIG` says less. Torch 2.12 to 2.14
    run it in cuBLAS's workspace.

    Source: `aten/src/ATen/cuda/CublasHandlePool.cpp` (`getCUDABlasLtWorkspaceSize`,
    `getCUDABlasLtWorkspace`); pull requests 156495 and 168175 of PyTorch.
    Measured: H200, torch 2.11, `CUBLAS_WORKSPACE_CONFIG` unset, `:4096:8`, `:16:8` and `:0:0`: 1 MiB, 1 MiB,
    128 KiB and none.
    """
    script.workspace("cublaslt", _cublaslt_bytes(device))


@part("cublaslt-call-workspace", until=(2, 8))
def _cublaslt_first(script: Script, device: DeviceProfile) -> int:
    """Until torch 2.8 a product that cuBLASLt runs takes its workspace (1 MiB, or cuBLAS's where that is
    smaller) for the call alone, before it asks for the thread's handle, whose workspace cuBLAS then takes.

    Source: `aten/src/ATen/cuda/CUDABlas.cpp` (`gemm_and_bias`); PyTorch 2.6 to 2.8's binaries,
    `tests/data/releases`; the order is 2.7.1's, emulated as a T4 and a V100.
    """
    return script.temporary(_cublaslt_bytes(device))


@part("cublaslt-own-workspace", since=(2, 15))
def _cublaslt_each_call(script: Script, device: DeviceProfile) -> None:
    """From torch 2.15 on a product that cuBLASLt runs takes its workspace (1 MiB, or cuBLAS's where that is
    smaller) for the call alone, and none of cuBLAS's.

    Source: pull request 194311 of PyTorch (August 2026); PyTorch 2.15's binary, `tests/data/releases`.
    """
    script.release(script.temporary(_cublaslt_bytes(device)))


def _cublaslt_bytes(device: DeviceProfile) -> int:
    """Return cuBLASLt's own workspace, at most cuBLAS's."""
    return min(device.cublaslt_workspace_bytes, device.cublas_workspace_bytes)


def _matrix_copy(tensor: TensorMeta | None, result: TensorMeta | None) -> int:
    """Return the bytes of the copy of a matrix, 0 if BLAS reads it in place: it is dense, or one stride is 1
    and the other at least the row's length, and it is not conjugated, or is transposed: BLAS is asked for the
    transpose of a contiguous result.
    """
    if tensor is None or len(tensor.shape) != 2:
        return 0
    (rows, columns), (down, right) = tensor.shape, tensor.stride
    dense = is_dense(tensor)
    by_columns = not dense and down == 1 and right >= max(1, rows)
    if not dense and not by_columns and (right != 1 or down < max(1, columns)):
        return bytes_of(tensor)
    if not tensor.conjugated:
        return 0
    by_rows = is_contiguous(tensor) if dense else not by_columns
    return bytes_of(tensor) if by_rows == (result is None or is_contiguous(result)) else 0


def _batch_copy(tensor: TensorMeta | None, by_rows: bool) -> int:
    """Return the bytes of the copy of a stack of matrices, 0 if BLAS reads it in place: stride 1 in one of
    its last two dimensions, and the other stride at least the row's length, and it is not conjugated, or is
    transposed.
    """
    if tensor is None or len(tensor.shape) != 3:
        return 0
    (_, rows, columns), (_, down, right) = tensor.shape, tensor.stride
    along_rows, along_columns = right == 1 and down >= max(1, columns), down == 1 and right >= max(1, rows)
    if along_rows or along_columns:
        transposed = not (along_rows if by_rows else along_columns)
    elif is_contiguous(tensor) and down != 0 and right != 0:
        transposed = not by_rows
    else:
        return bytes_of(tensor)
    return bytes_of(tensor) if tensor.conjugated and not transposed else 0


@rule("aten::mm", "aten::_int_mm", name="matrix-product")
def mm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A matrix product: the result, a copy of each operand BLAS cannot read in place (neither dense nor with
    a stride of 1 and rows apart; conjugated and not transposed), the second one first, since BLAS goes by
    columns and is asked for the product's transpose, and cuBLAS's workspace.
    """
    _product(operator, device, script, (operator.tensor("self"), operator.tensor("mat2")))


@rule("aten::addmm", "aten::addmm_", "aten::_addmm_activation", name="matrix-product-bias")
def addmm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A matrix product with an addend: the result, a copy of each matrix BLAS cannot read in place, and
    cuBLAS's workspace. A bias of one row, contiguous, with beta 1, is fused by cuBLASLt, whose workspace
    depends on the release (cublaslt-workspace, cublaslt-call-workspace).
    """
    first, second = operator.tensor("mat1"), operator.tensor("mat2")
    fused = _fuses_bias(operator, second, script.torch_release)
    _product(operator, device, script, (first, second), lt=fused)


def _product(
    operator: Operator,
    device: DeviceProfile,
    script: Script,
    factors: tuple[TensorMeta | None, ...],
    lt: bool = False,
) -> None:
    """Allocate the results, a copy of each factor that BLAS cannot read as it lies, and the workspace."""
    script.outputs()
    if _multiplies(operator, factors[0]):  # of a result without elements nothing is prepared
        for factor in reversed(factors):
            script.temporary(_matrix_copy(factor, operator.outputs[0]))
        take_workspace(script, device, lt)


def _multiplies(operator: Operator, factor: TensorMeta | None) -> bool:
    """Return whether BLAS is called: not for a result or factors without elements."""
    result = operator.outputs[0]
    return bool(result is not None and result.element_count and (factor is None or factor.element_count))


def _fuses_bias(operator: Operator, second: TensorMeta | None, release: Release) -> bool:
    """Return whether cuBLASLt adds the addend: a row, which other addends than a vector may be, to products
    of any number of rows (measured)."""
    bias, result = operator.tensor("self"), operator.outputs[0]
    if bias is None or second is None or result is None or math.prod(bias.shape[:-1]) != 1:
        return False
    if len(bias.shape) == 1 and operator.name.startswith("aten::addmm_"):  # which is no result's shape
        return False
    if len(bias.shape) == 2 and release not in (_ROW_IS_BIAS if result.shape[0] > 1 else _WHOLE_IS_BIAS):
        return False
    beta = operator.argument("beta", default=1)
    return (
        len(bias.shape) in (1, 2)
        and len(result.shape) == 2
        and bias.shape[-1] == second.shape[1]
        and beta == 1
        and is_contiguous(bias)
        and is_contiguous(result)
        and second.shape[0] > 1
        and second.shape[1] > 1
        and result.dtype in ("float64", "float32", "float16", "bfloat16")
    )


@rule("aten::bmm", "aten::baddbmm", "aten::baddbmm_", name="batched-product")
def bmm(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A product of stacked matrices: the result, a copy of each operand without stride 1 in one of its last
    two dimensions, or conjugated and not transposed, and cuBLAS's workspace.
    """
    script.outputs()
    result = operator.outputs[0]
    by_rows = result is None or result.shape[2] != 1  # a column lies by columns
    for factor in (operator.tensor("batch2", "mat2"), first := operator.tensor("batch1", "self")):
        script.temporary(_batch_copy(factor, by_rows))
    if _multiplies(operator, first):
        take_workspace(script, device)


@rule("aten::dot", "aten::vdot")
def vectors_product(_operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A product of vectors: the result, and cuBLAS's workspace."""
    script.outputs()
    take_workspace(script, device)


@rule("aten::mv", "aten::addmv", "aten::addmv_")
def vector_product(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A product with a vector: the result, a copy of a vector that is one number repeated (stride 0: a sum's
    gradient), then one of a matrix that lies neither by rows nor by columns, and cuBLAS's workspace, unless
    the matrix has no elements.

    Source: `addmv_out_cuda`, `aten/src/ATen/native/cuda/Blas.cpp`.
    """
    script.outputs()
    matrix, vector = operator.tensor("mat", "self"), operator.tensor("vec")
    if not _multiplies(operator, matrix):
        return
    repeats = vector is not None and vector.stride[0] == 0 and vector.element_count > 1
    script.temporary(bytes_of(vector) if vector is not None and repeats else 0)
    script.temporary(_lying_copy(matrix))
    take_workspace(script, device)


def _lying_copy(matrix: TensorMeta | None) -> int:
    """Return the bytes of the copy of a matrix that lies neither by rows nor by columns, 0 of another."""
    if matrix is None or is_contiguous(matrix):
        return 0
    (rows, columns), (down, right) = matrix.shape, matrix.stride
    in_order = (down == 1 and right >= max(1, rows)) or (right == 1 and down >= max(1, columns))
    return 0 if in_order else bytes_of(matrix)


@rule("aten::addbmm", "aten::addbmm_", name="sum-of-products")
def summed_products(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A sum of products: the result, then one matrix after the other is multiplied and added to it.

    Source: `aten/src/ATen/native/LinearAlgebra.cpp` (`addbmm_impl_`).
    """
    script.outputs()
    matrices = operator.tensor("batch1")
    for _ in range(matrices.shape[0] if matrices is not None and matrices.element_count else 0):
        take_workspace(script, device)


# CUTLASS's arguments of one group: three pointers, three strides of 8 bytes, three sizes of 4 bytes. Pointers
# are counted for an even number of groups.
_POINTERS_BYTES, _STRIDES_AND_SIZES_BYTES = 24, 36
_DESCRIPTORS_BYTES_PER_SM = 512


@rule("aten::_grouped_mm", name="grouped-product", sure=(Basis.EXACT, Basis.MEASURED))
def grouped(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Products of groups of rows. In bfloat16 on compute capability 9.0 and 10 CUTLASS runs all of them at
    once: after the result the arguments of every group, then tensor descriptors for each multiprocessor
    (67,584 bytes on an H200's 132, as recorded). Otherwise each group is a product of its own, through
    cuBLAS, into its part of the result.

    Source: `cuda/GroupMM.cu` (`bf16bf16_grouped_gemm_impl_sm90_sm100`), `cuda/GroupedBlas.cpp`
    (`_grouped_mm_cuda`).
    """
    script.outputs()
    first, second, offsets = present(operator, "self"), present(operator, "mat2"), operator.tensor("offs")
    result = present(operator, 0)
    if not device.architecture.grouped_products or {first.dtype, second.dtype, result.dtype} != {"bfloat16"}:
        take_workspace(script, device)
        return
    ragged = len(first.shape) == len(second.shape) == 2
    groups = (
        offsets.shape[0]
        if ragged and offsets
        else max(first, second, key=lambda each: len(each.shape)).shape[0]
    )
    script.temporary(-(-groups // 2) * 2 * _POINTERS_BYTES + groups * _STRIDES_AND_SIZES_BYTES)
    script.temporary(device.sm_count * _DESCRIPTORS_BYTES_PER_SM, Basis.MEASURED)


@rule(
    "aten::_scaled_mm",
    "aten::_scaled_mm_v2",
    "aten::_scaled_grouped_mm",
    "aten::_scaled_grouped_mm_v2",
    name="scaled-product",
)
def scaled(_operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A product of 8-bit matrices: the result, and the workspaces of cuBLAS and cuBLASLt, which runs it."""
    script.outputs()
    take_workspace(script, device, lt=True)


# Above so many systems, or below so many unknowns, cuBLAS solves a stack at once; up to so many unknowns it
# does so itself.
_SYSTEMS_IN_TURN, _UNKNOWNS_IN_TURN, _UNKNOWNS_OF_CUBLAS = 8, 64, 512
_POINTER_BYTES = 8


@rule("aten::linalg_solve_triangular", name="triangular-solve", sure=(Basis.EXACT, Basis.BOUNDED))
def triangular(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Triangular systems: the result, a copy of matrices that lie neither by rows nor by columns, or are
    conjugated and not transposed for the result, and cuBLAS's workspace. More than eight systems, or of fewer
    than 64 unknowns, are solved at once, from two arrays with the address of every matrix. With more than 512
    unknowns MAGMA solves them where PyTorch was built with it, from arrays on the host: a bound.
    """
    script.outputs()
    matrix, result = present(operator, "self"), present(operator, 0)
    unknowns, systems = matrix.shape[-1], math.prod(result.shape[:-2])
    needs_no_copy = matrix.shape[:-2] == result.shape[:-2] and (
        is_contiguous(matrix) or is_contiguous(turned(matrix))
    )
    # cuBLAS conjugates while it transposes alone (`linalg_solve_triangular_out`, BatchLinearAlgebra.cpp).
    if matrix.conjugated and (matrix.stride[-1] == 1) == (result.stride[-1] == 1):
        needs_no_copy = False
    script.temporary(0 if needs_no_copy else systems * unknowns**2 * dtype_bytes(matrix.dtype))
    if not result.element_count:  # right sides have no addresses, nor do matrices without elements
        at_once = unknowns and (systems > _SYSTEMS_IN_TURN or unknowns < _UNKNOWNS_IN_TURN)
        script.temporary(systems * _POINTER_BYTES if at_once else 0)
        take_workspace(script, device)
        return
    triangular_systems(script, device, systems, unknowns)


def triangular_systems(script: Script, device: DeviceProfile, systems: int, unknowns: int) -> list[int]:
    """Allocate for a stack of triangular systems; return tokens held until the end."""
    held = []
    if systems > _SYSTEMS_IN_TURN or unknowns < _UNKNOWNS_IN_TURN:
        basis = Basis.EXACT if unknowns <= _UNKNOWNS_OF_CUBLAS else Basis.BOUNDED
        held = [script.temporary(systems * _POINTER_BYTES, basis) for _ in range(2)]
    take_workspace(script, device)
    return held
