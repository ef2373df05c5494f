"""Symmetric eigenvalues, LU and Cholesky factors of one matrix and of many: from torch 2.15 on MAGMA and Jacobi's method have none of them."""

import torch

for size, count in ((40, 16), (100, 5), (600, 3), (20, 100), (33, 300), (40, 1)):
    matrices = torch.eye(size, device="cuda").expand(count, size, size).contiguous()
    torch.linalg.eigh(matrices)
    torch.linalg.eigvalsh(matrices.double())

for rows, columns, count in ((200, 200, 4), (40, 40, 100), (300, 280, 3), (280, 300, 1), (130, 130, 17)):
    matrices = torch.randn(count, rows, columns, device="cuda")
    torch.linalg.lu_factor_ex(matrices)
    torch.linalg.lu_factor_ex(matrices.to(torch.cfloat))
    if rows == columns:
        torch.linalg.solve_ex(matrices, torch.randn(count, rows, 5, device="cuda"))
        torch.linalg.inv_ex(matrices)

for size, count, sides in ((320, 1, 320), (40, 1, 3), (40, 5, 3), (300, 4, 300), (16, 100, 1)):
    matrices = torch.eye(size, device="cuda")
    matrices = matrices.expand(count, size, size).contiguous() if count > 1 else matrices
    factors = torch.linalg.cholesky_ex(matrices)[0]
    right = torch.randn(*matrices.shape[:-1], sides, device="cuda")
    torch.cholesky_solve(right, factors)
    torch.cholesky_inverse(factors)
    torch.cholesky_solve(right, factors, upper=True)

torch.addbmm(
    torch.randn(30, 50, device="cuda"),
    torch.randn(7, 30, 20, device="cuda"),
    torch.randn(7, 20, 50, device="cuda"),
)
