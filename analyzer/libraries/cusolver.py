"""Work areas of cuSOLVER's dense routines, in bytes on the device.

Sizes that `*_bufferSize` gives, as sums of parts: most are the same number of elements in every type, their
parts rounded up to 32 elements. m rows, n columns, k of them or the smaller of both, tiles of 32:

1. **LU** (getrf): 256 bytes a tile of the smaller side, and more for long columns, which are factorised in
   parts.
2. **Cholesky** (Xpotrf): 4 bytes a pair of tiles, or of an upper triangle 32 elements; and 128.
3. **QR** (Xgeqrf): 1,024 elements a column, 768 columns at least. `orgqr` and `ormqr` work on 128 and 256
   columns at once.
4. **Symmetric eigenvalues** (Xsyevd, XsyevBatched): those of `ormqr` and a matrix, or four matrices where
   that is more; `syevj` keeps one.
5. **Singular values**: `gesvdj` two matrices and tables of pairs of tiles; of a rectangle its QR first;
   `gesvd` a QR and what bidiagonal form takes; `gesvdaStridedBatched` in float64 whatever the type:
   eigenvalues of the square and copies.
6. **General eigenvalues** (Xgeev): the largest of what its stages take, within 2 KiB.

Measured: every one of 84,600 sizes that an H100 gave (CUDA 13.0, up to 8,192;
each seventh in `tests/data/h100/solver_sizes.json.gz`), but for rule 6, and
`syevj` above 2,048. `gesvdj`, `syevd`, `syevj` and XsyevBatched were asked in float32 only: in other types
their elements are taken to be as many. Other GPUs may take others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_TILE = 32
_UPPER = 32
_DOUBLE_BYTES = 8
_PAGE_BYTES = 512


class Element(NamedTuple):
    """A type of matrix elements: bytes of one, and whether it is complex."""

    nbytes: int
    is_complex: bool = False


# By cuSOLVER's letters.
ELEMENTS = {"S": Element(4), "D": Element(8), "C": Element(8, True), "Z": Element(16, True)}


def getrf_bytes(element: Element, m: int, n: int) -> int:
    """LU of m x n.

    >>> getrf_bytes(Element(4), 2048, 2048)
    52480
    """
    rows, columns = _tiles(m), _tiles(n)
    fixed = 256 * (min(rows, columns) + 1)
    if m <= 1536:
        parts = min(16, 1 << (min(rows, columns) - 1).bit_length())
        return fixed + max(256 * parts, _up(4 * rows * columns))
    parts = 8 if m <= 2048 else 16
    return fixed + 256 * parts + element.nbytes * (8192 + 32 * parts)


def potrf_bytes(element: Element, upper: int, n: int) -> int:
    """Return the work area of an n x n Cholesky factorization."""
    return 128 + (_UPPER * element.nbytes if upper else _up(4 * _tiles(n) ** 2))


def geqrf_bytes(element: Element, _m: int, n: int) -> int:
    """Return the work area of an m x n QR factorization."""
    return 128 + element.nbytes * _geqrf(n)


def orgqr_bytes(element: Element, m: int, n: int, k: int) -> int:
    """Return the first n columns of Q, of k reflectors of m rows."""
    return element.nbytes * _orgqr(m, n, k)


def ormqr_bytes(element: Element, left: int, m: int, n: int, k: int) -> int:
    """Q, of k reflectors, times m x n, or that times Q."""
    return element.nbytes * _ormqr(left, m, n, k)


def sytrf_bytes(element: Element, n: int) -> int:
    """LDL of n x n; between 3,000 and 4,096 the larger of two sizes."""
    least = {4: 24608, 8: 13328, 16: 11016}[element.nbytes]
    return element.nbytes * max(least, (64 if n <= 3000 else 128) * n + 64)


def syevd_bytes(element: Element, _vectors: int, _upper: int, n: int, batch: int = 1) -> int:
    """Symmetric eigenvalues of n x n, of a batch at once.

    >>> syevd_bytes(Element(16, True), 1, 0, 2, 8)
    8587776
    """
    return 128 + element.nbytes * _syevd(n, batch)


def syevj_bytes(element: Element, _vectors: int, _upper: int, n: int) -> int:
    """Symmetric eigenvalues of n x n by Jacobi's method, n up to 2,048."""
    tiles = _tiles(n)
    return element.nbytes * (n * n + n + 4 * tiles * tiles + 1025 * tiles + 1024)


def gesvd_bytes(element: Element, m: int, n: int) -> int:
    """Singular values of m x n, m not below n, by QR iteration."""
    square, matrix = _up(n * n), _up(m * n)
    bidiagonal = _ormqr(0, m, n, n) + 3 * _up(n)
    if m == n:
        return element.nbytes * (bidiagonal + square)
    first = _geqrf(n) + _orgqr(m, m, n) + matrix + _up(n) + _TILE
    return element.nbytes * (max(first, bidiagonal + 2 * matrix) + 2 * square)


def gesvdj_bytes(element: Element, _vectors: int, reduced: int, m: int, n: int) -> int:
    """Singular values of m x n by Jacobi's method."""
    k, longer = min(m, n), max(m, n)
    tiles = _tiles(k)
    square = _up(2 * k * k) + _up(k + 4 * tiles * tiles + 1025 * tiles) + 1024 * tiles + 1024
    if m == n:
        return element.nbytes * square
    factored = _up(k) + max(_geqrf(k) + _TILE, _ormqr(1, longer, k if reduced else longer, k))
    return element.nbytes * max(factored + (_up(m * n) if m < n else 0), _up(k * k) + square)


def gesvdj_batched_bytes(element: Element, _vectors: int, _m: int, _n: int, _batch: int) -> int:
    """Singular values of a batch of at most 32 x 32 each."""
    return element.nbytes * 992


def gesvda_bytes(element: Element, _vectors: int, m: int, n: int, batch: int) -> int:
    """Approximate singular values of a batch of m x n, m not below n."""
    double_bytes = 16 if element.is_complex else _DOUBLE_BYTES
    step = 32 // double_bytes

    def up(count: int) -> int:
        return -(-count // step) * step

    work = 1028 + batch * (n * n + 2 * n + 1025) if n <= _TILE else _syevd(n, batch)
    if element.nbytes != double_bytes:  # where the matrices are converted
        work = max(work, up(batch * m * n))
    real = -(-batch * n // 2) if element.is_complex else batch * n
    return double_bytes * (work + up(batch * m * n) + up(real) + up(batch * (n * n + 2 * n)))


def geev_bytes(element: Element, _vectors: int, n: int) -> int:
    """Eigenvalues of n x n, within 2 KiB."""
    e = element.nbytes
    columns = (7 if element.is_complex else 8) * e * n // 2
    if n <= 128:
        nbytes = max(e * n * n + columns + 32992 * e, 3 * e * n * n + 16512 * e)
    else:
        nbytes = max(388 * e * n + 16376 * e - element.is_complex * e * n // 2, e * n * n + columns + 128)
    return -(-nbytes // _PAGE_BYTES) * _PAGE_BYTES


# By the name of cuSOLVER's function, without `cusolverDn`, the type and `_bufferSize`; each takes an element
# and the numbers that
# `native/solver.c` sends. Those that begin with X are asked for bytes, the others for elements.
ROUTINES: dict[str, Callable[..., int]] = {
    "potrf": potrf_bytes,
    "Xpotrf": potrf_bytes,
    "getrf": getrf_bytes,
    "geqrf": lambda of, m, n: geqrf_bytes(of, m, n) - 128,
    "Xgeqrf": geqrf_bytes,
    "orgqr": orgqr_bytes,
    "ormqr": ormqr_bytes,
    "sytrf": sytrf_bytes,
    "Xsytrs": lambda of, upper, n, right: 0,
    "syevd": lambda of, *numbers: syevd_bytes(of, *numbers) - 128,
    "Xsyevd": syevd_bytes,
    "XsyevBatched": syevd_bytes,
    "syevj": syevj_bytes,
    "gesvd": gesvd_bytes,
    "gesvdj": gesvdj_bytes,
    "gesvdjBatched": gesvdj_batched_bytes,
    "gesvdaStridedBatched": gesvda_bytes,
    "Xgeev": geev_bytes,
}


def _geqrf(n: int) -> int:
    return 1024 * (max(n, 256) + 512)


def _orgqr(m: int, n: int, k: int) -> int:
    block = min(k, 128)
    return 256 + _up(m * block) + max(32768, 16384 + _up(2 * n * block))


def _ormqr(left: int, m: int, n: int, k: int) -> int:
    rows, columns = (m, n) if left else (n, m)  # of Q, and of what it is applied to
    longer = max(rows, columns)
    count = 65792 + 256 * columns + _up(k * k + k * longer) + (_up(columns) if longer > _TILE else 0)
    return count + (256 * (rows + columns) if left else 0)


def _syevd(n: int, batch: int) -> int:
    once = batch * (n * n + 770 * n + 65539) + _up(batch * (n - 1) * (2 * n - 1))
    once += _up(batch * n) if n > _TILE else 0
    twice = batch * (n * n + 130 * n + 32899) + _up(batch * n) + _up(batch * (3 * n - 1) * (n - 1))
    return max(once, twice) + _TILE


def _tiles(count: int) -> int:
    return -(-count // _TILE)


def _up(count: int) -> int:
    return -(-count // _TILE) * _TILE
