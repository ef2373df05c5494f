"""Allocation events: what a runtime asks of its allocator, in order, with what each request is for.

A runtime (`base.Runtime`) turns a captured program into a tuple of these; `timeline.simulate` feeds them to
an allocator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from analyzer.graph import Category


def is_unasked(plan: str, basis: str, assumed: int, assumed_less: int | None) -> bool:
    """Return whether fields of a `Malloc` are those of a workspace that cuDNN was not asked about."""
    return plan != "" and basis == "bounded" and bool(assumed or assumed_less)


@dataclass(frozen=True, slots=True)
class Malloc:
    """`key` names the allocation until its `Free`. `operator` is -1 outside any; `storage` is -1 for scratch.

    basis: "exact", "measured" or "bounded" (`scratch.Basis`). label: what a user would call it.
    stream: the stream it is made for, 0 being the default one, None for a request outside any.
    outside_pools: a device allocation of its own, past the allocator's pools.
    fails: there was no room for it, and the program went on (it caught the error).
    rule: the name of the rule that decided its size (`analyze explain`), "" for none.
    plan, smaller: where there is no room, the plan so named is asked for less, in this order (`plans.py`);
    "": it is not.
    assumed: bytes by which it may be larger or smaller, since nobody was asked (`ranges.py`); assumed_less:
    by which it may be smaller, where that is another number.
    """

    key: int
    nbytes: int
    category: Category
    operator: int = -1
    storage: int = -1
    basis: str = "exact"
    label: str = ""
    stream: int | None = 0
    outside_pools: bool = False
    fails: bool = False
    rule: str = ""
    plan: str = ""
    smaller: Sequence[int] = ()
    assumed: int = 0
    assumed_less: int | None = None

    @property
    def is_unasked(self) -> bool:
        """Whether it is a convolution's workspace that was not asked of cuDNN."""
        return is_unasked(self.plan, self.basis, self.assumed, self.assumed_less)

    def moved(self, sign: int) -> Malloc:
        """Return the request at its most (1), or at its least (-1)."""
        off = self.assumed_less if sign < 0 and self.assumed_less is not None else self.assumed
        least = 1 if self.assumed_less is None else 0  # a workspace of nothing is not asked for
        return replace(self, nbytes=max(self.nbytes + sign * off, least)) if off else self


@dataclass(frozen=True, slots=True)
class Free:
    """The allocation `key` is given back."""

    key: int


@dataclass(frozen=True, slots=True)
class Event:
    """A named event is over ("0.forward"). value: what the program told its allocator with it, if it did."""

    name: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """Another stream uses the allocation `key`; freed, it is reused after that stream's work."""

    key: int
    stream: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The host has waited for a stream (None: all of them), or the stream `by` will before it goes on."""

    stream: int | None = None
    by: int | None = None


@dataclass(frozen=True, slots=True)
class EmptyCache:
    """A kernel makes the allocator free its cache; a program that does so has an `Event`."""


AllocationEvent: TypeAlias = Malloc | Free | Event | Use | Wait | EmptyCache


def bounded_by(events: Iterable[AllocationEvent], rule: str) -> Iterator[str]:
    """Yield the labels of a rule's requests whose bytes are bounds."""
    for event in events:
        if isinstance(event, Malloc) and event.rule == rule and event.basis == "bounded":
            yield event.label
