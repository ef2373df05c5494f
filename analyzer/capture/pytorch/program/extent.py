"""How far a program is followed: to its end, for so many steps or so long, or until everything repeats.

1. "steady" ends it where optimizer steps repeat (`repetition.py`).
2. "auto" ends it at its end, unless it is long: more than `_MOST_OPERATORS` operators. Where its steps repeat
   then, or will go on for so long, the rest of the epoch is left out but for its last batches (`loaders.py`);
   so is that of a long evaluation. Once a whole epoch was followed, or where there are none, it ends.
3. `sentence` says what was followed and what was not: it stands beside the verdict.

Operators are counted, not seconds: the same program ends at the same place on every machine.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analyzer.capture.pytorch.program.repetition import LONGEST

if TYPE_CHECKING:
    from analyzer.capture.pytorch.program.loaders import Loaders, Place
    from analyzer.capture.pytorch.program.repetition import Repeats, Repetition

# Of a processor some ten seconds.
_MOST_OPERATORS = 50_000
# So many steps after the last batch was drawn a loader is not the steps': workers draw ahead.
_BEHIND = 32
_ALL = "--until end follows everything"


class Enough(BaseException):
    """The program has been followed as far as was asked: it ends here."""


@dataclass(frozen=True, slots=True)
class Until:
    """Where a program is ended. steps: after so many optimizer steps, where it is "steady", or "auto" (None:
    at its end); where it is steady after more than `least` of them; most: after so many, steady or not;
    seconds: after so long, at the next model's call or step, or soon after."""

    steps: int | str | None = None
    least: int = 0
    seconds: float | None = None
    most: int | None = None


class Extent:
    """How far one program is followed. repetition: None where all steps are stored.

    steady: what repeated where it was ended; cut: its time was over; is_ended: it was ended for any reason.
    """

    def __init__(self, until: Until, repetition: Repetition | None, loaders: Loaders) -> None:
        self.until, self._repetition, self._loaders = until, repetition, loaders
        self._ends = None if until.seconds is None else time.monotonic() + until.seconds
        # Of the last segments: operators until then, and the place in the loader.
        self._ended: deque[tuple[int, Place]] = deque(maxlen=LONGEST + 1)
        self._first_epoch = self._drawn_at = self.steps = self.evaluated = 0
        self.steady: Repeats | None = None
        self.cut = self.is_ended = False

    @property
    def is_whole(self) -> bool:
        """Whether the program came to its end, and was to."""
        return self.until.steps in (None, "auto") and not self.is_ended

    @property
    def waits(self) -> str:
        """The reason for which the next step is followed, behind a comma; "" without."""
        waits = "" if self._repetition is None else self._repetition.waits
        return f", {waits}" if waits and self.until.steps in ("auto", "steady") else ""

    def end(self) -> None:
        """End the program. Raises Enough."""
        self.is_ended = True
        raise Enough

    def end_in_time(self) -> None:
        """End the program if its time is over. Raises Enough."""
        if self._ends is not None and time.monotonic() > self._ends:
            self.cut = True
            self.end()

    def end_step(self, steps: int) -> None:
        """End a segment with an optimizer's step, and the program where that is enough. Raises Enough."""
        self.steps = steps
        repeats, until = self._repeats(), self.until
        if repeats is not None and repeats.steps and steps > until.least and self._suffices(repeats):
            self.steady = repeats
            self.end()
        most = until.steps if isinstance(until.steps, int) else until.most
        if most is not None and steps >= most:
            self.end()
        self.end_in_time()

    def end_evaluated(self) -> None:
        """End a segment before a model's call outside training."""
        self.evaluated += 1
        repeats = self._repeats()
        if repeats is not None and not repeats.steps and self.until.steps == "auto":
            self._shorten(repeats)

    def _repeats(self) -> Repeats | None:
        if self._repetition is None:
            return None
        repeats = self._repetition.end_segment()
        place = self._loaders.place
        if self._ended and place != self._ended[-1][1]:
            self._drawn_at = self.steps
        self._ended.append((self._repetition.operators, place))
        return repeats

    def _suffices(self, repeats: Repeats) -> bool:
        """Return whether steps that repeat are enough to end the program."""
        if self.until.steps != "auto":
            return self.until.steps == "steady"
        assert self._repetition is not None
        place, is_long = self._loaders.place, self._repetition.operators > _MOST_OPERATORS
        if self._first_epoch in (0, place.epoch) and self._shorten(repeats):
            self._first_epoch = place.epoch
        is_drawn_from = place.epoch and self._loaders.length and self.steps - self._drawn_at < _BEHIND
        if is_drawn_from and self._first_epoch in (0, place.epoch):
            return False  # what comes behind this epoch is near
        return is_long or self._first_epoch > 0

    def _shorten(self, repeats: Repeats) -> bool:
        """Leave out the rest of a long epoch; return whether there is any."""
        if len(self._ended) <= repeats.period:
            return False
        (before, begin), (now, place) = self._ended[-1 - repeats.period], self._ended[-1]
        every = place.drawn - begin.drawn
        if place.epoch == 0 or place.epoch != begin.epoch or every < 1:
            return False
        rest = (self._loaders.length - place.drawn) // every * (now - before)
        return now + rest > _MOST_OPERATORS and self._loaders.shorten(every)

    def sentence(self) -> str:
        """Return what was followed and what was not, of a program that was ended, or whose epochs were made
        shorter; "" of all others."""
        loaders = self._loaders
        if not (self.is_ended or loaders.batches):
            return ""
        through = _count(self.steps, "optimizer step")
        if self.evaluated:
            through += f" and {_count(self.evaluated, 'call')} without gradients"
        left = ""
        if loaders.batches:
            batches, epochs = _count(loaders.batches, "batch", "batches"), _count(loaders.shortened, "epoch")
            left = f"; left out before: {batches} of {epochs}, like those around them"
        later = f"{'later evaluations' if self.evaluated else 'any evaluation'}, what else comes later"
        rest = f"; not followed: further steps, {later}" if self.is_ended else ""
        rest = f"{left}{rest} (--until end follows all)"
        if self.steady is None:
            return f"followed in part: {through}{rest}"
        if not self.steady.alike:
            return (
                f"steady after {through}: the next ask for the same, and find the allocator as it was{rest}"
            )
        parts = "steps" if self.steady.steps == self.steady.period else "steps and calls"
        last = f"the last {self.steady.alike} {parts} asked for the same and reached no new peak"
        if self.steady.grown:
            last += f" but for {self.steady.grown:,} bytes that stay each time"
        return f"steady after {through}: {last}, though free memory lies elsewhere each time{rest}"


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number:,} {word if number == 1 else words or f'{word}s'}"
