"""Complex linear algebra: what is conjugated is copied before a part that is made of others, or not where BLAS turns it over; the norm of a
scalar along a dimension."""

import torch
import torch.nn.functional as F


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.complex64, requires_grad=True)


torch.linalg.pinv(drawn(16, 24)).sum().backward(torch.ones((), device="cuda", dtype=torch.complex64))
found = torch.linalg.lstsq(drawn(16, 24), drawn(16, 24)).solution
found.backward(torch.ones_like(found))
for right in (drawn(24, 1), drawn(24, 7)):
    for left in (True, False):
        matrix = drawn(24, 24)
        solved = torch.linalg.solve_triangular(matrix, right if left else right.mT, upper=True, left=left)
        solved.backward(torch.ones_like(solved))
        torch.linalg.solve_triangular(matrix.detach().mH, right.detach(), upper=False)
        torch.linalg.solve_triangular(matrix.detach().conj(), right.detach(), upper=False)
scalar = drawn()
F.normalize(scalar, 1.2, 0).backward(torch.ones_like(scalar))
torch.linalg.vector_norm(scalar, 3.0).backward()
