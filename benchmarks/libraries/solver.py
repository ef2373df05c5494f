"""Part `solver`: what cuSOLVER says its work areas take, asked as PyTorch asks (`aten/src/ATen/native/cuda/linalg/CUDASolver.cpp`).

Rows: function (without `cusolverDn` and `_bufferSize`, S for real and complex types alike), type (S, D, C, Z), its numbers in the
order of `ROUTINES`, then status and size: elements (the older interface) or bytes on the device and on the host (names that begin
with X). Matrices are columns first, as PyTorch hands them over: the leading dimension is the number of rows.
"""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

TYPES = "SDCZ"
_TYPE_NUMBERS = {"S": 0, "D": 1, "C": 4, "Z": 5}
_REAL = {"S": "S", "D": "D", "C": "S", "Z": "D"}
_COMPLEX_NAMES = {
    "orgqr": "ungqr",
    "ormqr": "unmqr",
    "syevd": "heevd",
    "syevj": "heevj",
    "syevjBatched": "heevjBatched",
}
_LARGEST_N, _MOST_ELEMENTS = 8192, 2**28


def _squares(drawn: random.Random) -> Iterable[tuple[int, ...]]:
    sizes = [
        *range(1, 140),
        160,
        192,
        224,
        *range(255, 260),
        *range(511, 516),
        *range(1023, 1027),
        2047,
        2048,
        2049,
        4096,
        _LARGEST_N,
    ]
    return [
        (n,)
        for n in (
            *sizes,
            *(drawn.randint(1, 3000) for _ in range(120)),
            *(drawn.randint(3000, 4200) for _ in range(30)),
        )
    ]


def _rectangles(drawn: random.Random) -> Iterable[tuple[int, int]]:
    small = itertools.product(
        (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 256, 257), repeat=2
    )
    large = [(drawn.randint(1, 2500), drawn.randint(1, 2500)) for _ in range(250)]
    return [
        *small,
        *large,
        (512, 512),
        (1024, 1024),
        (2048, 2048),
        (4096, 512),
        (512, 4096),
        (8192, 64),
        (64, 8192),
    ]


def _tall(drawn: random.Random) -> Iterable[tuple[int, int]]:
    return [pair for pair in _rectangles(drawn) if pair[0] >= pair[1]]


def _householder(drawn: random.Random) -> Iterable[tuple[int, int, int]]:
    for m, n in _tall(drawn):
        yield m, n, n
        yield m, n, drawn.randint(1, n)


def _applied(drawn: random.Random) -> Iterable[tuple[int, ...]]:
    for left, transposed, (m, n) in itertools.product((0, 1), (0, 1), _rectangles(drawn)):
        most = m if left else n
        yield left, transposed, m, n, most
        yield left, transposed, m, n, drawn.randint(1, most)


def _with(
    first: Iterable[Any],
    sizes: Callable[[random.Random], Iterable[tuple[int, ...]]],
    last: Iterable[int] | None = None,
) -> Any:
    kinds = list(first)

    def listed(drawn: random.Random) -> Iterable[tuple[int, ...]]:
        for one, size in itertools.product(kinds, list(sizes(drawn))):
            for batch in last or (None,):
                yield (*one, *size, *(() if batch is None else (batch,)))

    return listed


_BATCHES = (1, 2, 3, 7, 8, 9, 32, 64, 100, 513)
_ONE = [(0,), (1,)]
_SMALL = [(m, n) for m, n in itertools.product((1, 2, 3, 5, 8, 16, 17, 24, 31, 32), repeat=2)]
_BATCHED_N = [(n,) for n in (*range(1, 34), 40, 48, 63, 64, 65, 100, 128, 129, 200, 256, 400, 512, 513, 1000)]
# Function -> its numbers. Of factors: (vectors wanted, ...); of triangles: (upper, ...).
ROUTINES: dict[str, Callable[[random.Random], Iterable[tuple[int, ...]]]] = {
    "potrf": _with(_ONE, _squares),  # upper, n
    "Xpotrf": _with(_ONE, _squares),
    "getrf": _rectangles,  # m, n
    "geqrf": _rectangles,
    "Xgeqrf": _rectangles,
    "orgqr": _householder,  # m, n, k
    "ormqr": _applied,  # left, transposed, m, n, k
    "sytrf": _squares,  # n
    "Xsytrs": lambda drawn: [
        (upper, n, k) for upper in (0, 1) for (n,) in _squares(drawn) for k in (1, 5, 64)
    ],  # upper, n, right sides
    "gesvd": _tall,  # m, n
    "gesvdj": _with(itertools.product((0, 1), (0, 1)), _rectangles),  # vectors, reduced, m, n
    "gesvdjBatched": _with(_ONE, lambda drawn: _SMALL, _BATCHES),  # vectors, m, n, batch
    "gesvdaStridedBatched": _with(_ONE, _tall, (1, 2, 8, 33)),  # vectors, m, n, batch
    "syevd": _with(itertools.product((0, 1), (0, 1)), _squares),  # vectors, upper, n
    "Xsyevd": _with(itertools.product((0, 1), (0, 1)), _squares),
    "syevj": _with(itertools.product((0, 1), (0, 1)), _squares),
    "syevjBatched": _with(
        itertools.product((0, 1), (0,)), lambda drawn: _BATCHED_N, _BATCHES
    ),  # vectors, upper, n, batch
    "XsyevBatched": _with(itertools.product((0, 1), (0, 1)), lambda drawn: _BATCHED_N, _BATCHES),
    "Xgeev": _with(_ONE, _squares),  # vectors (right), n
}


class _Solver:
    def __init__(self) -> None:
        import torch

        from benchmarks.libraries.measure import library

        torch.linalg.cholesky(torch.eye(4, device="cuda"))
        self._of = library("libcusolver.so")
        self._handle, self._params, self._svd, self._eig = (ctypes.c_void_p() for _ in range(4))
        for name, place in (
            ("Create", self._handle), ("CreateParams", self._params), ("CreateGesvdjInfo", self._svd),
            ("CreateSyevjInfo", self._eig),
        ):  # fmt: skip
            getattr(self._of, f"cusolverDn{name}")(ctypes.byref(place))
        self._memory = torch.zeros(2**20, dtype=torch.uint8, device="cuda")
        self._at = ctypes.c_void_p(self._memory.data_ptr())

    def ask(self, name: str, kind: str, numbers: tuple[int, ...]) -> list[int]:
        """Status, then the size, or both sizes."""
        if name.startswith("X"):
            device, host = ctypes.c_size_t(), ctypes.c_size_t()
            function = getattr(self._of, f"cusolverDn{name}_bufferSize")
            arguments = self._newer(name, kind, numbers, ctypes.byref(device), ctypes.byref(host))
            return [int(function(self._handle, *arguments)), device.value, host.value]
        size = ctypes.c_int(-1)
        own = _COMPLEX_NAMES.get(name, name) if kind in "CZ" else name
        function = getattr(self._of, f"cusolverDn{kind}{own}_bufferSize")
        arguments = self._older(name, kind, numbers, ctypes.byref(size))
        return [int(function(self._handle, *arguments)), size.value]

    def _older(self, name: str, kind: str, numbers: tuple[int, ...], size: Any) -> list[Any]:
        at, wide = self._at, ctypes.c_longlong
        match name:
            case "potrf":
                upper, n = numbers
                return [upper, n, at, n, size]
            case "getrf" | "geqrf":
                m, n = numbers
                return [m, n, at, m, size]
            case "orgqr":
                m, n, k = numbers
                return [m, n, k, at, m, at, size]
            case "ormqr":
                left, transposed, m, n, k = numbers
                transposed *= 2 if kind in "CZ" else 1  # complex matrices are conjugated too
                return [1 - left, transposed, m, n, k, at, m if left else n, at, at, m, size]
            case "sytrf":
                return [*numbers, at, *numbers, size]
            case "gesvd":
                return [*numbers, size]
            case "gesvdj":
                vectors, reduced, m, n = numbers
                return [vectors, reduced, m, n, at, m, at, at, m, at, n, size, self._svd]
            case "gesvdjBatched":
                vectors, m, n, batch = numbers
                return [vectors, m, n, at, m, at, at, m, at, n, size, self._svd, batch]
            case "gesvdaStridedBatched":
                vectors, m, n, batch = numbers
                k = min(m, n)
                return [
                    vectors, k, m, n, at, m, wide(m * n), at, wide(k), at, m, wide(m * k), at, n, wide(n * k), size, batch,
                ]  # fmt: skip
            case "syevd" | "syevj" | "syevjBatched":
                vectors, upper, n, *batch = numbers
                last = [] if name == "syevd" else [self._eig, *batch]
                return [vectors, upper, n, at, n, at, size, *last]
        raise ValueError(name)

    def _newer(self, name: str, kind: str, numbers: tuple[int, ...], device: Any, host: Any) -> list[Any]:
        at, own, real = self._at, _TYPE_NUMBERS[kind], _TYPE_NUMBERS[_REAL[kind]]
        wide = [ctypes.c_int64(number) for number in numbers]
        match name:
            case "Xpotrf":
                return [self._params, numbers[0], wide[1], own, at, wide[1], own, device, host]
            case "Xgeqrf":
                return [self._params, *wide, own, at, wide[0], own, at, own, device, host]
            case "Xsytrs":
                _, n, right = wide
                return [numbers[0], n, right, own, at, n, at, own, at, n, device, host]
            case "Xsyevd" | "XsyevBatched":
                vectors, upper, n, *batch = wide
                vectors, upper = numbers[:2]
                return [self._params, vectors, upper, n, own, at, n, real, at, own, device, host, *batch]
            case "Xgeev":
                n = wide[1]
                return [
                    self._params, 0, numbers[0], n, own, at, n, own, at, own, at, n, own, at, n, own, device, host,
                ]  # fmt: skip
        raise ValueError(name)


def measure(rows: Any) -> None:
    """Ask for every routine, type and size."""
    from benchmarks.libraries.measure import about

    solver, drawn = _Solver(), random.Random(0)
    rows.add(about())
    for name, kind in itertools.product(ROUTINES, rows.mine(list(TYPES))):
        for numbers in ROUTINES[name](drawn):
            if not rows.left():
                return
            if max(numbers) <= _LARGEST_N and numbers[-1] * max(numbers) <= _MOST_ELEMENTS:
                rows.add([name, kind, *numbers, *solver.ask(name, kind, numbers)])
