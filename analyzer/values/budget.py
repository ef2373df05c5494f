"""The budget of values computed beside a program: bytes of integers and truth values, work on its numbers.

1. Integers and truth values are followed in tensors of up to `LIMIT` elements. Made of small ones they may be
   larger (a mask of all pairs, or triplets, of labels), up to `LARGE_BYTES` each, until `LARGE_WORK` bytes of
   such were read and written.
2. A program's decisions by its numbers shape its memory: the steps of an adaptive solver, the rows a
   threshold leaves. They are known only by computing them, which a small program allows (`Effort`). Where no
   whole program is followed, numbers are followed as integers are.
3. Work is counted in elements that are read or written; multiplications of matrices are a fraction of one
   each, or one where their numbers have less than 4 bytes. It does not depend on the machine, so that every
   machine gives one estimate.
4. So much may be spent between one question and the next: a flag the program reads, or a size, that its
   numbers decide. A program without such questions has spent it in a moment; one with them goes on, up to a
   total.
5. A generation goes on to the longest length it may, whatever the numbers say: in it they are not followed.
6. Once it is spent, numbers are followed in small tensors only. So it is from the beginning among several
   ranks that are traced: what other ranks compute is not known there.
7. Numbers of a sparse tensor written out, or of a host matrix that is mostly zeros, decide the size of the
   sparse tensor they become again: how many are not zero. They are followed in larger tensors
   (`SCATTERED_ELEMENTS`), until `SCATTERED_WORK` bytes of such were read and written.
"""

from __future__ import annotations

import torch

from .calls import DispatchedCall

aten = torch.ops.aten
LIMIT = 1 << 20
LARGE_BYTES = 1 << 27
LARGE_WORK = 1 << 31
SCATTERED_ELEMENTS = 1 << 26
SCATTERED_WORK = 1 << 32
# Elements of the largest tensor without a known value for which there are stand-ins.
STAND_IN_ELEMENTS = 1 << 16
MOST_ELEMENTS = 1 << 22  # of a tensor
SMALL_ELEMENTS = 1 << 12  # of a tensor, once the work is spent
BETWEEN_QUESTIONS = 1 << 30
ALTOGETHER = 1 << 33
_MOST_BYTES = 2 << 30  # kept at a time
_CALL = 1 << 15  # what following a call costs, however small: as much as so many elements
_PRODUCTS_AN_ELEMENT = 32  # multiplied in the time one element is read and written
# Products of matrices, and the factor whose rows each element of the result is a product with.
_FACTORS = {
    aten.mm.default: "self",
    aten.bmm.default: "self",
    aten.addmm.default: "mat1",
    aten.baddbmm.default: "batch1",
    aten._cdist_forward.default: "x1",
}
_MULTIPLYING = frozenset({*_FACTORS, aten.convolution.default, aten.convolution_backward.default})
# Their work is that of a few products of the matrix with itself, one multiplication at a time.
_NAMES = (
    "_linalg_det _linalg_eig _linalg_slogdet _linalg_solve _linalg_svd cholesky geqrf linalg_cholesky"
    " linalg_eig linalg_householder linalg_inv linalg_ldl linalg_lstsq linalg_lu linalg_matrix_exp linalg_qr"
    " linalg_solve lu_ orgqr ormqr triangular_solve"
)
_FACTORIZING = tuple(_NAMES.split())


class Budget:
    """Which tensors are followed. effort: how far the numbers of a whole program are; loads: so are large
    copies of the host's, though what a program loads is seldom asked for its values."""

    def __init__(self, effort: Effort | None = None, loads: bool = False) -> None:
        self.effort = effort
        self._loads, self._large_left = loads, LARGE_WORK
        self._scattered_left = SCATTERED_WORK

    def most(self, tensor: torch.Tensor) -> int:
        """Elements of the largest tensor of this type that is followed."""
        if self.effort is not None and is_number(tensor) and not tensor.is_complex():
            return self.effort.most
        if is_number(tensor) or tensor.numel() <= LIMIT:
            return LIMIT
        return max(LIMIT, min(LARGE_BYTES, self._large_left) // tensor.element_size())

    def takes_scattered(self, tensors: list[torch.Tensor]) -> bool:
        """Return whether an operator among numbers of sparse tensors is followed; spend its part of the
        work."""
        if self.effort is None or not self.effort.follows_programs:
            return False
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        most = max((tensor.numel() for tensor in tensors), default=0)
        if most > SCATTERED_ELEMENTS or nbytes > self._scattered_left:
            return False
        self._scattered_left -= nbytes
        return True

    def is_room(self, tensors: list[torch.Tensor]) -> bool:
        """Return whether an operator among large tensors is followed, and its part of the work spent."""
        large = [tensor for tensor in tensors if tensor.numel() > LIMIT and not tensor.is_floating_point()]
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in large)
        loaded = not self._loads and any(tensor.device.type == "cpu" for tensor in large)
        if nbytes > self._large_left or loaded:
            return False
        self._large_left -= nbytes
        return True


class Effort:
    """Work that remains to be spent. kept: bytes of tensors over `SMALL_ELEMENTS` by storage key. paused:
    nothing is followed now."""

    def __init__(self, most: int = MOST_ELEMENTS) -> None:
        self._most = most
        self.follows_programs = most > SMALL_ELEMENTS  # the numbers of a whole one
        self.paused = False
        self.kept: dict[int, int] = {}
        self._kept_bytes = 0
        self._budget, self._altogether = BETWEEN_QUESTIONS, ALTOGETHER

    @property
    def most(self) -> int:
        """Return the elements of the largest tensor of numbers that is followed."""
        return SMALL_ELEMENTS if self.paused else self._most

    @property
    def lasts(self) -> bool:
        """Whether large tensors are still followed."""
        return self.most > SMALL_ELEMENTS

    def note_decision(self) -> None:
        """Note that the program decides something by its numbers."""
        self._budget = BETWEEN_QUESTIONS

    def keep(self, key: int, tensor: torch.Tensor) -> None:
        """Count a followed tensor's bytes, by storage key."""
        if tensor.numel() > SMALL_ELEMENTS and key not in self.kept:
            self.kept[key] = tensor.numel() * tensor.element_size()
            self._kept_bytes += self.kept[key]

    def forget(self, key: int) -> None:
        """Stop counting a storage."""
        self._kept_bytes -= self.kept.pop(key, 0)

    def spend(self, call: DispatchedCall, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> bool:
        """Return whether the operator is worth following; once one is not, no large one is any more."""
        if self.paused:
            return False
        work = _work(call, tensors, results)
        self._budget -= work
        self._altogether -= work
        if min(self._budget, self._altogether, _MOST_BYTES - self._kept_bytes) < 0:
            self._most = SMALL_ELEMENTS
        return self.lasts


def is_number(tensor: torch.Tensor) -> bool:
    """Return whether its elements are fractions, which shape nothing by themselves."""
    return tensor.is_floating_point() or tensor.is_complex()


def _work(call: DispatchedCall, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> int:
    """Elements an operator reads and writes, or as many as its multiplications are worth."""
    func = call.func
    if func.is_view:
        return _CALL
    elements = _CALL + sum(tensor.numel() for tensor in (*tensors, *results))
    if call.name.partition("::")[2].startswith(_FACTORIZING) and tensors and tensors[0].dim():
        return elements + tensors[0].numel() * tensors[0].size(-1)
    if func not in _MULTIPLYING:
        return elements
    if func is aten.convolution.default:
        products = _convolved(call, results[0])
    elif func is aten.convolution_backward.default:
        products = 2 * _convolved(call, call.argument("grad_output"))
    else:
        products = results[0].numel() * int(call.argument(_FACTORS[func]).size(-1))
    narrow = tensors[0].element_size() < 4  # no processor's own: they are converted one by one
    return elements + (products if narrow else products // _PRODUCTS_AN_ELEMENT)


def _convolved(call: DispatchedCall, out: torch.Tensor) -> int:
    """Return a convolution's multiplications: one kernel for each element of its result."""
    counted, weight = (
        call.argument("input") if call.argument("transposed") else out,
        call.argument("weight"),
    )
    return int(counted.numel() * (weight.numel() // weight.size(0)))
