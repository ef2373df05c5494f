"""LU factors by how many matrices there are and how large they are: cuSOLVER's, cuBLAS's, and by PyTorch's own kernel in blocks."""

import torch

for kind in (torch.float32, torch.float64, torch.complex128):
    for count, size in ((2, 60), (2, 160), (3, 120), (3, 240), (4, 255), (4, 320), (5, 600), (4, 1100)):
        torch.linalg.lu_factor_ex(torch.empty(count, size, size, device="cuda", dtype=kind))
