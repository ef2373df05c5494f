"""Part `routines`: `torch.linalg` run, and what PyTorch allocated for it.

Rows: name (of `ROUTINES`), type, batch, rows, columns, then the requests of the call, of the backward pass where there is one, or an
error. Each is run twice; the second is recorded.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

DTYPES = ("float32", "float64", "complex64", "complex128")
_SQUARE, _ANY, _TALL = "square", "any", "tall"
_SLOW = {
    "eig",
    "eigvals",
    "svd_gesvd",
    "svd",
    "svdvals",
    "pinv",
    "matrix_rank",
    "ldl_factor",
    "ldl_solve",
    "cond",
}
_MOST_ELEMENTS, _SLOW_ROWS, _MOST_LOOPED = 2**21, 600, 2000


def _positive(a: Any) -> Any:
    import torch

    return a @ a.mH + a.shape[-1] * torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)


def _routines() -> dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Name -> (shapes it takes, what is made of a random matrix first, the call)."""
    import torch

    la = torch.linalg

    def as_is(a: Any) -> Any:
        return a

    def hermitian(a: Any) -> Any:
        return a + a.mH

    return {
        "cholesky": (_SQUARE, _positive, la.cholesky),
        "cholesky_upper": (_SQUARE, _positive, lambda a: la.cholesky(a, upper=True)),
        "cholesky_solve": (_SQUARE, _positive, lambda a: torch.cholesky_solve(a[..., :3], a)),
        "cholesky_inverse": (_SQUARE, _positive, torch.cholesky_inverse),
        "lu": (_ANY, as_is, la.lu),
        "lu_factor": (_ANY, as_is, la.lu_factor),
        "lu_factor_no_pivot": (_ANY, as_is, lambda a: la.lu_factor(a, pivot=False)),
        "lu_solve": (_SQUARE, la.lu_factor, lambda f: la.lu_solve(*f, f[0][..., :3].clone())),
        "lu_solve_adjoint": (_SQUARE, la.lu_factor, lambda f: la.lu_solve(*f, f[0][..., :3].clone(), adjoint=True)),
        "solve": (_SQUARE, as_is, lambda a: la.solve(a, a[..., :3])),
        "solve_vector": (_SQUARE, as_is, lambda a: la.solve(a, a[..., 0])),
        "solve_right": (_SQUARE, as_is, lambda a: la.solve(a, a[..., :3, :], left=False)),
        "inv": (_SQUARE, as_is, la.inv),
        "det": (_SQUARE, as_is, la.det),
        "slogdet": (_SQUARE, as_is, la.slogdet),
        "qr": (_ANY, as_is, la.qr),
        "qr_complete": (_ANY, as_is, lambda a: la.qr(a, "complete")),
        "qr_r": (_ANY, as_is, lambda a: la.qr(a, "r")),
        "geqrf": (_ANY, as_is, torch.geqrf),
        "householder_product": (_TALL, torch.geqrf, lambda f: la.householder_product(*f)),
        "ormqr": (_TALL, torch.geqrf, lambda f: torch.ormqr(*f, f[0])),
        "ormqr_right": (_TALL, torch.geqrf, lambda f: torch.ormqr(*f, f[0].mT.contiguous(), left=False)),
        "eigh": (_SQUARE, hermitian, la.eigh),
        "eigvalsh": (_SQUARE, hermitian, la.eigvalsh),
        "eig": (_SQUARE, as_is, la.eig),
        "eigvals": (_SQUARE, as_is, la.eigvals),
        "svd": (_ANY, as_is, lambda a: la.svd(a, full_matrices=False)),
        "svd_full": (_ANY, as_is, la.svd),
        "svdvals": (_ANY, as_is, la.svdvals),
        "svd_gesvd": (_ANY, as_is, lambda a: la.svd(a, full_matrices=False, driver="gesvd")),
        "svd_gesvdj": (_ANY, as_is, lambda a: la.svd(a, full_matrices=False, driver="gesvdj")),
        "svd_gesvda": (_TALL, as_is, lambda a: la.svd(a, full_matrices=False, driver="gesvda")),
        "svdvals_gesvda": (_TALL, as_is, lambda a: la.svdvals(a, driver="gesvda")),
        "lstsq": (_TALL, as_is, lambda a: la.lstsq(a, a[..., :1])),
        "lstsq_wide": (_ANY, as_is, lambda a: la.lstsq(a, a[..., :3])),
        "pinv": (_ANY, as_is, la.pinv),
        "pinv_hermitian": (_SQUARE, hermitian, lambda a: la.pinv(a, hermitian=True)),
        "matrix_rank": (_ANY, as_is, la.matrix_rank),
        "matrix_exp": (_SQUARE, lambda a: a / 100, la.matrix_exp),
        "matrix_power": (_SQUARE, as_is, lambda a: la.matrix_power(a, 5)),
        "ldl_factor": (_SQUARE, hermitian, la.ldl_factor),
        "ldl_solve": (_SQUARE, lambda a: la.ldl_factor(a + a.mT), lambda f: la.ldl_solve(*f, f[0][..., :3].clone())),
        "solve_triangular": (_SQUARE, _positive, lambda a: la.solve_triangular(a, a[..., :3], upper=True)),
        "triangular_solve": (_SQUARE, _positive, lambda a: torch.triangular_solve(a[..., :3], a)),
        "cond": (_SQUARE, as_is, la.cond),
        "norm_2": (_ANY, as_is, lambda a: la.matrix_norm(a, 2)),
        "norm_nuclear": (_ANY, as_is, lambda a: la.matrix_norm(a, "nuc")),
        "svd_lowrank": (_ANY, as_is, lambda a: torch.svd_lowrank(a, q=min(4, *a.shape[-2:]))),
        "logdet": (_SQUARE, _positive, torch.logdet),
    }  # fmt: skip


def cases(names: list[str]) -> list[tuple[str, str, int, int, int]]:
    """(name, type, batch, rows, columns), in a fixed random order; batch 0: no batch dimension."""
    drawn = random.Random(2)
    sizes = (1, 2, 3, 8, 16, 31, 32, 33, 64, 65, 100, 128, 129, 256, 257, 511, 512, 513, 1000, 1024, 2000)
    batches = (0, 0, 0, 1, 2, 3, 8, 9, 16, 64, 100, 513)
    found = []
    for name, _ in itertools.product(names, range(80)):
        m = drawn.choice(sizes)
        n = m if drawn.random() < 0.5 else drawn.choice(sizes)
        case = name, drawn.choices(DTYPES, (6, 2, 1, 1))[0], drawn.choice(batches), m, n
        found.append(case)
    drawn.shuffle(found)
    return list(dict.fromkeys(found))


def _run(routine: Any, case: tuple[str, str, int, int, int]) -> list[Any] | None:
    """Requests of the call and of its backward pass; None: the routine takes no such shape."""
    import torch

    from benchmarks.libraries.measure import Recorded

    shapes, prepare, call = routine
    name, dtype, batch, m, n = case
    if shapes == _SQUARE:
        n = m
    elif shapes == _TALL:
        m, n = max(m, n), min(m, n)
    if (
        m * n * max(1, batch) > _MOST_ELEMENTS
        or (name in _SLOW and max(m, n) > _SLOW_ROWS)
        or m * batch > 60 * _MOST_LOOPED
    ):
        return None
    generator = torch.Generator("cuda").manual_seed(m * 7919 + n)
    shape = (batch, m, n) if batch else (m, n)
    given = prepare(torch.randn(shape, dtype=getattr(torch, dtype), device="cuda", generator=generator))
    for tensor in [given] if isinstance(given, torch.Tensor) else given:
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.requires_grad_()
    with Recorded() as forward:
        out = call(given)
    found: list[Any] = [m, n, forward]
    results = [out] if isinstance(out, torch.Tensor) else list(out)
    first = next((r for r in results if isinstance(r, torch.Tensor) and r.requires_grad), None)
    if first is not None:
        gradient = torch.ones_like(first)
        with Recorded() as backward:
            try:
                first.backward(gradient)
            except (RuntimeError, NotImplementedError) as refused:
                return [*found, str(refused)[:80]]
        found.append(backward)
    return found


def measure(rows: Any) -> None:
    """Run until the time is over."""
    import torch

    from benchmarks.libraries.measure import about

    rows.add(about())
    routines = _routines()
    for case in rows.mine(cases(list(routines))):
        if not rows.left():
            return
        try:
            if _run(routines[case[0]], case) is not None:
                rows.add([*case[:3], *(_run(routines[case[0]], case) or ())])
        except torch.OutOfMemoryError:
            continue
        except (RuntimeError, NotImplementedError, ValueError) as refused:
            rows.add([*case, str(refused)[:120]])
