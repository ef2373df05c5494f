"""Functions of matrices: exponentials, square roots of Hermitian ones, and polar decompositions.

1. An exponential is a polynomial of a degree that the matrix's norm decides, of the matrix halved so often
   that its norm is small, and then squared as often. Of several matrices the degree is the highest, 18; of
   one it is taken to be. Its five powers lie in one piece, and so do the five sums made of them: together
   they are the peak.
2. A square root is made of eigenvalues and eigenvectors, a polar decomposition of singular values and vectors
   (`factorizations.py`, `decompositions.py`), and made equal to its adjoint.

Source: `aten/src/ATen/native/LinearAlgebra.cpp` (`mexp_impl`, `compute_T18_scale_square`, `compute_T18`,
`operator_1_norm`); orders and sizes as PyTorch's own host code asks under the emulated runtime (torch 2.11
and 2.15), of square roots and polar decompositions torch 2.15, the first release that has them.

Not modelled: matrices that are squared a different number of times (more than four of them take more than the
polynomial does), and a single matrix whose norm asks for a lower degree, which takes less.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.runtimes.pytorch.scratch.blas import take_workspace
from analyzer.runtimes.pytorch.scratch.cub import changes_bytes, runs_bytes, scan_bytes
from analyzer.runtimes.pytorch.scratch.decompositions import real_bytes, singular
from analyzer.runtimes.pytorch.scratch.factorizations import (
    INDEX_BYTES,
    INFO_BYTES,
    count_of,
    solvable,
    symmetric,
)
from analyzer.runtimes.pytorch.scratch.layout import bytes_of
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, rule
from analyzer.runtimes.pytorch.scratch.sorting import sort_rows

_POWERS = 5  # of a matrix, from which its exponential is made
_NUMBER_BYTES = 8  # a Python number as a tensor, and float64
_SURE = (Basis.EXACT, Basis.MEASURED)


@rule("aten::linalg_matrix_exp", name="matrix-exponential", sure=(Basis.EXACT, Basis.BOUNDED))
def matrix_exponential(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The matrix's norm; of a single one the result, and copies of matrix and norm; then the polynomial of
    degree 18 and one squaring, all matrices together."""
    matrix = filled(operator, "self")
    if matrix.shape[-1] == 1:
        script.outputs()
        return
    norm = _norms(script, matrix)
    if count_of(matrix) > 1:
        made = _scaled_and_squared(script, device, matrix, Basis.EXACT)
        script.output(0)
        script.release(*made[::-1])
    else:
        script.output(0)
        held = [
            script.temporary(nbytes, Basis.BOUNDED)
            for nbytes in (INDEX_BYTES, bytes_of(matrix), real_bytes(matrix))
        ]
        made = _scaled_and_squared(script, device, matrix, Basis.BOUNDED)
        found = script.temporary(bytes_of(matrix), Basis.BOUNDED)
        script.release(*made[::-1])
        script.release(script.temporary(INDEX_BYTES))
        script.release(found, *held[::-1])
    script.release(norm)


def _norms(script: Script, matrix: TensorMeta) -> int:
    """Each matrix's norm, the largest sum of a column (`operator_1_norm`); return its token."""
    real, count = real_bytes(matrix), count_of(matrix)
    sizes = [script.temporary(matrix.element_count * real)]
    # Of complex numbers absolute values are complex first.
    script.release(script.temporary(bytes_of(matrix) if real < dtype_bytes(matrix.dtype) else 0))
    sizes.append(script.temporary(count * matrix.shape[-1] * real))
    norm = script.temporary(count * real)
    sizes.append(script.temporary(count * INDEX_BYTES))
    script.release(*sizes[::-1])
    return norm


def _scaled_and_squared(script: Script, device: DeviceProfile, matrix: TensorMeta, basis: Basis) -> list[int]:
    """`compute_T18_scale_square` up to its result, of matrices all squared once; return what is held until
    that is made. basis: of the polynomial, which may not be the one."""
    size, count, real = bytes_of(matrix), count_of(matrix), real_bytes(matrix)
    quotients = [script.temporary(count * real) for _ in range(3)]
    held = [script.temporary(count * real)]  # how often each is squared
    script.release(*quotients[::-1])
    negative = script.temporary(count * real)
    held.append(script.temporary(count * real))
    script.release(script.temporary(_NUMBER_BYTES), negative)
    held.append(script.temporary(size, basis))
    held.append(_polynomial(script, device, matrix, basis))
    values = script.temporary(count * real)
    order = script.temporary(count * INDEX_BYTES)
    row = TensorMeta(0, (count,), (1,), "float64" if real == _NUMBER_BYTES else "float32", 0)
    with script.function():
        sort_rows(script, device, row, 0)
    held += [script.temporary(count * INDEX_BYTES), order]
    script.release(values)
    held.append(_runs(script, device, count))
    one = INDEX_BYTES  # what there is for each number of squarings, of which there is one
    total = script.temporary(one)
    script.release(script.temporary(scan_bytes(device, 1)))
    held.append(script.temporary(one))
    script.release(total)
    last = script.temporary(one)
    held.append(script.temporary(one))
    script.release(last)
    nothing = script.temporary(one)
    joined = script.temporary(2 * one)
    held.append(script.temporary(one))
    script.release(joined, nothing)
    script.release(script.temporary(2 * one))
    before = script.temporary(size, Basis.BOUNDED)
    held.append(script.temporary(size, Basis.BOUNDED))
    take_workspace(script, device)
    script.release(before)
    held.append(script.temporary(size, Basis.BOUNDED))
    values, places = script.temporary(count * INDEX_BYTES), script.temporary(count * INDEX_BYTES)
    with script.function():
        sort_rows(script, device, TensorMeta(0, (count,), (1,), "int64", 0), 0)
    script.release(values)
    return [*held, places]


def _polynomial(script: Script, device: DeviceProfile, matrix: TensorMeta, basis: Basis) -> int:
    """`compute_T18`: coefficients, powers and sums; return the token of the sums, one of which is the
    result."""
    size = bytes_of(matrix)
    coefficients = script.temporary(_POWERS**2 * real_bytes(matrix), basis)
    powers = script.temporary(_POWERS * size, basis)
    one = script.temporary(dtype_bytes(matrix.dtype))
    script.release(script.temporary(size, basis), one)
    for _ in range(3):
        take_workspace(script, device)
    sums = script.temporary(_POWERS * size, basis)
    for _ in range(2):
        take_workspace(script, device)
    script.release(powers, coefficients)
    return sums


def _runs(script: Script, device: DeviceProfile, count: int) -> int:
    """How many matrices are squared how often (`unique_consecutive`); return the counts' token."""
    places = script.temporary(count * INDEX_BYTES)
    changes = script.temporary(count * INFO_BYTES)
    script.release(script.temporary(changes_bytes(device, count)))
    script.release(changes)
    values = script.temporary(count * INDEX_BYTES)
    length = script.temporary(INDEX_BYTES)
    counts = script.temporary(count * INDEX_BYTES)
    script.release(script.temporary(runs_bytes(count)))
    script.release(length, values, places)
    return counts


@rule("aten::linalg_matrix_sqrth", name="matrix-square-root", sure=_SURE)
def matrix_square_root(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Eigenvectors and eigenvalues, these's roots, their product with the vectors, and half the sum of that
    and its adjoint; complex vectors and products are copied where they are conjugated."""
    matrix = solvable(operator, "self")
    size, conjugated = bytes_of(matrix), _conjugated_bytes(matrix)
    values = count_of(matrix) * matrix.shape[-1] * real_bytes(matrix)
    held = [script.temporary(size), script.temporary(values)]
    with script.function():
        symmetric(script, matrix)
    positive = script.temporary(values)
    held.append(script.temporary(values))
    script.release(positive)
    scaled = script.temporary(size)
    copy = script.temporary(conjugated)
    product = script.temporary(size)
    take_workspace(script, device)
    script.release(copy, scaled)
    total = script.temporary(size)
    script.release(script.temporary(conjugated))
    script.output(0)
    script.release(total, product)
    script.release(*held[::-1])


@rule("aten::linalg_polar", name="polar-decomposition", sure=_SURE)
def polar_decomposition(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The results; singular vectors and values; half the sum of the vectors' product and its adjoint, copied
    into the second, and the product of both sides' vectors, into the first. Complex ones are conjugated into
    copies."""
    script.outputs()
    matrix = solvable(operator, "A")
    count, (rows, columns) = count_of(matrix), matrix.shape[-2:]
    square, conjugated = bytes_of(matrix) // rows * columns, bool(_conjugated_bytes(matrix))
    vectors, other = script.temporary(bytes_of(matrix)), script.temporary(square)
    values = script.temporary(count * columns * real_bytes(matrix))
    with script.function():
        singular(script, matrix)
    scaled = script.temporary(square)
    script.release(script.temporary(square if conjugated else 0))
    product = script.temporary(square)
    take_workspace(script, device)
    script.release(scaled)
    total = script.temporary(square)
    script.release(script.temporary(square if conjugated else 0))
    half = script.temporary(square)
    script.release(total, product)
    copy = script.temporary(square if conjugated else 0)
    product = script.temporary(bytes_of(matrix))
    take_workspace(script, device)
    script.release(copy, product, half, vectors, values, other)


def _conjugated_bytes(matrix: TensorMeta) -> int:
    """Bytes of a copy of conjugated matrices; of real ones none is made."""
    return bytes_of(matrix) if real_bytes(matrix) < dtype_bytes(matrix.dtype) else 0
