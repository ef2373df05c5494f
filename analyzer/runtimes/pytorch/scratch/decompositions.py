"""Determinants, eigenvalues, singular values and their kin: results, the copies they are computed in, and
cuSOLVER's work areas.

1. Singular values: by Jacobi's method, where the program names no driver: of at most 32 x 32 all matrices at
   once, of others one after the other. gesvd works on the transposed matrix where that is taller. Where only
   values are wanted, vectors are written to memory that nobody sees.
2. The host reads a routine's report on every matrix at the end.

Source: `aten/src/ATen/native/LinearAlgebra.cpp`, `BatchLinearAlgebra.cpp`,
`native/cuda/linalg/BatchLinearAlgebra.cpp` and `BatchLinearAlgebraLib.cpp`; orders and sizes as PyTorch's own
host code asks under the emulated runtime (torch 2.11, `tests/data/emulation/decompositions.json.gz`), of
which work areas are an H100's.

Not modelled: a matrix for which Jacobi's method does not converge (gesvd follows then).
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.libraries import cusolver
from analyzer.runtimes.pytorch.scratch.blas import take_workspace, triangular_systems
from analyzer.runtimes.pytorch.scratch.factorizations import (
    ELEMENTS,
    INDEX_BYTES,
    INFO_BYTES,
    addressed,
    at_once,
    choleskied,
    count_of,
    factorized,
    in_turn,
    looked_at,
    permuted,
    reported,
    solvable,
    typed,
)
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, contiguous_copy_bytes, turned
from analyzer.runtimes.pytorch.scratch.reduction import ReductionKernel, reduce, reduced_dims
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, present, rule

_SURE = (Basis.EXACT, Basis.MEASURED)
_ONE_BYTE = 1
_AT_ONCE = 32  # rows and columns of matrices of a batch that Jacobi's method takes together
_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_LOGIC = ReductionKernel(1)


def _all(script: Script, device: DeviceProfile, elements: int) -> None:
    """Allocate for the test whether all of so many flags are set."""
    flag = script.temporary(_ONE_BYTE)
    flags = TensorMeta(0, (elements,), (1,), "bool", 0)
    reduce(script, device, flags, reduced_dims(flags, None), ("bool",), kernel=_LOGIC)
    script.release(flag)


def _complex_bytes(matrix: TensorMeta) -> int:
    """Return the bytes of a complex element of the matrix's precision."""
    return dtype_bytes(_COMPLEX.get(matrix.dtype, matrix.dtype))


def real_bytes(matrix: TensorMeta) -> int:
    """Return the bytes of a real number of the matrix's precision."""
    return dtype_bytes(matrix.dtype) // (2 if _is_complex(matrix) else 1)


@rule("aten::_linalg_det", "aten::_linalg_slogdet", name="determinant", sure=_SURE)
def determinant(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result, the factors and pivots, and what factorizing takes; then the diagonal and the pivots are
    looked through."""
    script.outputs()
    matrix = typed(operator, "A")
    count, rows, width = count_of(matrix), matrix.shape[-1], dtype_bytes(matrix.dtype)
    logarithm = operator.name.endswith("_slogdet")
    script.temporary(count * INFO_BYTES)
    if matrix.element_count:
        factorized(script, device, matrix)
    script.temporary(0 if logarithm else count * width)
    counted = [script.temporary(rows * INFO_BYTES), script.temporary(count * rows)]
    swaps = script.temporary(count * INDEX_BYTES)
    script.release(script.temporary(count * rows * INDEX_BYTES), *counted[::-1])
    if logarithm:
        signs = script.temporary(count * rows * width)
        script.release(script.temporary(count * width), signs)
    script.release(swaps)
    if logarithm:
        sizes = script.temporary(count * rows * real_bytes(matrix))
        script.release(script.temporary(count * rows * width if _is_complex(matrix) else 0))
        script.release(sizes)


def _is_complex(matrix: TensorMeta) -> bool:
    return matrix.dtype.startswith("complex")


@rule("aten::linalg_lu", name="lu-whole", sure=_SURE)
def linalg_lu(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Permutation, L and U, and the factors they are taken from."""
    script.outputs()
    matrix = typed(operator, "A")
    count, (rows, columns) = count_of(matrix), matrix.shape[-2:]
    pivots = count * min(rows, columns) * INFO_BYTES
    factors = script.temporary(bytes_of(matrix))
    script.temporaries(pivots, count * INFO_BYTES)
    pivoted = bool(operator.argument("pivot", default=True))
    if matrix.element_count:
        factorized(script, device, matrix, pivoted)
    script.release(factors)
    if pivoted:
        permuted(script, matrix)


@rule("aten::cholesky", name="cholesky-checked", sure=_SURE)
def cholesky(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """As `linalg_cholesky_ex`, and the host asks how it went."""
    script.outputs()
    matrix = solvable(operator, "self")
    count = count_of(matrix)
    script.temporary(count * INFO_BYTES)
    choleskied(operator, matrix, script)
    looked_at(script, count)


@rule("aten::linalg_ldl_factor_ex", name="ldl", sure=_SURE)
def ldl_factor(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The factors, pivots and what went wrong, then one work area for all matrices; Hermitian ones are
    MAGMA's, which works on the host (`ldl_factor_kernel`, cuda/linalg/BatchLinearAlgebra.cpp)."""
    script.outputs()
    matrix = solvable(operator, "self")
    if not (operator.argument("hermitian", default=False) and _is_complex(matrix)):
        in_turn(script, 1, cusolver.sytrf_bytes(ELEMENTS[matrix.dtype], matrix.shape[-1]))


@rule("aten::linalg_ldl_solve", name="ldl-solve")
def ldl_solve(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result; copies of pivots that are not contiguous and of factors that lie by rows; the pivots as the
    interface of 64 bits takes them, and a report."""
    script.outputs()
    matrix = solvable(operator, "LD")
    script.copies(operator.tensor("pivots"), turned(matrix))
    script.temporaries(count_of(matrix) * matrix.shape[-1] * INDEX_BYTES, INFO_BYTES)


@rule("aten::triangular_solve", name="triangular-solve-old")
def triangular_solve(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The result and a copy of the matrix; then as `linalg_solve_triangular`."""
    script.outputs()
    if (matrix := typed(operator, "A")).element_count:
        triangular_systems(script, device, count_of(matrix), matrix.shape[-1])
    else:
        take_workspace(script, device)


@rule("aten::ormqr", name="reflected", sure=_SURE)
def ormqr(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The result, copies of reflectors that lie by rows and of scales that are not contiguous, a report, and
    a work area for one matrix after the other."""
    script.outputs()
    other, scales = typed(operator, "input3"), present(operator, "input2")
    element, left = ELEMENTS[other.dtype], bool(operator.argument("left", default=True))
    script.copies(turned(present(operator, "self")), scales)
    script.temporary(INFO_BYTES)
    rows, columns = other.shape[-2:]
    nbytes = cusolver.ormqr_bytes(element, left, rows, columns, scales.shape[-1])
    in_turn(script, count_of(other), nbytes)


@rule("aten::linalg_lstsq", name="least-squares", sure=_SURE)
def lstsq(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A status array; the right-hand sides, whose memory becomes the solution; a copy of the matrix (a wide
    one transposed), factorized as in `qr`; then a product with the reflectors and a triangular solve. Where
    a batch of tall matrices is factorized at once, cuBLAS solves it. Last the residuals; those of complex
    numbers are made of their squares.
    """
    matrix, solution = solvable(operator, "self"), present(operator, 0)
    element, count, (rows, columns) = ELEMENTS[matrix.dtype], count_of(matrix), matrix.shape[-2:]
    width, least, most = dtype_bytes(matrix.dtype), min(rows, columns), max(rows, columns)
    sides = 1 if len(solution.shape) < len(matrix.shape) else solution.shape[-1]
    script.temporary(count * INFO_BYTES)
    script.output(0, count * most * sides * width)
    copy, wide, together = script.temporary(bytes_of(matrix)), columns > rows, at_once(most, count)
    if together and not wide:
        second = script.temporary(bytes_of(matrix))
        addressed(script, device, count, 2)
        script.release(second)
    else:
        scales = script.temporary(count * least * width)
        turned = script.temporary(bytes_of(matrix) if wide else 0)
        if together:
            addressed(script, device, count, 2)
        else:
            reported(script, count, cusolver.geqrf_bytes(element, most, least))
        if wide:
            script.release(*triangular_systems(script, device, count, least)[::-1])
        reported(script, count, cusolver.ormqr_bytes(element, True, most, sides, least))
        if not wide:
            script.release(*triangular_systems(script, device, count, least)[::-1])
        script.release(turned, scales)
    if rows > columns:
        if element.is_complex:
            script.release(script.temporary(count * (rows - columns) * sides * width))
        script.output(1)
    script.release(copy)
    looked_at(script, count)


@rule("aten::_linalg_eigvals", "aten::linalg_eig", name="eigenvalues", sure=_SURE)
def eigenvalues(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Whether all is finite, where vectors are wanted; report, vectors, values and a copy of the matrix, and
    a work area; of real matrices whether all values are real; then the results."""
    matrix = typed(operator, "self")
    vectors = operator.name.endswith("linalg_eig")
    real, count, size = not _is_complex(matrix), count_of(matrix), matrix.shape[-1]
    elements, width = matrix.element_count, _complex_bytes(matrix)
    reports = max(1, count)
    if vectors:
        _finite(script, device, matrix)
    script.temporary(reports * INFO_BYTES)
    vectors_token = script.temporary(elements * width if vectors else 0)
    values = script.temporary(count * size * width)
    parts = [script.temporary(count * size * width if real else 0)]
    copy = script.temporary(contiguous_copy_bytes(turned(matrix)))
    parts.append(script.temporary(bytes_of(matrix) if real and vectors else 0))
    in_turn(script, 1 if elements else 0, cusolver.geev_bytes(ELEMENTS[matrix.dtype], int(vectors), size))
    script.release(copy)
    if real:
        flags = script.temporary(count * size)
        _all(script, device, count * size)
        script.release(flags, *parts[::-1])
    script.output(0)
    if vectors:
        script.output(1)
    script.release(vectors_token, values)
    looked_at(script, reports)


def _finite(script: Script, device: DeviceProfile, matrix: TensorMeta) -> None:
    """Allocate for the test whether every element is finite: of complex ones both parts."""
    elements, parts = matrix.element_count, 2 if _is_complex(matrix) else 1
    flags = []
    for _ in range(parts):
        size = script.temporary(bytes_of(matrix) // parts)
        first, second = script.temporary(elements), script.temporary(elements)
        flags.append(script.temporary(elements))
        script.release(second, first, size)
    script.release(*flags[1:])
    _all(script, device, elements)
    script.release(flags[0])


@rule("aten::_linalg_svd", name="singular-values", sure=_SURE)
def svd(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The results, a report and a copy of the matrix; then by driver: all vectors where only values are
    wanted, and the work area."""
    matrix = solvable(operator, "A")
    vectors = bool(operator.argument("compute_uv", default=True))
    for index in (0, 2, 1) if vectors else (1,):
        script.output(index)
    full = bool(operator.argument("full_matrices", default=False))
    singular(script, matrix, vectors, full, operator.argument("driver"))


def singular(
    script: Script, matrix: TensorMeta, vectors: bool = True, full: bool = False, driver: object = None
) -> None:
    """Allocate for singular values, besides the results. vectors: they are wanted; full: all of them; driver:
    the routine the program names."""
    count, (rows, columns), element = count_of(matrix), matrix.shape[-2:], ELEMENTS[matrix.dtype]
    width, least, most = dtype_bytes(matrix.dtype), min(rows, columns), max(rows, columns)
    script.temporary(count * INFO_BYTES)
    copy = script.temporary(bytes_of(matrix))
    held: list[int] = []
    if driver == "gesvd":
        held.append(script.temporary(cusolver.gesvd_bytes(element, most, least), Basis.MEASURED))
        held.append(script.temporary(least * real_bytes(matrix)))
        held.append(script.temporary(least * least * width if vectors else 0))
    elif driver == "gesvda":
        if not vectors:
            held += [
                script.temporary(count * most * least * width),
                script.temporary(count * least * least * width),
            ]
        in_turn(script, 1, cusolver.gesvda_bytes(element, int(vectors), most, least, count))
    elif rows <= _AT_ONCE and columns <= _AT_ONCE:
        if not vectors or (not full and rows > columns):
            held.append(script.temporary(count * rows * rows * width))
        if not vectors or (not full and columns > rows):
            held.append(script.temporary(count * columns * columns * width))
        in_turn(script, 1, cusolver.gesvdj_batched_bytes(element, int(vectors), rows, columns, count))
    else:
        if not vectors:
            held += [script.temporary(rows * least * width), script.temporary(columns * least * width)]
        in_turn(script, 1, cusolver.gesvdj_bytes(element, int(vectors), int(not full), rows, columns))
    script.release(*held[::-1], copy)
    looked_at(script, count)
