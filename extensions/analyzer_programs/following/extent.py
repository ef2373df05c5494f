"""How far a program is followed: to its end, for so many steps or so long, or until everything repeats.

1. "steady" ends it where optimizer steps repeat (`repetition.py`); "played", of a program that is tried with
   many settings, where a few did: the next ones are played on the allocator.
2. "auto" ends it at its end. Of a long program (`_LONG_OPERATORS`) the rest of an epoch or
   an evaluation whose batches repeat is left out, but for its last batches (`loaders.py`), so that what comes
   behind it is followed: the evaluation, later epochs, the test at the end. Nothing is left out where that
   could leave out something else: where an `if` of the loop goes by a count and always went one way
   (`branches.py`), or where the loop is not the script's own.
3. After `_MOST_OPERATORS` "auto" ends it too, where steps repeat, or leave more and more alive: the verdict
   then says "as far as followed".
4. `sentence` says what was followed and what was not: it stands beside the verdict.

Operators are counted, not seconds: the same program ends at the same place on every machine.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from analyzer import notes
from analyzer_programs.following.repetition import LONGEST

if TYPE_CHECKING:
    from analyzer_programs.following.branches import Branches
    from analyzer_programs.following.loaders import Loaders, Place
    from analyzer_programs.following.repetition import Repeats, Repetition

# Of a processor some ten seconds, and some sixty.
_LONG_OPERATORS, _MOST_OPERATORS = 50_000, 200_000


class Enough(BaseException):
    """The program has been followed as far as was asked: it ends here. error: a played step's, which the
    program itself cannot catch."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True, slots=True)
class Until:
    """Where a program is ended. steps: after so many optimizer steps, where it is "steady" ("played": as soon
    as the allocator can tell), or "auto" (None: at its end); where it is steady after more than `least` of
    them; most: after so many, steady or not; seconds: after so long, at the next model's call or step, or
    soon after."""

    steps: int | str | None = None
    least: int = 0
    seconds: float | None = None
    most: int | None = None


class Extent:
    """How far one program is followed. repetition: None where all steps are stored.

    steady: what repeated where it was ended; cut: its time was over; is_ended: it was ended for any reason.
    """

    def __init__(
        self, until: Until, repetition: Repetition | None, loaders: Loaders, branches: Branches
    ) -> None:
        self.until, self._repetition = until, repetition
        self._loaders, self._branches = loaders, branches
        self._ends = None if until.seconds is None else time.monotonic() + until.seconds
        # Of the last segments: operators until then, and the place in the loader.
        self._ended: deque[tuple[int, Place]] = deque(maxlen=LONGEST + 1)
        self._repeated: set[tuple[int, ...]] = set()  # kinds of the segments that were left out
        self._moves = False  # whether what was left out would have found the allocator in another state
        self.steps = self.evaluated = 0
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
        return f", {waits}" if waits and self.until.steps in ("auto", "steady", "played") else ""

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
        if until.steps == "played" and repeats is None and steps > until.least and self._may_play():
            assert self._repetition is not None
            try:
                repeats = self._repetition.play()
            except torch.OutOfMemoryError as error:
                raise Enough(error) from None
        is_steady = repeats is not None and repeats.steps and steps > until.least
        if is_steady and until.steps in ("steady", "played"):
            self.steady = repeats
            self.end()
        if until.steps == "auto" and self._suffices(repeats):
            self.end()
        most = until.steps if isinstance(until.steps, int) else until.most
        if most is not None and steps >= most:
            self.end()
        self.end_in_time()

    def _may_play(self) -> bool:
        """Return whether no `if` is known that may make a later step another one."""
        return self._repetition is not None and self._open() is None

    def end_evaluated(self) -> None:
        """End a segment before a model's call outside training."""
        self.evaluated += 1
        self._repeats()

    def _repeats(self) -> Repeats | None:
        """End a segment; return what repeats. The rest of a long epoch is left out then."""
        if self._repetition is None:
            return None
        repeats = self._repetition.end_segment()
        self._ended.append((self._repetition.operators, self._loaders.place))
        if self.until.steps == "auto" and (period := self._period(repeats)) and self._shorten(period):
            self._moves |= repeats is None or repeats.alike > 0
        return repeats

    def _suffices(self, repeats: Repeats | None) -> bool:
        """Return whether a very long program goes on as before, or leaves more alive with every step."""
        repetition = self._repetition
        if repetition is None or repetition.operators <= _MOST_OPERATORS:
            return False
        return repeats is not None or repetition.grows

    def _period(self, repeats: Repeats | None) -> int:
        """Return after how many segments they repeat, now or in an earlier epoch; 0 where they do not."""
        assert self._repetition is not None
        if repeats is not None:
            return repeats.period
        return next(
            (len(kinds) for kinds in self._repeated if self._repetition.kinds(len(kinds)) == kinds), 0
        )

    def _shorten(self, period: int) -> bool:
        """Leave out the rest of a long epoch; return whether there is any."""
        assert self._repetition is not None
        if len(self._ended) <= period:
            return False
        (before, begin), (now, place) = self._ended[-1 - period], self._ended[-1]
        every = place.drawn - begin.drawn
        if place.epoch == 0 or place.epoch != begin.epoch or every < 1:
            return False
        rest = (self._loaders.length - place.drawn) // every * (now - before)
        if now + rest <= _LONG_OPERATORS or not self._branches.loops() or self._open() is not None:
            return False
        if not self._loaders.shorten(every):
            return False
        self._repeated.add(self._repetition.kinds(period))
        return True

    def _open(self) -> int | None:
        """Return the line of an `if` that most steps come to, and that always went one way."""
        return self._branches.open(max(self.steps, self.evaluated) // 2 + 1)

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
            if self._moves:
                left += (
                    ", though free memory lies elsewhere each time: the allocator may hold more in the end"
                )
        later = f"{'later evaluations' if self.evaluated else 'any evaluation'}, what else comes later"
        more = f"; not followed, so the whole run may take more: further steps, {later}"
        rest = more if self.is_ended else ""
        rest = f"{left}{rest} (--until end follows all)"
        if self.is_ended and self.until.steps == "auto":
            line = self._open()
            one_way = "" if line is None else f"; the `if` in line {line} always went one way"
            return notes.CUT_SHORT.note(f"followed as far as {through}{one_way}{rest}", steps=self.steps)
        if self.steady is None:
            return notes.IN_PART.note(f"followed in part: {through}{rest}", steps=self.steps)
        if self.steady.played:
            through += f", {self.steady.played:,} more like them played on the allocator"
        if not self.steady.alike:
            same = "the next ask for the same, and find the allocator as it was"
            return notes.STEADY.note(f"steady after {through}: {same}{rest}", steps=self.steps)
        parts = "steps" if self.steady.steps == self.steady.period else "steps and calls"
        last = f"the last {self.steady.alike} {parts} asked for the same and reached no new peak"
        if self.steady.grown:
            last += f" but for {self.steady.grown:,} bytes that stay each time"
        last += ", though free memory lies elsewhere each time"
        return notes.STEADY.note(f"steady after {through}: {last}{rest}", steps=self.steps)


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number:,} {word if number == 1 else words or f'{word}s'}"
