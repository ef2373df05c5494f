"""Integers whose values nobody knows, but whose origin tells something of them.

1. Integers drawn evenly from a range (`torch.randint`, labels of random data) have no more different values
   than it has, and none beyond its end.
2. Tokens that a generation made are assumed to hold no end of a sequence, since it is assumed to go on to its
   longest length: compared with a number, or looked up in a list of few (`isin`), none is equal. That is so
   of a part of the result that begins behind the prompt.

Copies have the origin of what they are copied from, whole or a row's part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from .calls import DispatchedCall

aten = torch.ops.aten
# Draws of integers, and the names of the first number and of the one behind the last; None: zero.
INTEGERS: dict[object, tuple[str | None, str]] = {
    aten.randint.default: (None, "high"),
    aten.randint.low: ("low", "high"),
    getattr(aten.random_, "from"): ("from", "to"),
    aten.random_.to: (None, "to"),
}
COPYING = (aten._to_copy.default, aten.clone.default)
# Comparisons, the operand that holds tokens, the others, and the answer where none is equal.
MEETING = {
    aten.eq.Scalar: ("self", "other", False),
    aten.eq.Tensor: ("self", "other", False),
    aten.ne.Scalar: ("self", "other", True),
    aten.ne.Tensor: ("self", "other", True),
    aten.isin.Tensor_Tensor: ("elements", "test_elements", False),
    aten.isin.Tensor_Scalar: ("elements", "test_element", False),
}
_FEW = 64  # ends of a sequence
NO_END = "no end of a sequence is assumed among the tokens that were generated"


class _Tokens(NamedTuple):
    """Rows of so many tokens, of which those from `begin` on were generated."""

    length: int
    begin: int


class Origins:
    """Origins of integers by storage. key_of: the key of a storage; keep: the same of one that is noted."""

    def __init__(self, key_of: Callable[[torch.Tensor], int], keep: Callable[[torch.Tensor], int]) -> None:
        self._key_of, self._keep = key_of, keep
        self._ranges: dict[int, tuple[int, int]] = {}
        self._generated: dict[int, _Tokens] = {}

    def forget(self, key: int) -> None:
        """Forget a storage that died or was written to."""
        self._ranges.pop(key, None)
        self._generated.pop(key, None)

    def note(self, call: DispatchedCall, result: torch.Tensor) -> None:
        """Note the origin of an operator's result: drawn, or copied from such."""
        if call.func in INTEGERS and not result.is_floating_point():
            low, high = INTEGERS[call.func]
            end = call.argument(high)
            if end is not None:
                self._ranges[self._keep(result)] = int(call.argument(low)) if low else 0, int(end)
        elif call.func in COPYING and not result.is_floating_point() and result.dtype is not torch.bool:
            source = call.argument("self")
            if (key := self._key_of(source)) in self._ranges:
                self._ranges[self._keep(result)] = self._ranges[key]
            if self.is_generated(source) and result.is_contiguous():
                self._generated[self._keep(result)] = _Tokens(result.size(-1), 0)

    def generated(self, tokens: torch.Tensor, prompt: int) -> None:
        """Note tokens that a generation made, each row behind a prompt of so many."""
        if tokens.dim() == 2 and tokens.is_contiguous() and prompt < tokens.size(1):
            self._generated[self._keep(tokens)] = _Tokens(tokens.size(1), prompt)

    def is_generated(self, tokens: torch.Tensor) -> bool:
        """Return whether all of these tokens were generated."""
        rows = self._generated.get(self._key_of(tokens))
        if rows is None or not tokens.dim() or (tokens.size(-1) > 1 and tokens.stride(-1) != 1):
            return False
        begin = tokens.storage_offset() % rows.length
        whole = all(not stride % rows.length for stride in tokens.stride()[:-1])
        return whole and begin >= rows.begin and begin + tokens.size(-1) <= rows.length

    def meets(self, call: DispatchedCall) -> bool | None:
        """Return the answer to a comparison of generated tokens with an end; None to any other."""
        if not self._generated:
            return None
        name, other, unequal = MEETING[call.func]
        tokens, ends = call.argument(name), call.argument(other)
        if not isinstance(tokens, torch.Tensor) or not self.is_generated(tokens):
            return None
        if isinstance(ends, torch.Tensor):
            most = _FEW if ends.dim() < 2 and "isin" in call.name else 1
            if ends.numel() > most:
                return None
        return unequal

    def different(self, integers: torch.Tensor) -> int | None:
        """Return how many different values these integers have at most; None if nothing tells."""
        low, high = self._ranges.get(self._key_of(integers), (0, 0))
        return None if high <= low else min(high - low, math.prod(integers.shape))

    def end(self, integers: torch.Tensor) -> int | None:
        """Return the number behind the largest of these; None if nothing tells."""
        low, high = self._ranges.get(self._key_of(integers), (0, 0))
        return None if low < 0 or high <= low else high
