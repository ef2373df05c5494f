"""Lanes: a whole number with one value at each of many batch sizes; its consequences are computed for all of
them at once.

A scratch rule that is given a dimension as `Lanes` computes as ever; each result holds one number a **lane**
(a batch size).

1. Arithmetic is exact and goes lane by lane; a product beyond 62 bits is refused (`NotTogether`).
2. A comparison all lanes answer alike is answered. Where they differ, `Apart` says which lanes say yes: the
   caller begins again with these, and with the others.
3. A use that needs one number (a hash, an index, a fraction) raises `NotTogether`, and the lanes are computed
   one by one.

So no lane is ever decided otherwise than it would be alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Answer = TypeVar("Answer")
_EXACT_IN_A_FLOAT = 1 << 53
_LARGEST = float(1 << 62)


class Apart(Exception):
    """Lanes answer a question differently; `yes`: which of them say yes."""

    def __init__(self, yes: npt.NDArray[np.bool_]) -> None:
        super().__init__("lanes differ")
        self.yes = yes


class NotTogether(Exception):
    """The lanes have to be taken one by one."""


class Lanes:
    """One whole number for each lane. It is used like an `int`, but `isinstance(x, int)` is false."""

    __slots__ = ("values",)

    def __init__(self, values: Integers) -> None:
        self.values = values

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self.values[:3].tolist()))
        return f"Lanes({shown}, ...)" if len(self.values) > 3 else f"Lanes({shown})"

    def __add__(self, other: Any) -> Any:
        return self._combined(other, operator.add)

    def __sub__(self, other: Any) -> Any:
        return self._combined(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return self._combined(other, lambda mine, theirs: theirs - mine)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, Lanes | int):
            factor = other.values if isinstance(other, Lanes) else np.array(other)
            if float(np.abs(self.values).max()) * float(np.abs(factor).max()) >= _LARGEST:
                raise NotTogether
        return self._combined(other, operator.mul)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        return self._combined(_divisor(other), operator.floordiv)

    def __mod__(self, other: Any) -> Any:
        return self._combined(_divisor(other), operator.mod)

    def __rfloordiv__(self, other: Any) -> Any:
        return _divisor(self)._combined(other, lambda mine, theirs: theirs // mine)

    def __rmod__(self, other: Any) -> Any:
        return _divisor(self)._combined(other, lambda mine, theirs: theirs % mine)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __neg__(self) -> Lanes:
        return Lanes(-self.values)

    def __pos__(self) -> Lanes:
        return self

    def __abs__(self) -> Lanes:
        return Lanes(np.abs(self.values))

    def __rlshift__(self, other: int) -> Lanes:
        if other != 1 or bool((self.values < 0).any()) or bool((self.values > 61).any()):
            raise NotTogether
        return Lanes(np.left_shift(np.int64(1), self.values))

    def __rshift__(self, other: int) -> Lanes:
        return Lanes(self.values >> other)

    def bit_length(self) -> Lanes:
        """`int.bit_length` of each lane."""
        if float(np.abs(self.values).max()) >= _EXACT_IN_A_FLOAT:
            raise NotTogether
        return Lanes(np.frexp(self.values.astype(np.float64))[1].astype(np.int64))

    def __eq__(self, other: object) -> bool:
        return self._compared(other, operator.eq, False)

    def __ne__(self, other: object) -> bool:
        return self._compared(other, operator.ne, True)

    def __lt__(self, other: Any) -> bool:
        return self._compared(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._compared(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._compared(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._compared(other, operator.ge)

    def __bool__(self) -> bool:
        return _together(self.values != 0)

    def __hash__(self) -> int:
        raise NotTogether

    def __index__(self) -> int:
        raise NotTogether

    def __int__(self) -> int:
        raise NotTogether

    def __float__(self) -> float:
        raise NotTogether

    def __truediv__(self, other: Any) -> Any:
        raise NotTogether

    __rtruediv__ = __pow__ = __rpow__ = __lshift__ = __rrshift__ = __and__ = __rand__ = __truediv__
    __or__ = __ror__ = __xor__ = __rxor__ = __truediv__

    def _combined(self, other: Any, combine: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, Lanes):
            return Lanes(combine(self.values, other.values))
        if isinstance(other, int):
            if abs(other) >= _LARGEST:
                raise NotTogether
            return Lanes(combine(self.values, other))
        raise NotTogether

    def _compared(
        self, other: object, compare: Callable[[Any, Any], Any], otherwise: bool | None = None
    ) -> bool:
        """Return the comparison's answer, the same in all lanes. Raises Apart where lanes differ."""
        if isinstance(other, Lanes):
            return _together(compare(self.values, other.values))
        if isinstance(other, int | float):
            return _together(compare(self.values, other))
        if otherwise is None:
            raise NotTogether
        return otherwise


def in_parts(lanes: Integers, ask: Callable[[Integers], Answer]) -> Iterator[tuple[Integers, Answer]]:
    """Yield (lanes, answer): `ask` of all lanes at once, else of groups that answer alike, else of each lane.

    `ask` raises `Apart` or `NotTogether`, of one lane neither.
    """
    open_ = [lanes]
    while open_:
        part = open_.pop()
        try:
            yield part, ask(part)
        except Apart as apart:
            open_ += [part[~apart.yes], part[apart.yes]]
        except NotTogether:
            if len(part) == 1:
                raise
            open_ += [part[place : place + 1] for place in range(len(part))]


def _divisor(number: Any) -> Any:
    """Return a divisor without zeros; with one, a rule would fail in that lane."""
    values = number.values if isinstance(number, Lanes) else np.array(number)
    if not bool(np.all(values)):
        raise NotTogether
    return number


def _together(answers: npt.NDArray[np.bool_]) -> bool:
    """Return the answer of all lanes. Raises Apart where they differ."""
    first = bool(answers[0])
    if bool((answers != first).any()):
        raise Apart(answers)
    return first
