"""Functions of matrices, systems and convolutions that had another history: exponentials and their gradient, nothing to solve, transposed convolutions padded by a stride or more, rows that are told apart."""

import torch
import torch.nn.functional as F

for kind in (torch.float32, torch.complex64):
    for shape in ((40, 40), (3, 40, 40)):
        matrices = torch.full(shape, 30.0, device="cuda", dtype=kind, requires_grad=True)
        result = torch.linalg.matrix_exp(matrices)
        result.backward(torch.ones_like(result))

for sizes in (((0, 0), (0, 3)), ((3, 3), (3, 0)), ((5, 3, 3), (5, 3, 0)), ((80, 80), (80, 0))):
    first, second = (torch.randn(size, device="cuda") for size in sizes)
    torch.linalg.solve_triangular(first, second, upper=True)
torch.repeat_interleave(torch.ones(300, dtype=torch.int64, device="cuda"))
torch.repeat_interleave(
    torch.randn(24, 5, device="cuda"), torch.ones(24, dtype=torch.int32, device="cuda"), 0
)
torch.unique(torch.zeros(30_000, 2, dtype=torch.int64, device="cuda"), dim=0)

for batch in (1, 3):
    for groups in (1, 2):
        images, volumes = (
            torch.randn(batch, 16, *size, device="cuda", requires_grad=True) for size in ((32, 32), (8, 8, 8))
        )
        weight = torch.randn(16, 16, 8, 10, device="cuda", requires_grad=True)
        bias = torch.randn(16 * groups, device="cuda", requires_grad=True)
        F.conv_transpose2d(images, weight, bias, (3, 2), (1, 2), (2, 3), groups, (4, 4)).sum().backward()
        weight = torch.randn(16, 16, 3, 3, 3, device="cuda", requires_grad=True)
        F.conv_transpose3d(volumes, weight, None, 1, 1, 1, groups, 2).sum().backward()
