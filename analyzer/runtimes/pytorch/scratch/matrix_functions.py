"""Functions of matrices: exponentials, square roots of Hermitian ones, and polar decompositions.

1. An exponential is a polynomial of a degree that the matrix's norm decides, of the matrix halved so often
   that its norm is small, and then squared as often. Of several matrices the degree is the highest, 18; of
   one it is taken to be, and may take less, down to nothing (of a small norm: the matrix and ones). Its five
   powers lie in one piece, and so do the five sums made of them: together they are the peak.
2. A square root is made of eigenvalues and eigenvectors, a polar decomposition of singular values and vectors
   (`factorizations.py`, `decompositions.py`), and made equal to its adjoint.

Source: `aten/src/ATen/native/LinearAlgebra.cpp` (`mexp_impl`, `compute_T18_scale_square`, `compute_T18`,
`operator_1_norm`); orders and sizes as PyTorch's own host code asks under the emulated runtime (torch 2.11
and 2.15), of square roots and polar decompositions torch 2.15, the first release that has them.

Not modelled: matrices that are squared a different number of times (more than four of them take more than the
polynomial does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.runtimes.pytorch.scratch.cub import changes_bytes, runs_bytes, scan_bytes
from analyzer.runtimes.pytorch.scratch.decompositions import real_bytes, singular
from analyzer.runtimes.pytorch.scratch.factorizations import (
    INDEX_BYTES,
    INFO_BYTES,
    Steps,
    StepSize,
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
    _norms(script, device, matrix)
    if count_of(matrix) > 1:
        give_back = _scaled_and_squared(script, device, matrix, Basis.EXACT)
        script.output(0)
        give_back()
        return
    script.output(0)
    for nbytes in (INDEX_BYTES, bytes_of(matrix), real_bytes(matrix)):
        script.temporary(*_at_most(nbytes))
    give_back = _scaled_and_squared(script, device, matrix, Basis.BOUNDED)
    script.temporary(*_at_most(bytes_of(matrix)))
    give_back()
    script.release(script.temporary(INDEX_BYTES))


def _at_most(nbytes: int) -> tuple[int, Basis, str, tuple[int, ...], int, int]:
    """Return the arguments of `Script.temporary` for what is taken at most."""
    return nbytes, Basis.BOUNDED, "", (), 0, nbytes


def _norms(script: Script, device: DeviceProfile, matrix: TensorMeta) -> None:
    """Each matrix's norm, the largest sum of a column (`operator_1_norm`), which stays; of complex numbers
    absolute values are complex first."""
    real, count = real_bytes(matrix), count_of(matrix)
    steps = Steps(
        script,
        device,
        absolute=matrix.element_count * real,
        whole=_conjugated_bytes(matrix),
        sums=count * matrix.shape[-1] * real,
        norm=count * real,
        places=count * INDEX_BYTES,
    )
    steps("absolute whole -whole sums norm places -places -sums -absolute")


def _scaled_and_squared(
    script: Script, device: DeviceProfile, matrix: TensorMeta, basis: Basis
) -> Callable[[], None]:
    """`compute_T18_scale_square` up to its result, of matrices all squared once; return what gives back the
    memory that is held until that is made. basis: of the polynomial, which may not be the one."""
    size, count, real = bytes_of(matrix), count_of(matrix), real_bytes(matrix)

    def known(nbytes: int) -> StepSize:
        return _at_most(nbytes) if basis == Basis.BOUNDED else nbytes

    steps = Steps(
        script,
        device,
        **dict.fromkeys(("half", "quarter", "eighth", "times", "negative", "power", "norms"), count * real),
        **dict.fromkeys(("order", "sorted", "starts", "values", "counts"), count * INDEX_BYTES),
        **dict.fromkeys(("keys", "places"), count * INDEX_BYTES),
        **dict.fromkeys(("length", "total", "ends", "last", "begins", "nothing", "splits"), INDEX_BYTES),
        **dict.fromkeys(("joined", "pair"), 2 * INDEX_BYTES),
        **dict.fromkeys(("scaled", "copy"), known(size)),
        **dict.fromkeys(("powers", "sums"), known(_POWERS * size)),
        **dict.fromkeys(("before", "squared", "result"), _at_most(size)),
        coefficients=known(_POWERS**2 * real),
        unit=dtype_bytes(matrix.dtype),
        number=_NUMBER_BYTES,
        changes=count * INFO_BYTES,
        numbered=changes_bytes(device, count),
        runs=runs_bytes(count),
        scan=scan_bytes(device, 1),
    )
    steps("half quarter eighth times -eighth -quarter -half negative power number -number -negative scaled")
    # `compute_T18`: coefficients, powers, and sums, one of which is the result.
    steps("coefficients powers unit copy -copy -unit cublas cublas cublas sums cublas cublas -powers")
    steps("-coefficients norms order")
    row = TensorMeta(0, (count,), (1,), "float64" if real == _NUMBER_BYTES else "float32", 0)
    with script.function():
        sort_rows(script, device, row, 0)
    # How many matrices are squared how often (`unique_consecutive`); there is one number of squarings.
    steps("sorted -norms starts changes numbered -numbered -changes values length counts runs -runs -length")
    steps("-values -starts total scan -scan ends -total last begins -last nothing joined splits -joined")
    steps("-nothing pair -pair before squared cublas -before result keys places")
    with script.function():
        sort_rows(script, device, replace(row, dtype="int64"), 0)
    steps("-keys")
    held = "places result squared splits begins ends counts order sorted sums scaled power times"
    return partial(steps, " ".join(f"-{name}" for name in held.split()))


@rule("aten::linalg_matrix_sqrth", name="matrix-square-root", sure=_SURE)
def matrix_square_root(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Eigenvectors and eigenvalues, these's roots, their product with the vectors, and half the sum of that
    and its adjoint; complex vectors and products are copied where they are conjugated."""
    matrix = solvable(operator, "self")
    values = count_of(matrix) * matrix.shape[-1] * real_bytes(matrix)
    steps = Steps(
        script,
        device,
        **dict.fromkeys(("vectors", "scaled", "product", "total"), bytes_of(matrix)),
        **dict.fromkeys(("values", "positive", "roots"), values),
        **dict.fromkeys(("copy", "adjoint"), _conjugated_bytes(matrix)),
    )
    steps("vectors values")
    with script.function():
        symmetric(script, matrix)
    steps("positive roots -positive scaled copy product cublas -copy -scaled total adjoint -adjoint o")


@rule("aten::linalg_polar", name="polar-decomposition", sure=_SURE)
def polar_decomposition(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The results; singular vectors and values; half the sum of the vectors' product and its adjoint, copied
    into the second, and the product of both sides' vectors, into the first. Complex ones are conjugated into
    copies."""
    script.outputs()
    matrix = solvable(operator, "A")
    rows, columns = matrix.shape[-2:]
    square = bytes_of(matrix) // rows * columns
    steps = Steps(
        script,
        device,
        **dict.fromkeys(("vectors", "whole"), bytes_of(matrix)),
        **dict.fromkeys(("other", "scaled", "product", "total", "half"), square),
        **dict.fromkeys(("conjugate", "adjoint", "copy"), square if _conjugated_bytes(matrix) else 0),
        values=count_of(matrix) * columns * real_bytes(matrix),
    )
    steps("vectors other values")
    with script.function():
        singular(script, matrix)
    steps("scaled conjugate -conjugate product cublas -scaled total adjoint -adjoint half -total -product")
    steps("copy whole cublas -copy -whole -half -vectors -values -other")


def _conjugated_bytes(matrix: TensorMeta) -> int:
    """Return the bytes of a copy of conjugated matrices; of real ones none is made."""
    return bytes_of(matrix) if real_bytes(matrix) < dtype_bytes(matrix.dtype) else 0
