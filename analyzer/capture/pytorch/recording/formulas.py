"""Backward formulas that go another way on CUDA than for meta tensors.

`areAnyTensorSubclassLike` (`ATen/TensorSubclassLikeUtils.h`) decides in C++: it is true of meta tensors, and
of all while a dispatch mode is active. On CUDA such a formula

1. writes into what it has just made (`IN_PLACE`, by what it calls for meta tensors and the node whose formula
   it is);
2. or asks for values, and computes less (`OTHERWISE`, by the node): what the other way makes is not recorded,
   and its last call, or calls, are what is computed instead (`reflectors.py`); `cumprod_backward` is an
   operator of its own, which is decided for.

A lazy conjugate, which nothing resolves below the dispatch mode, is copied here by `conj_physical`.

Source: `torch/csrc/autograd/FunctionsManual.cpp`; of indexing, `aten/src/ATen/native/`
`TensorAdvancedIndexing.cpp` and `ReduceOps.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from analyzer.capture.pytorch.recording import reflectors
from analyzer.releases import parse

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.answers import ProgramValues

aten = torch.ops.aten

_CLASSIFIES = ("BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0")
_CLASSIFIES_TWICE = "BinaryCrossEntropyBackwardBackward0"
_NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}
# Since torch 2.15 these overwrite their own result.
_EXTREME_NODES = "Maximum Minimum Fmax Fmin Clamp"
_LARGER_OR_SMALLER = (
    *(f"{name}Backward0" for name in _EXTREME_NODES.split()),
    "ClampMaxBackward1",
    "ClampMinBackward1",
)
# Since torch 2.15 the masks of `clamp_backward` are combined into new ones.
_CLAMPED = ("ClampBackward0",) if parse(torch.__version__) < (2, 15) else ()
_EXTREMES = ("MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0")


def _onto_diagonal(target: torch.Tensor, source: torch.Tensor, *where: int) -> torch.Tensor:
    """`diagonal_scatter` as `linalg_eig_backward` writes it."""
    target.diagonal(*where).copy_(source)
    return target


# Operators that are called for meta tensors, and those instead of them on CUDA by the nodes' names; "" stands
# for every other node.
IN_PLACE: dict[Any, dict[str, Any]] = {
    aten.index_put.default: {"IndexBackward0": aten._index_put_impl_.default},
    aten.scatter_add.default: {"": aten.scatter_add_.default, "ScatterReduceBackward0": None},
    aten.scatter.src: {"": aten.scatter_.src},
    aten.index_add.default: {"": aten.index_add_.default, "IndexReduceBackward0": None},
    aten.index_fill.int_Tensor: {"TraceBackward0": aten.index_fill_.int_Tensor},
    aten.put.default: {"TakeBackward0": aten.put_.default},
    aten.masked_scatter.default: {"MaskedSelectBackward0": aten.masked_scatter_.default},
    aten.diagonal_scatter.default: {"LinalgEighBackward0": _onto_diagonal},
    aten.masked_fill.Scalar: dict.fromkeys(("Atan2Backward0", *_LARGER_OR_SMALLER), aten.masked_fill_.Scalar),
    aten.logical_and.default: dict.fromkeys((*_CLAMPED, *_EXTREMES), aten.logical_and_.default),
    aten.logical_or.default: dict.fromkeys((*_CLAMPED, *_EXTREMES), aten.logical_or_.default),
    aten.sub.Tensor: dict.fromkeys(_CLASSIFIES, aten.sub_.Tensor),
    aten.mul.Tensor: dict.fromkeys((*_CLASSIFIES, _CLASSIFIES_TWICE), aten.mul_.Tensor),
    aten.div.Tensor: {_CLASSIFIES_TWICE: aten.div_.Tensor},
    # `aminmax_backward`; a sum of gradients that the engine makes is the buffer's (`fan_in.py`).
    aten.add.Tensor: {"AminmaxBackward0": aten.add_.Tensor},
}


# Last calls of `binary_cross_entropy_double_backward` and those of its other arguments before they write over
# their own results: quotients are multiplied, by a product or an argument; so is `1 - input`, by which a
# product is divided when it has its least value.
_TWICE = {
    aten.mul.Tensor: (aten.div.Tensor, aten.mul.Tensor, aten.sub_.Tensor),
    aten.div.Tensor: (aten.mul.Tensor, aten.clamp_min_.default, aten.clamp_.default),
}


def in_place(func: Any, node: Any, previous: Any, is_own: Callable[[], bool]) -> Any:
    """Return the operator CUDA calls where a backward formula calls `func` for meta tensors. previous: the
    call before; is_own: whether this node made the tensor that would be overwritten."""
    by_node = IN_PLACE.get(func)
    if by_node is None:
        return func
    name = node.name()
    formula = by_node.get(name, by_node.get(""))
    if formula is None:
        return func
    # Until torch 2.14 these fill a copy of the gradient; of `aminmax` the engine may make the sum.
    if name in (*_LARGER_OR_SMALLER, "AminmaxBackward0") and not is_own():
        return func
    # The reciprocal is kept for the second pass.
    if name == "Atan2Backward0" and torch.is_grad_enabled():
        return func
    if name == _CLASSIFIES_TWICE and not (previous in _TWICE[func] and is_own()):
        return func
    # These write over nothing where the pass is differentiated itself, and the gradient of a target
    # multiplies `-input` to another tensor.
    if name in _CLASSIFIES and (torch.is_grad_enabled() or not is_own() or previous is aten.neg.default):
        return func
    return formula


def accumulated(node: Any, dtype: torch.dtype | None) -> torch.dtype | None:
    """Return the type a node's formula sums up in on CUDA, where it names this one for meta tensors
    (`toAccumulateType`, `ATen/AccumulateType.h`)."""
    if node.name() != "RenormBackward0" or dtype not in _NARROWER:
        return dtype
    return dtype if node._saved_self.dtype is dtype else _NARROWER[dtype]


class Otherwise(NamedTuple):
    """A formula that is another one on CUDA. last: what it calls last for meta tensors, the how manieth such
    call; keeps: what it calls on CUDA too; formula: (node, the program's values, arguments of the last call,
    or the first of `begins` that was called and its arguments) -> its result; results: how many it has, one a
    call of `last`; writes: it writes over what it has made, so only where it is not differentiated."""

    last: Any
    times: int
    formula: Callable[[Any, ProgramValues, tuple[Any, ...]], Any]
    keeps: frozenset[Any] = frozenset()
    begins: frozenset[Any] = frozenset()
    results: int = 1
    writes: bool = False


def _masked(_node: Any, _values: ProgramValues, args: tuple[Any, ...]) -> torch.Tensor:
    """Select elements under the mask, which later calls sum (`masked_fill_backward`)."""
    mask, grad, _ = args
    return torch.masked_select(grad, mask)


def _product(node: Any, values: ProgramValues, args: tuple[Any, ...]) -> Any:
    """`prod_backward`: divide the result by each element; unknown values count as non-zero, but zeros are
    searched."""
    grad, source, result = args[0], node._saved_self, node._saved_result
    zeros = source == 0
    zeros_known = values.known(zeros)
    if zeros_known is None:
        values.selects(zeros, 0)
    count = 0 if zeros_known is None else int(zeros_known.sum())
    places = zeros.nonzero()
    del zeros
    if count > 1 and not torch.is_grad_enabled():
        gradient = torch.zeros_like(source, memory_format=torch.contiguous_format)
    elif count:
        gradient = _beside_zeros(grad, source.contiguous().view(-1), 0).view_as(source)
    else:
        quotient = result / source
        gradient = grad.reshape(()) * quotient.conj_physical()
        del quotient
    del places
    return gradient


def _product_along(node: Any, values: ProgramValues, args: tuple[Any, ...]) -> Any:
    """Likewise along a dimension, where zeros are counted."""
    grad, source, result = args[0], node._saved_self, node._saved_result
    dim = _dimension(node)
    if grad.dim() < source.dim():
        grad = grad.unsqueeze(dim)
    zeros = source == 0
    counts = zeros.sum(dim, True)
    counts.sum()
    zeros_known = values.known(zeros)
    if zeros_known is not None and zeros_known.any():
        gradient = _beside_zeros(grad, source, dim)
    else:
        quotient = (result if node._saved_keepdim else result.unsqueeze(dim)) / source
        gradient = grad * quotient.conj_physical()
        del quotient
    del counts, zeros  # in the order of C++
    return gradient


def _beside_zeros(grad: Any, source: Any, dim: int) -> Any:
    """`prod_safe_zeros_backward`: the products of all elements before each, and of all behind it."""
    size = source.size(dim)
    if size == 1:
        return grad
    ones = torch.ones_like(source.narrow(dim, 0, 1), memory_format=torch.contiguous_format)
    shifted = torch.cat([ones, source.narrow(dim, 0, size - 1)], dim)
    before = shifted.cumprod(dim)
    turned = source.narrow(dim, 1, size - 1).flip(dim)
    other = torch.cat([ones, turned], dim)
    del turned, ones
    running = other.cumprod(dim)
    behind = running.flip(dim)
    del running
    product = before * behind
    result = grad * product.conj_physical()
    del product, behind, other, before, shifted
    return result


def _dimension(node: Any) -> int:
    """Return the dimension a node has saved, without its sign."""
    return int(node._saved_dim - (node._saved_dim >> 63 << 64))


def _of_product(node: Any) -> Otherwise | None:
    """Return the other path of a product's gradient: for one factor, meta tensors reshape the incoming
    gradient. With `keepdim` nothing is called and nothing is detected."""
    source = node._saved_self
    if not source.dim():
        return None
    if node.name() == "ProdBackward0":
        alone = source.numel() == 1
        return Otherwise(*((aten.view.default, 2) if alone else (aten.mul.Tensor, 2)), _product)
    alone = source.shape[_dimension(node)] == 1
    return Otherwise(*((aten.unsqueeze.default, 1) if alone else (aten.mul.Tensor, 2)), _product_along)


def _with_gradient(node: Any, _values: ProgramValues, begun: tuple[Any, ...]) -> torch.Tensor:
    """`differential_analytic_matrix_function`: matrix and incoming gradient in one matrix of twice the size,
    which is filled with zeros and written into instead of joined."""
    grad, matrix = begun[1][1], node._saved_self.mT  # conjugated by the copy itself
    size = matrix.shape[-1]
    stack = torch.zeros(
        (*matrix.shape[:-2], 2 * size, 2 * size), dtype=grad.dtype, layout=grad.layout, device=grad.device
    )
    for row, column, part in ((0, 0, matrix), (size, size, matrix), (0, size, grad)):
        stack.narrow(-2, row, size).narrow(-1, column, size).copy_(part)
    return stack


_PRODUCTS = frozenset({aten.mm.default, aten.bmm.default})
OTHERWISE = {
    "LinalgHouseholderProductBackward0": Otherwise(
        aten.cat.default, 1, reflectors.of_product, begins=_PRODUCTS, results=2, writes=True
    ),
    "OrmqrBackward0": Otherwise(
        aten.cat.default, 1, reflectors.of_ormqr, frozenset({aten.ormqr.default}), _PRODUCTS, 2, True
    ),
    "LinalgMatrixExpBackward0": Otherwise(
        aten.cat.default, 3, _with_gradient, begins=frozenset({aten.cat.default}), writes=True
    ),
    "MaskedFillBackward1": Otherwise(aten.where.self, 1, _masked, frozenset({aten.masked_fill.Scalar})),
}


def otherwise_of(node: Any) -> Otherwise | None:
    """Return the formula of a node, where that is another one on CUDA."""
    if node.name() in ("ProdBackward0", "ProdBackward1"):
        return _of_product(node)
    other = OTHERWISE.get(node.name())
    return None if other is None or (other.writes and torch.is_grad_enabled()) else other


def cumprod_backward(grad: Any, x: Any, dim: int, output: Any) -> Any:
    """`ReduceOps.cpp`: a running sum from the end; unknown values count as non-zero."""
    if x.numel() <= 1 or x.size(dim) == 1:
        return grad
    weighted = output.conj_physical() * grad
    zeros = x == 0
    zeros.any()
    gradient = _summed_from_the_end(weighted, dim).div(x.conj_physical())
    del zeros, weighted  # in the order of C++
    return gradient


def _summed_from_the_end(x: Any, dim: int) -> Any:
    """`reversed_cumsum` of `ReduceOps.cpp`: the flipped tensor lives until the end."""
    turned = x.flip(dim)
    summed = turned.cumsum(dim)
    return summed.flip(dim)
