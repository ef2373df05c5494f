"""SymPy is not imported for a program whose sizes are plain numbers.

PyTorch's Python kernels for meta tensors ask `torch.fx.experimental.symbolic_shapes` what a comparison of
sizes came to, and SymPy what its numbers' class is. Both are imported for that, which takes a quarter of the
time of a small network's analysis. While `plain_sizes` is open, stand-ins answer for plain numbers, of which
most questions' answer is the argument; the first symbolic size, and whatever else is asked of them, imports
the real ones.

Source: `torch/fx/experimental/symbolic_shapes.py`, the first lines of each function named below, and
`elementwise_dtypes` in `torch/_prims_common/__init__.py` (2.6 to 2.15).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from analyzer.capture.pytorch.device.stand_ins import StandIn

_SHAPES, _SYMPY = "torch.fx.experimental.symbolic_shapes", "sympy"
_PLAIN = (bool, int, float)
_SEQUENCES = (list, tuple, torch.Size)


def _equal(x: Any, y: Any) -> bool:
    return bool(tuple(x) == tuple(y) if isinstance(x, _SEQUENCES) else x == y)


_AS_IT_IS = """
    expect_true guard_or_false guard_or_true statically_known_true guard_bool guard_int guard_size_oblivious
    size_hint guarding_hint_or_throw
"""
# Each function's answer for plain numbers, and sequences of these.
_ANSWERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_AS_IT_IS.split(), lambda value: value),
    **dict.fromkeys(("is_nested_int", "is_symbolic"), lambda _: False),
    **dict.fromkeys(("has_hint", "has_guarding_hint"), lambda _: True),
    "sym_eq": _equal,
    "sym_and": lambda *values: functools.reduce(operator.and_, values),
    "sym_or": lambda *values: functools.reduce(operator.or_, values),
}
# Asked of tensors as well, of their sizes and strides.
_OF_TENSORS: dict[str, Callable[..., Any]] = {
    "free_unbacked_symbols": lambda _: frozenset(),
    "has_free_unbacked_symbols": lambda _: False,
}


class _NoNumber:
    """Stands for `sympy.Basic`: while SymPy is not imported, nothing is one."""


@contextlib.contextmanager
def plain_sizes() -> Iterator[None]:
    """While open, SymPy and what PyTorch makes of it are imported only if a program needs them."""
    stand_ins = [
        StandIn(name, answers)
        for name, answers in (
            (_SYMPY, {"Basic": _NoNumber}),
            (
                _SHAPES,
                {name: _plain_first(name, answer) for name, answer in (_ANSWERS | _OF_TENSORS).items()},
            ),
        )
        if name not in sys.modules
    ]
    try:
        yield
    finally:
        for stand_in in stand_ins:
            stand_in.close()


def _plain_first(name: str, answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that answers for plain numbers and hands all else to PyTorch's own."""

    def is_plain(value: Any) -> bool:
        if name in _OF_TENSORS and isinstance(value, torch.Tensor):
            return not value._has_symbolic_sizes_strides
        return _is_plain(value)

    def function(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and all(map(is_plain, args)):
            return answer(*args)
        own: Any = importlib.import_module(_SHAPES)
        own = own.real() if isinstance(own, StandIn) else own
        return getattr(own, name)(*args, **kwargs)

    return function


def _is_plain(value: Any) -> bool:
    kind = type(value)
    return kind in _PLAIN or (kind in _SEQUENCES and all(type(part) in _PLAIN for part in value))
