"""Gradients of Householder reflectors (`torch.linalg.householder_product`, `torch.ormqr`).

`householder_product_backward` writes the gradient of each reflector into a column of one tensor, where that
is made before the first; for meta tensors, and while a dispatch mode is active, it keeps them all and
concatenates them. Below the dispatch mode nothing resolves a lazy conjugate, which C++ has copied for all but
products: `conj_physical` and `resolve_conj` say where.

Source: `torch/csrc/autograd/FunctionsManual.cpp` (`householder_product_backward`, `ormqr_backward`); orders
as PyTorch's own host code asks under the emulated runtime (torch 2.11).
"""

from __future__ import annotations

from typing import Any

import torch


def of_product(node: Any, _values: Any, begun: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return gradients of reflectors and scales. begun: product of result and gradient, and its operands."""
    return _gradients(node._saved_input, node._saved_tau, begun, flipped=False)


def of_ormqr(node: Any, _values: Any, begun: tuple[Any, ...]) -> tuple[Any, Any]:
    """Likewise; from the last reflector to the first where they are applied in that order."""
    return _gradients(node._saved_self, node._saved_input2, begun, node._saved_left == node._saved_transpose)


def _gradients(matrix: Any, tau: Any, begun: tuple[Any, ...], flipped: bool) -> tuple[Any, Any]:
    """Return the gradients of vectors and scales of Householder reflectors."""
    (*batch, rows, _), count = matrix.shape, tau.shape[-1]
    vectors = matrix.tril(-1)
    vectors.diagonal(0, -2, -1).fill_(1.0)
    first = vectors.narrow(-1, 0, count)
    squared = (first * first.conj_physical()).sum(-2)
    del first
    scaled = tau * squared
    less = scaled - 1.0
    sigma = tau / less
    del less, scaled  # temporaries of one expression, all of which live until its end
    product, *factors = begun
    turned = product(*factors).view(*batch, rows, rows)
    order = [*reversed(range(count))] if flipped else [*range(count)]
    _reflect(turned, order[0], vectors, sigma, not flipped)
    gradient, of_tau = torch.zeros_like(matrix), torch.zeros_like(tau)
    for i, following in zip(order, [*order[1:], None], strict=True):
        own_gradient, scale = _gradient_of_one(turned, i, vectors, tau)
        gradient.narrow(-1, i, 1).copy_(own_gradient)
        of_tau.narrow(-1, i, 1).copy_(scale)
        if following is not None:
            _reflect(turned, following, vectors, sigma, not flipped)
            _reflect(turned, i, vectors, tau, flipped)
        del own_gradient, scale  # in the order of C++
    del turned, sigma, squared, vectors
    return gradient, of_tau


def _one(i: int, vectors: Any, scales: Any) -> tuple[Any, Any]:
    """Return a reflector, from its first element that is not zero on, and its scale."""
    vector = vectors.narrow(-1, i, 1).narrow(-2, i, vectors.shape[-2] - i)
    return vector, scales.narrow(-1, i, 1).unsqueeze(-1)


def _gradient_of_one(turned: Any, i: int, vectors: Any, scales: Any) -> tuple[Any, Any]:
    """Return the gradients of one reflector and its scale (`update_grad`)."""
    vector, scale = _one(i, vectors, scales)
    rows = turned.shape[-1]
    left = vector.mH.matmul(turned.narrow(-2, i, rows - i))
    right = turned.narrow(-1, i, rows - i).matmul(vector)
    scaled = scale * right  # the later operand comes first
    negative = -scale
    other = negative * left
    gradient = other.conj_physical().squeeze(-2) - scaled.squeeze(-1)
    del other, negative, scaled
    product = left.narrow(-1, i, rows - i).matmul(vector)
    of_scale = -product.conj_physical()
    del product, right, left
    return gradient.unsqueeze(-1), of_scale.squeeze(-1)


def _reflect(turned: Any, i: int, vectors: Any, scales: Any, from_left: bool) -> None:
    """Apply a reflector in place (`apply_householder_reflector`)."""
    vector, scale = _one(i, vectors, scales)
    rows = turned.shape[-1]
    if from_left:
        product = vector.mH.matmul(turned.narrow(-2, i, rows - i))
        scaled = scale * vector
        change = scaled * product
        turned.narrow(-2, i, rows - i).sub_(change)
        del change, scaled
    else:
        product = turned.narrow(-1, i, rows - i).matmul(scale * vector)
        turned.narrow(-1, i, rows - i).sub_(product * vector.mH.resolve_conj())
