"""What determinants, eigenvalues, singular values and solvers ask for: prints as `factorizations.py` does."""

import itertools
import json

import torch
from histories import events, told

aten = torch.ops.aten


def calls(dtype, batch, n):
    def drawn(*shape):
        return torch.randn(*batch, *shape, dtype=dtype, device="cuda")

    square, tall, wide = drawn(n, n), drawn(n + 7, n), drawn(n, n + 7)
    yield aten._linalg_det.default, (square,)
    yield aten._linalg_det.default, (square.mT,)
    yield aten._linalg_slogdet.default, (square,)
    yield aten.cholesky.default, (square, False)
    yield aten.cholesky.default, (square, True)
    yield aten._linalg_eigvals.default, (square,)
    yield aten.linalg_eig.default, (square,)
    yield aten.linalg_ldl_factor_ex.default, (square,)
    factors, pivots, _ = aten.linalg_ldl_factor_ex(square)
    yield aten.linalg_ldl_solve.default, (factors, pivots, drawn(n, 3))
    for matrix in (square, tall, wide, drawn(n + 500, n), drawn(n, n + 500)):
        yield aten.linalg_lu_factor_ex.default, (matrix,), {"pivot": False}
        yield aten.linalg_lu.default, (matrix,), {"pivot": True}
        yield aten.linalg_lu.default, (matrix,), {"pivot": False}
        for full, vectors in ((True, True), (False, True), (False, False)):
            for driver in (None, "gesvd", "gesvdj", "gesvda"):
                if driver != "gesvda" or not full:
                    yield aten._linalg_svd.default, (matrix, full, vectors), {"driver": driver}
    for matrix in (square, tall, wide, drawn(n + 200, n)):
        rows = matrix.shape[-2]
        yield aten.linalg_lstsq.default, (matrix, drawn(rows, 5))
        if not batch:
            yield aten.linalg_lstsq.default, (matrix, drawn(rows))
    for k in (1, 7, 100):
        yield aten.triangular_solve.default, (drawn(n, k), square)
    reflectors, scales = aten.geqrf(tall)
    for left, other in ((True, drawn(n + 7, 5)), (False, drawn(5, n + 7))):
        for transposed in (False, True):
            yield aten.ormqr.default, (reflectors, scales, other, left, transposed)


def main():
    torch.mm(*torch.ones(2, 4, 4, device="cuda"))
    for dtype, batch, n in itertools.product(
        (torch.float32, torch.complex64, torch.complex128),
        ((), (2,), (3, 2), (20,)),
        (4, 16, 33, 64, 130, 300, 600),
    ):
        if (batch and batch != (2,) and n > 130) or (dtype is torch.complex64 and n in (16, 64, 600)):
            continue
        for func, args, *keywords in calls(dtype, batch, n):
            given = keywords[0] if keywords else {}
            results, found = events(lambda f=func, a=args, k=given: f(*a, **k))
            results = results if isinstance(results, (tuple, list)) else (results,)
            print(
                json.dumps([func.name(), [told(a) for a in args], [told(r) for r in results], found, given])
            )


main()
