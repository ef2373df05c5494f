"""Factorizations and what is solved with them: cuSOLVER's work areas (`libraries/cusolver.py`), by how
PyTorch chooses the routine.

1. One matrix is cuSOLVER's, whose work area is given back at once. Of a batch, matrices are factorized one
   after the other, each with a work area of its own, or all at once from an array of their addresses (cuBLAS,
   or cuSOLVER's batched routines); MAGMA keeps its arrays on the host.
2. The choice is by the number of matrices and their size: LU at once up to 16 rows, or up to 128 of at most
   16 matrices; R at once up to 256 rows, where there are two matrices or more, and one for every 16 rows;
   eigenvalues of float32 by Jacobi's method from 32 up to 512 rows.

Source: `aten/src/ATen/native/cuda/linalg/` `BatchLinearAlgebra.cpp` and `BatchLinearAlgebraLib.cpp`,
`BatchLinearAlgebra.cpp`; orders and sizes as PyTorch's own host code asks under the emulated runtime (torch
2.11, `tests/data/emulation/factorizations.json.gz`), of which work areas are an H100's.

`decompositions.py` has determinants, eigenvalues, singular values and least squares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.libraries import cusolver
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.blas import _SYSTEMS_IN_TURN, _UNKNOWNS_IN_TURN, take_workspace
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, contiguous_copy_bytes, turned
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, reduce, reduced_dims
from analyzer.runtimes.pytorch.scratch.script import AbsentError, Basis, Script, filled, present, rule

POINTER_BYTES, INFO_BYTES, INDEX_BYTES = 8, 4, 8
_ONE_BYTE = 1
_MANY = 1 << 30  # right sides
_SURE = (Basis.EXACT, Basis.MEASURED)
# In 2.11's binary MAGMA factorizes what is not square and larger batches, and Jacobi's method finds the
# eigenvalues of float32. In 2.15's cuSOLVER takes all symmetric matrices of a batch at once, and cuBLAS or a
# kernel of PyTorch's own square ones. The releases in between were not asked.
_WITHOUT_MAGMA = Span((2, 15))
# Two square matrices of more elements than so many times two are cuSOLVER's; of more matrices the number is
# another one, times the root of how many there are where that is said (`get_lu_factor_solver_backend`). From
# so many matrices and rows on PyTorch's own kernel factorizes them in blocks.
_OF_CUBLAS = {
    "float32": (8_400, 18_600, False),
    "float64": (2_200, 16_600, True),
    "complex64": (8_400, 18_600, False),
    "complex128": (2_200, 5_200, True),
}
_MANY_MATRICES, _BLOCKED_ROWS = 4, 256


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How wide the blocks of that kernel are. narrow: columns that are not divided, of float32, float64,
    complex64 and complex128, below so many rows; tall: of more rows. real, complex: columns of a block, of
    small and of large matrices."""

    narrow: tuple[int, int, int, int]
    tall: int
    large: int
    real: tuple[int, int]
    complex: tuple[int, int]


_WIDEST, _TALL_ROWS = 32, 1024
# By architecture (`Architecture.lu`).
_BLOCKS = {
    "ampere": _Blocks((44, 44, 24, 16), 10, 512, (56, 256), (64, 256)),
    "ada": _Blocks((40, 32, 20, 24), 12, 256, (104, 384), (104, 256)),
    "hopper": _Blocks((52, 36, 52, 24), 10, 512, (40, 256), (64, 256)),
    "blackwell": _Blocks((48, 32, 32, 28), 10, 512, (72, 256), (64, 256)),
}
ELEMENTS = {
    "float32": cusolver.ELEMENTS["S"],
    "float64": cusolver.ELEMENTS["D"],
    "complex64": cusolver.ELEMENTS["C"],
    "complex128": cusolver.ELEMENTS["Z"],
}


# Bytes of a temporary, or what `Script.temporary` takes.
StepSize: TypeAlias = int | tuple[int, Basis] | tuple[int, Basis, str, tuple[int, ...], int, int]


class Steps:
    """Temporaries of an operator by name: `steps("a b -a cublas o")` takes a and b, gives a back, calls
    cuBLAS and allocates the next result.

    sizes: bytes of each, or bytes and how they are known.
    """

    def __init__(self, script: Script, device: DeviceProfile, **sizes: StepSize) -> None:
        self._script, self._device, self._sizes = script, device, sizes
        self._held: dict[str, int] = {}
        self._results = 0

    def __call__(self, text: str) -> None:
        """Carry out steps by name: "o" the next result, "cublas" its workspace, "-x" gives x back, else
        takes."""
        for step in text.split():
            if step == "cublas":
                take_workspace(self._script, self._device)
            elif step == "o":
                self._script.output(self._results)
                self._results += 1
            elif step.startswith("-"):
                self._script.release(self._held[step[1:]])
            else:
                size = self._sizes[step]
                self._held[step] = self._script.temporary(*(size if isinstance(size, tuple) else (size,)))


def count_of(tensor: TensorMeta) -> int:
    """Return the number of matrices in a stack."""
    return math.prod(tensor.shape[:-2])


def in_turn(script: Script, count: int, nbytes: int) -> None:
    """Take a work area of cuSOLVER's for one matrix after the other."""
    script.library("cusolver")
    for _ in range(count):
        script.release(script.temporary(nbytes, Basis.MEASURED))


def reported(script: Script, count: int, nbytes: int) -> None:
    """Allocate an error report, and a work area used by one matrix after the other."""
    with script.function():
        script.temporary(INFO_BYTES)
        in_turn(script, count, nbytes)


def looked_at(script: Script, count: int) -> None:
    """Allocate for the host's check of the errors."""
    script.release(*[script.temporary(_ONE_BYTE) for _ in range(2 if count == 1 else 1)])


def addressed(script: Script, device: DeviceProfile, count: int, arrays: int = 1) -> None:
    """Allocate for cuBLAS's batched routines, which take arrays of addresses."""
    with script.function():
        for _ in range(arrays):
            script.temporary(count * POINTER_BYTES)
        take_workspace(script, device)


def triangular(script: Script, device: DeviceProfile, count: int, unknowns: int) -> None:
    """Systems of both triangular factors, one after the other: cuBLAS has each factor's systems at once, from
    their addresses, or solves few large ones in turn."""
    for _ in range(2):
        if count > _SYSTEMS_IN_TURN or unknowns < _UNKNOWNS_IN_TURN:
            addressed(script, device, count, 2)
        else:
            take_workspace(script, device)


def at_once(rows: int, count: int) -> bool:
    """Return whether so many matrices are factorized into Q and R together."""
    return rows <= 256 and count >= max(2, rows // 16)


def typed(operator: Operator, *names: str) -> TensorMeta:
    """Return a call's matrices. Raises AbsentError if there are none of a type cuSOLVER has."""
    if (tensor := present(operator, *names)).dtype not in ELEMENTS:
        raise AbsentError
    return tensor


def solvable(operator: Operator, *names: str) -> TensorMeta:
    """As `typed`, of matrices that have elements."""
    filled(operator, *names)
    return typed(operator, *names)


@rule("aten::_linalg_check_errors", name="errors-read")
def errors(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Whether any report is not zero.

    Source: `aten/src/ATen/native/BatchLinearAlgebra.cpp` (`_linalg_check_errors`).
    """
    info = present(operator, "info")
    script.temporary(_ONE_BYTE)
    if info.element_count == 1:
        script.release(script.temporary(_ONE_BYTE))
    else:
        kernel = ReductionKernel(INFO_BYTES)
        reduce(script, device, info, reduced_dims(info, None), ("bool",), kernel=kernel)


@rule("aten::linalg_cholesky_ex", name="cholesky", sure=_SURE)
def cholesky(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The factor and what went wrong; then a work area, or of a batch an array of addresses."""
    script.outputs()
    matrix = solvable(operator, "self")
    choleskied(operator, matrix, script)


def choleskied(operator: Operator, matrix: TensorMeta, script: Script) -> None:
    """Make a Cholesky factor in place: one matrix with a work area, several from their addresses."""
    if (count := count_of(matrix)) > 1:
        script.release(script.temporary(count * POINTER_BYTES))
    else:
        upper = bool(operator.argument("upper", default=False))
        in_turn(script, 1, cusolver.potrf_bytes(ELEMENTS[matrix.dtype], upper, matrix.shape[-1]))


@rule("aten::cholesky_inverse", "aten::_cholesky_solve_helper", name="cholesky-solve")
def cholesky_solve(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A copy of the factor beside the result, and for one matrix what went wrong: before the result, where a
    system is solved, until torch 2.14. Since 2.15 an inverse is solved for from an identity matrix, and
    several systems as triangular ones.
    """
    solved = operator.tensor("A")
    matrix = typed(operator, "A", "self")
    count = count_of(matrix)
    alone = count == 1
    if alone:  # several are MAGMA's, or triangular systems
        script.library("cusolver")
    if script.torch_release in _WITHOUT_MAGMA:
        script.outputs()
        identity = script.temporary(bytes_of(matrix) if solved is None else 0)
        if alone:
            reported(script, 1, bytes_of(matrix))
        else:
            triangular(script, device, count, matrix.shape[-1])
        script.release(identity)
        return
    if solved is not None:
        script.temporary(INFO_BYTES if alone else 0)
    script.outputs()
    script.temporary(bytes_of(matrix))
    if not alone:  # MAGMA's
        take_workspace(script, device)
    if solved is None and alone:
        script.release(script.temporary(INFO_BYTES))


@rule("aten::linalg_lu_factor_ex", name="lu", sure=_SURE)
def lu(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The factors, pivots and what went wrong; then a work area for one square matrix, or addresses of
    several small ones. MAGMA takes the others."""
    script.outputs()
    factorized(script, device, solvable(operator, "A"), bool(operator.argument("pivot", default=True)))


@rule("aten::lu_unpack", name="lu-unpack")
def lu_unpack(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The permutation as indices, of a batch copied for each matrix; pivots that are not contiguous are
    copied."""
    script.outputs()
    matrix = typed(operator, "LU_data")
    if operator.argument("unpack_pivots", default=True):
        permuted(script, matrix, contiguous_copy_bytes(operator.tensor("LU_pivots")))


def permuted(script: Script, matrix: TensorMeta, pivot_bytes: int = 0) -> None:
    """Turn the pivots into a permutation of rows. pivot_bytes: of their copy."""
    rows, count = matrix.shape[-2], count_of(matrix)
    indices = script.temporary(rows * INDEX_BYTES)
    copies = script.temporary(count * rows * INDEX_BYTES if count > 1 else 0)
    script.release(indices)
    script.release(script.temporary(pivot_bytes), copies)


@rule("aten::linalg_lu_solve", "aten::_linalg_solve_ex", "aten::linalg_inv_ex", name="lu-solve", sure=_SURE)
def lu_solve(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The factors first, where there are none yet (an inverse keeps neither them nor their pivots), else a
    copy of those that lie by rows; then what solving takes."""
    inverse = "inv" in operator.name
    script.outputs()
    matrix, result = solvable(operator, "A", "LU"), present(operator, 0)
    if "lu_solve" in operator.name and not result.element_count:
        return
    if inverse:
        script.temporaries(bytes_of(matrix), count_of(matrix) * matrix.shape[-1] * INFO_BYTES)
    if "lu_solve" in operator.name:
        script.copies(operator.tensor("pivots"), turned(matrix))
    else:
        factorized(script, device, matrix)
    vector = len(result.shape) < len(matrix.shape)
    if vector and "_solve_ex" in operator.name:  # written into a matrix of one column, then copied
        script.temporary(bytes_of(result))
    left = bool(operator.argument("left", default=True))
    turned_round = "lu_solve" in operator.name and bool(operator.argument("adjoint", default=False)) == left
    _solved(script, device, matrix, 1 if vector else result.shape[-1], bytes_of(result), turned_round)


def factorized(script: Script, device: DeviceProfile, matrix: TensorMeta, pivoted: bool = True) -> None:
    """LU factors, in place. Without pivots these are counted up, and of one complex matrix what is no number
    is replaced."""
    count, (rows, columns) = count_of(matrix), matrix.shape[-2:]
    without_magma = script.torch_release in _WITHOUT_MAGMA
    blocked = without_magma and count >= _MANY_MATRICES and rows >= _BLOCKED_ROWS
    alone = count == 1 or (without_magma and not blocked and rows**2 > _cublas_elements(matrix.dtype, count))
    if (rows == columns and alone) or (rows != columns and without_magma):
        in_turn(script, 1, cusolver.getrf_bytes(ELEMENTS[matrix.dtype], rows, columns))
        if not pivoted and ELEMENTS[matrix.dtype].is_complex:
            with script.function():
                script.temporaries(dtype_bytes(matrix.dtype), rows * columns, bytes_of(matrix))
    elif blocked:
        _in_blocks(script, device, matrix)
    elif without_magma or (rows == columns and (rows <= 16 or (rows <= 128 and count <= 16))):
        addressed(script, device, count)
    else:  # MAGMA's
        take_workspace(script, device)
    if not pivoted:
        script.release(script.temporary(min(rows, columns) * INFO_BYTES))


def _cublas_elements(dtype: str, count: int) -> int:
    """Return the most elements of a square matrix that cuBLAS factorizes, of so many."""
    pair, each, more = _OF_CUBLAS[dtype]
    return count * (pair if count == 2 else each * (math.isqrt(count) if more else 1))


def _in_blocks(script: Script, device: DeviceProfile, matrix: TensorMeta) -> None:
    """Square matrices by PyTorch's own kernel: two arrays of addresses and a permutation of the rows, and for
    each update of the columns to the right of a block a product (`LUWorkspace`, `lu_batched_blas3_kernel`,
    LURecBlas3Kernel.cu)."""
    rows, count, element = matrix.shape[-1], count_of(matrix), ELEMENTS[matrix.dtype]
    blocks = _BLOCKS[device.architecture.lu]
    narrow = min(blocks.narrow[list(ELEMENTS).index(matrix.dtype)], _WIDEST)

    def updates(start: int, width: int) -> int:
        if width <= (narrow if rows - start < _TALL_ROWS else blocks.tall):
            return 0
        left = width // 2
        return updates(start, left) + 1 + updates(start + left, width - left)

    wide = (blocks.complex if element.is_complex else blocks.real)[rows >= blocks.large]
    tokens = [script.temporary(2 * count * POINTER_BYTES), script.temporary(count * rows * INFO_BYTES)]
    for start in range(0, rows, wide):
        width = min(wide, rows - start)
        for _ in range(updates(start, width) + (start + width < rows)):
            take_workspace(script, device)
    script.release(*tokens[::-1])


def _solved(
    script: Script, device: DeviceProfile, matrix: TensorMeta, sides: int, nbytes: int, adjoint: bool
) -> None:
    """Systems with their factors: one after the other (`getrs`), at once, or as triangular systems, once
    their rows are permuted; of the adjoint matrix what is found is permuted. nbytes: of the right sides."""
    unknowns, count = matrix.shape[-1], count_of(matrix)
    few = unknowns <= 128 and count <= 2
    if (
        unknowns != sides
        and few
        and unknowns > 8
        and sides <= (_MANY if unknowns <= 32 else 64 if unknowns <= 64 else 2)
    ):
        script.library("cusolver")
        script.release(script.temporary(INFO_BYTES))
    elif unknowns != sides and unknowns <= 8 and sides >= 256:  # MAGMA's
        take_workspace(script, device)
    elif unknowns <= 128 and sides <= (
        16 if unknowns == sides else _MANY if unknowns <= 8 else 8 if unknowns <= 64 else 2
    ):
        addressed(script, device, count, 2)
    else:
        row, rows = unknowns * INDEX_BYTES, count * unknowns * INDEX_BYTES
        indices = script.temporary(row)
        tokens = [script.temporary(rows)] if count > 1 else [indices]
        if count > 1:
            script.release(indices)
        if not adjoint:
            tokens += [script.temporary(row), script.temporary(rows), script.temporary(nbytes)]
        triangular(script, device, count, unknowns)
        if adjoint:
            script.release(script.temporary(nbytes))
        script.release(*tokens[::-1])


@rule("aten::geqrf", "aten::linalg_qr", "aten::linalg_householder_product", name="qr", sure=_SURE)
def qr(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The factors; of `linalg_qr` the reflectors' scales beside them, of given ones a contiguous copy. R
    at once, from two arrays of addresses, or matrix after matrix with a work area and its own report of what
    went wrong; then so is Q."""
    script.outputs()
    is_qr, product = operator.name.endswith("linalg_qr"), operator.name.endswith("householder_product")
    matrix, q, scales = typed(operator, "A", "self", "input"), present(operator, 0), operator.tensor("tau")
    if scales is not None and not (matrix.element_count and scales.shape[-1]):
        return
    element, count, (rows, columns) = ELEMENTS[matrix.dtype], count_of(matrix), matrix.shape[-2:]
    reflectors = min(rows, columns)
    script.temporary(
        count * reflectors * dtype_bytes(matrix.dtype) if is_qr else contiguous_copy_bytes(scales)
    )
    if not product and at_once(rows, count):
        addressed(script, device, count if matrix.element_count else 0, 2)
    elif not product:
        reported(script, count, cusolver.geqrf_bytes(element, rows, columns))
    if product or (is_qr and 0 not in q.shape[-2:]):
        if scales is not None:
            reflectors = scales.shape[-1]
        reported(script, count, cusolver.orgqr_bytes(element, rows, q.shape[-1], reflectors))


@rule("aten::_linalg_eigh", name="symmetric-eigenvalues", sure=_SURE)
def eigh(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Eigenvectors are computed where the matrix was copied to: the second result, made first, or a
    temporary. Up to 32 rows a batch has one work area; else each matrix one after the other. Then the host
    asks whether all went well.
    """
    matrix = solvable(operator, "A")
    if operator.argument("compute_v", default=True):
        script.output(1)
    script.outputs()
    if not operator.argument("compute_v", default=True):
        script.temporary(bytes_of(matrix))
    symmetric(script, matrix)


def symmetric(script: Script, matrix: TensorMeta) -> None:
    """Allocate for eigenvalues and vectors of symmetric matrices, besides the results."""
    count, size = count_of(matrix), matrix.shape[-1]
    script.temporary(count * INFO_BYTES)
    element = ELEMENTS[matrix.dtype]
    if script.torch_release in _WITHOUT_MAGMA:
        in_turn(script, 1, cusolver.syevd_bytes(element, 1, 0, size, count))
    elif matrix.dtype == "float32" and 32 <= size <= 512 and (count == 1 or size > 32):
        in_turn(script, count, cusolver.syevj_bytes(element, 1, 0, size))
    elif count > 1 and size <= 32:
        in_turn(script, 1, cusolver.syevd_bytes(element, 1, 0, size, count))
    else:
        in_turn(script, count, cusolver.syevd_bytes(element, 1, 0, size))
    looked_at(script, count)
