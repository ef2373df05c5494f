"""The largest value of a script's own option (`--batch-size`) with which it fits, by following the script.

1. Each value tried is the script run as `analyze run` does, until its steps repeat; the allocator's next
   steps are played, not run. A value **fits** when it found memory for everything on the device, without
   doubt (`Estimate.doubt`).
2. Values begin with 1 and 16. Needs are nearly affine in the value: growth up to the last that fits says
   where the memory is full, and between one that fits and one that does not the next is where the line
   through both needs is full. Where memory that is given back bends the line (three values on one side, or
   many tries), it is the middle.
3. The answer **surely fits**. Where the device has its range, the largest that may fit is looked for in the
   same way, from the values that are known. On a further device the search begins where growth on the first
   one puts its end.
4. A script that fails at a value by itself, or puts nothing on the GPU there, is no answer: what it said is
   kept. A script that fails at 1 begins with 2 (batch norm has nothing to average).
5. Where a larger value takes no more (the data have no more samples), the search ends.

Not modelled: values between those that were tried, which memory that is not monotonic may refuse; a last
evaluation, which comes after steps that repeat.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence

from analyzer.engines.choice import EngineChoice
from analyzer.errors import AnalyzerError, OptionError
from analyzer.options import Options
from analyzer.planning.search import MOST, less_for_more, where_full
from analyzer.results.estimate import Estimate
from analyzer.results.fit import Fit

Tried = Callable[[str, int, Estimate], None]
_FIRST, _SECOND, _FURTHER = 1, 16, 64
_SAME_SIDE, _BY_LINE = 3, 6
_NAMED = 3  # values on either side of the answer


def largest_by_option(
    script: str,
    arguments: Sequence[str],
    option: str,
    devices: Sequence[Options],
    choice: EngineChoice,
    tried: Tried | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Options, Fit | AnalyzerError]]:
    """Yield an answer for each device (its options), or an error, as it is known. option: the script's
    ("--batch-size"); tried: hears each value with its estimate; tell: each as it begins. Raises OptionError
    for what is no option."""
    if not option.startswith("-") or "=" in option or not option.strip("-"):
        raise OptionError(
            f"--vary {option} is no option", "name one of the script's own: --vary=--batch-size"
        )
    grown: dict[int, int] = {}
    for options in devices:
        search = _Search(script, arguments, option, options, choice, tried, tell)
        try:
            answer = search.answer(grown)
        except AnalyzerError as error:
            yield options, error
            continue
        grown = grown or search.grown()
        yield options, answer


class _Search:
    """One search. known: estimates by value; refused: the script's own error at values it fails at. flat: the
    first value that takes no more than a smaller one, 0 without."""

    def __init__(
        self,
        script: str,
        arguments: Sequence[str],
        option: str,
        options: Options,
        choice: EngineChoice,
        tried: Tried | None,
        tell: Callable[[str], None],
    ) -> None:
        self._script, self._option, self._options = script, option, options
        self._arguments, self._choice, self._tried = without(arguments, option), choice, tried
        self._tell, self._before = tell, dict[int, int]()
        self.known: dict[int, Estimate] = {}
        self.refused: dict[int, str] = {}
        self.flat = 0

    def answer(self, grown: dict[int, int]) -> Fit:
        """Return the largest value. grown: device bytes by value, of another device, or nothing. Raises
        AnalyzerError where the script runs at no value."""
        self._before = grown
        least = where_full(grown, self._options) if len(grown) > 1 else _FIRST
        self._follow(least)
        if least == _FIRST and least in self.refused:
            self._follow(least + 1)
            if least + 1 in self.refused:
                raise AnalyzerError(
                    f"{self._script} fails with {self._option} {least + 1}: {self.refused[least + 1]}",
                    f"see why: {self._typed(least + 1)}",
                )
        return self._fit(self._largest(fits, _most), self._largest(may_fit, _least))

    def _largest(self, holds: Callable[[Estimate], bool], need: Callable[[Estimate], int]) -> int:
        """Return the largest value at which the script runs and this holds, whose next it does not; 0 without
        one. need: the bytes of the device that decide it."""
        low = max((value for value, one in self.known.items() if holds(one)), default=0)
        high = min((value for value in (*self.known, *self.refused) if value > low), default=MOST)
        last, moves, tries = 0, 0, 0
        while high - low > 1 and not self.flat:
            near = self._between(low, high, need)
            if high == MOST:
                near = max(near, low + (1 << moves))
            elif moves >= _SAME_SIDE or tries >= _BY_LINE:
                near = (low + high) // 2
            near = min(max(near, low + 1), high - 1)
            self._follow(near)
            way = 1 if near in self.known and holds(self.known[near]) else -1
            tries += high < MOST
            low, high = (near, high) if way > 0 else (low, near)
            moves, last = (moves + 1 if way == last else 1), way
        return low

    def _between(self, low: int, high: int, need: Callable[[Estimate], int]) -> int:
        """Return the value at which the line through the needs at two values fills the device; where no need
        grows yet one far beyond, and the middle where the script fails at the larger by itself. high: `MOST`
        where none is known not to fit."""
        ends = {value: need(self.known[value]) for value in (low, high) if value in self.known}
        if high == MOST and low:
            ends = {value: need(self.known[value]) for value in self.grown()}
        if len(ends) == 1 and len(self._before) == 2:  # of another device, where it grows alike
            (value, nbytes), ((less, fewer), (more, most)) = *ends.items(), sorted(self._before.items())
            ends[value + more - less] = nbytes + most - fewer
        if len(ends) == 2 and ends[max(ends)] > ends[min(ends)]:
            return where_full(ends, self._options)
        if high < MOST:
            return (low + high) // 2
        return _SECOND if low < _SECOND else min(_FURTHER * low, MOST - 1)

    def grown(self) -> dict[int, int]:
        """Return the device's bytes with the largest value that fits and one at most half of it; with the
        least alone where none is."""
        served = sorted(self._served()) or [min(self.known)]
        less = [value for value in served if 2 * value <= served[-1]] or served[:1]
        return {value: self.known[value].needed.device_used for value in (less[-1], served[-1])}

    def _follow(self, value: int) -> None:
        """Follow the script with a value, unless that was done. Raises KeyboardInterrupt when it is
        interrupted."""
        if value in self.known or value in self.refused:
            return
        count = len(self.known) + len(self.refused) + 1
        self._tell(f"{self._option} {value:,}, try {count}")
        arguments = (*self._arguments, self._option, str(value))
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the script's own words, once a value
                answer = self._choice.analyze_program(self._script, arguments, self._options, {}, "played")
        except AnalyzerError as error:
            self.refused[value] = error.message
            return
        one = answer.estimate
        if one.incomplete == "interrupted":
            raise KeyboardInterrupt
        trained = any(other.mode == "train" for other in self.known.values())
        why = one.incomplete or one.unreached
        if not why and trained and one.mode != "train":
            why = "no step of its optimizer: its data have fewer samples"
        if why:
            self.refused[value] = why
            return
        if self._tried is not None:
            self._tried(f"{self._option} {value:,}", value, one)
        smaller = [known for known in self._served() if known < value]
        if smaller and _runs(one) and _alike(self.known[max(smaller)], one):
            if max(smaller) == _FIRST:
                raise OptionError(
                    f"{self._script} takes as much with {self._option} {_FIRST} as with {value}",
                    f"it does not use {self._option}; name an option that it reads (argparse, or sys.argv)",
                )
            self.flat = value
        self.known[value] = one

    def _served(self) -> list[int]:
        return [value for value, one in self.known.items() if _runs(one)]

    def _typed(self, value: int) -> str:
        words = (self._script, *self._arguments, self._option, str(value))
        device = "" if self._options.device is None else f"--device {self._options.device} "
        return f"analyze run {device}{' '.join(words)}"

    def _fit(self, value: int, perhaps: int) -> Fit:
        """Return the answer. value: the largest that surely fits; perhaps: that may fit."""
        shown = self.known[value or min(self.known)]
        above = sorted(other for other in (*self.known, *self.refused) if other > max(value, perhaps))
        fails = 0 if self.flat or not above else above[0]
        beyond = self.known.get(fails)
        limit = max(shown.allowed_bytes - (shown.device_used - shown.peak_reserved), 0)
        peaks = {
            size: (one.peak_allocated, one.peak_reserved)
            for size, one in self.known.items()
            if value // 2 <= size <= value or size == fails
        }
        every = sorted(self.known)
        place = every.index(value) if value else 0
        values = ", ".join(f"{known:,}" for known in every[max(place - _NAMED, 0) : place + _NAMED + 1])
        notes = [
            f"followed with {self._option} {values}; those in between were not",
            *(less_for_more(peaks, self._option)),
        ]
        if self.flat:
            notes.append(
                f"{self._option} {self.flat:,} takes no more than a smaller one: do the data end there?"
            )
        if value:
            notes.append(f"to its end, and what its peak is made of: {self._typed(value)}")
        return Fit(
            value,
            shown if value else None,
            limit,
            True,
            captures=tuple(sorted(self.known)),
            notes=(*notes, *shown.notes),
            perhaps=perhaps if perhaps > value else 0,
            fails=fails,
            failure=None if beyond is None else beyond.out_of_memory,
            look_beyond=None if beyond is None else lambda: beyond,
            refused=self.refused.get(fails, "") if value else "",
            verdict=shown.verdict(),
            reserved_range=shown.reserved_range,
            beyond_verdict="" if beyond is None else beyond.verdict(),
            option=self._option,
        )


def fits(estimate: Estimate) -> bool:
    """Return whether a followed script surely fits, or fits by figures that are lower bounds."""
    if estimate.at_least:
        return _runs(estimate)
    return estimate.verdict() == "fits"


def may_fit(estimate: Estimate) -> bool:
    """Return whether a followed script fits if all that is assumed is at its best."""
    return estimate.verdict() != "does not fit"


def _runs(estimate: Estimate) -> bool:
    return estimate.within(estimate.allowed_bytes) and not estimate.doubt


def _most(estimate: Estimate) -> int:
    """Return the bytes with room at the worst of what is assumed."""
    above = estimate.device_range[1] - estimate.device_used
    return estimate.needed.device_used + above + estimate.certainty.kept_bytes


def _least(estimate: Estimate) -> int:
    """Return the bytes with room at the best of what is assumed."""
    below = estimate.device_used - estimate.device_range[0]
    return estimate.needed.device_used - below - estimate.certainty.spare_bytes


def _alike(smaller: Estimate, larger: Estimate) -> bool:
    return (smaller.needed, smaller.peak_requested) == (larger.needed, larger.peak_requested)


def without(arguments: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the script's arguments without an option and its value."""
    kept, words = [], iter(arguments)
    for word in words:
        if word == option:
            next(words, None)
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return tuple(kept)
