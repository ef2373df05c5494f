"""The DataLoaders a program draws from: how far each is, and an epoch that is made shorter where its steps
repeat, so that what comes behind it (a last smaller batch, an evaluation, the next epoch) is followed too.

1. A shortened iterator draws from its sampler as before, and hands on its last batches: `_TAIL`, and as many
   more as keep steps of several batches whole (gradient accumulation).
2. A batch of another number of samples than the one before is never left out.

Not modelled: a program whose sizes follow the count of batches without an `if` (`extent.py` looks for those):
it comes to them later. Data without a length are not shortened.
Source: `torch/utils/data/dataloader.py` (`_BaseDataLoaderIter._next_index`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

_TAIL = 2


class Place(NamedTuple):
    """A place in an epoch. epoch: its number among all loaders' epochs, 0 before any; drawn: batches."""

    epoch: int
    drawn: int


class Loaders:
    """The loaders of one program. shortened: epochs that were made shorter; batches: left out of them."""

    def __init__(self) -> None:
        self._places: weakref.WeakKeyDictionary[Any, tuple[int, Place]] = weakref.WeakKeyDictionary()
        self._skips: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._latest: Callable[[], Any] = lambda: None
        self._epochs = self.shortened = self.batches = 0

    def drawing(self, next_index: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the replacement of the function that asks a loader's sampler for the next batch."""

        def draw(iterator: Any) -> Any:
            index = next_index(iterator)
            self._count(iterator)
            for _ in range(self._skips.pop(iterator, 0)):
                following = next_index(iterator)
                self._count(iterator)
                self.batches += 1
                if _samples(following) != _samples(index):
                    return following
                index = following
            return index

        return draw

    def _count(self, iterator: Any) -> None:
        """Count a batch of an iterator, whose sampler begins again with every epoch."""
        sampler, place = id(iterator._sampler_iter), self._places.get(iterator)
        if place is None or place[0] != sampler:
            self._epochs += 1
            place = sampler, Place(self._epochs, 0)
        self._places[iterator] = sampler, place[1]._replace(drawn=place[1].drawn + 1)
        self._latest = weakref.ref(iterator)

    @property
    def place(self) -> Place:
        """The place of the loader that was drawn from last."""
        iterator = self._latest()
        return Place(0, 0) if iterator is None else self._places[iterator][1]

    @property
    def length(self) -> int:
        """Batches of the epoch that was drawn from last; 0 where it has no length."""
        try:
            return len(self._latest())
        except TypeError:
            return 0

    def shorten(self, every: int) -> bool:
        """Leave out the rest of the current epoch but for its end, a multiple of `every` batches; return
        whether there is any."""
        count = (self.length - self.place.drawn - _TAIL) // every * every
        if count > 0:
            self._skips[self._latest()] = count
            self.shortened += 1
        return count > 0


def _samples(index: Any) -> int:
    return len(index) if isinstance(index, (list, tuple)) else 1
