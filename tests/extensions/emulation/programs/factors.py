"""Linear algebra as PyTorch's own host code does it: every routine of cuSOLVER and cuBLAS that torch.linalg chooses here."""

import itertools

import torch
from torch import linalg

for dtype, batch, n in itertools.product((torch.float32, torch.complex128), ((), (3,), (40,)), (5, 40)):
    square = torch.randn(*batch, n, n, dtype=dtype, device="cuda")
    tall = torch.randn(*batch, 2 * n, n, dtype=dtype, device="cuda")
    right = torch.randn(*batch, n, 3, dtype=dtype, device="cuda")
    linalg.cholesky_ex(square)
    linalg.lu(square)
    linalg.qr(tall)
    linalg.eigvalsh(square)
    linalg.eigh(square)
    linalg.inv_ex(square)
    linalg.solve_ex(square, right)
    linalg.ldl_factor_ex(square)
    linalg.lstsq(tall, torch.randn(*batch, 2 * n, 2, dtype=dtype, device="cuda"))
    linalg.matrix_exp(square)
    torch.geqrf(tall)
    torch.ormqr(*torch.geqrf(tall), torch.randn(*batch, 2 * n, 2, dtype=dtype, device="cuda"))
    torch.cholesky_inverse(square)
    torch.cholesky_solve(right, square)
    torch.triangular_solve(right, square)
    for driver in ("gesvd", "gesvdj", "gesvda"):
        linalg.svd(tall, driver=driver)
linalg.eigvals(torch.randn(20, 20, device="cuda"))
