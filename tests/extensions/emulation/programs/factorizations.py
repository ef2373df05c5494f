"""What operators of linear algebra ask for: prints a list of [operator, arguments' shapes and types, keywords, results, events]."""

import itertools
import json

import torch
from histories import events, told

aten = torch.ops.aten


def calls(dtype, batch, n):
    def drawn(*shape):
        return torch.randn(*batch, *shape, dtype=dtype, device="cuda")

    square, tall, wide = drawn(n, n), drawn(n + 7, n), drawn(n, n + 7)
    yield aten.linalg_cholesky_ex.default, (square,)
    yield aten.cholesky_inverse.default, (square,)
    yield aten._cholesky_solve_helper.default, (drawn(n, 3), square, False)
    for matrix in (square, tall, wide):
        yield aten.linalg_lu_factor_ex.default, (matrix,)
        yield aten.geqrf.default, (matrix,)
        yield aten.linalg_qr.default, (matrix,)
    factors, pivots, _ = aten.linalg_lu_factor_ex(square)
    yield aten.lu_unpack.default, (factors, pivots)
    yield aten.linalg_inv_ex.default, (square,)
    for k in (1, 7, 20, 100, 300):
        yield aten.linalg_lu_solve.default, (factors, pivots, drawn(n, k))
        yield aten._linalg_solve_ex.default, (square, drawn(n, k))
    yield aten.linalg_householder_product.default, aten.geqrf(tall)
    yield aten._linalg_eigh.default, (square, "L", True)
    yield aten._linalg_eigh.default, (square, "L", False)


def main():
    torch.mm(*torch.ones(2, 4, 4, device="cuda"))
    for dtype, batch, n in itertools.product(
        (torch.float32, torch.complex128),
        ((), (2,), (3,), (10,), (20,)),
        (4, 16, 17, 33, 64, 100, 130, 300, 520),
    ):
        if batch and batch[0] > 3 and n > 130:
            continue
        for func, args in calls(dtype, batch, n):
            results, found = events(lambda f=func, a=args: f(*a))
            results = results if isinstance(results, (tuple, list)) else (results,)
            print(json.dumps([func.name(), [told(a) for a in args], [told(r) for r in results], found]))


main()
