"""The largest value of a script's own option (`--batch-size`) with which it fits, by following the script.

1. Each value tried is the script run as `analyze run` does, until its steps repeat; a value **fits** when it
   found memory for everything on the device, without doubt (`Estimate.doubt`).
2. Values begin with 1 and 4. Growth up to the last that fits says where the memory is full, as long as it
   fits there; then values go in steps that double, then by bisection. On a further device the search begins
   where growth on the first one puts its end.
3. A script that fails at a value by itself, or puts nothing on the GPU there, is no answer: what it said is
   kept. A script that fails at 1 begins with 2 (batch norm has nothing to average).
4. Where a larger value takes no more (the data have no more samples), the search ends.

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
from analyzer.planning.search import MOST, galloped, less_for_more, where_full
from analyzer.results.estimate import Estimate
from analyzer.results.fit import Fit

Tried = Callable[[str, int, Estimate], None]
_FIRST, _SECOND, _FURTHER = 1, 4, 64
_NAMED = 3  # values on either side of the answer


def largest_by_option(
    script: str,
    arguments: Sequence[str],
    option: str,
    devices: Sequence[Options],
    choice: EngineChoice,
    tried: Tried | None = None,
) -> Iterator[tuple[Options, Fit | AnalyzerError]]:
    """Yield an answer for each device (its options), or an error, as it is known. option: the script's
    ("--batch-size"); tried: hears each value with its estimate. Raises OptionError for what is no option."""
    if not option.startswith("-") or "=" in option or not option.strip("-"):
        raise OptionError(
            f"--vary {option} is no option", "name one of the script's own: --vary=--batch-size"
        )
    grown: dict[int, int] = {}
    for options in devices:
        search = _Search(script, arguments, option, options, choice, tried)
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
    ) -> None:
        self._script, self._option, self._options = script, option, options
        self._arguments, self._choice, self._tried = without(arguments, option), choice, tried
        self.known: dict[int, Estimate] = {}
        self.refused: dict[int, str] = {}
        self.flat = 0

    def answer(self, grown: dict[int, int]) -> Fit:
        """Return the largest value. grown: device bytes by value, of another device, or nothing. Raises
        AnalyzerError where the script runs at no value."""
        if grown:
            return self._fit(galloped(self._near(grown), 0, MOST, self._runs))
        least = _FIRST
        if not self._runs(least) and least in self.refused:
            least += 1
            if not self._runs(least) and least in self.refused:
                raise AnalyzerError(
                    f"{self._script} fails with {self._option} {least}: {self.refused[least]}",
                    f"see why: {self._typed(least)}",
                )
        if not self._runs(least):
            return self._fit(0)
        near = _SECOND
        while self._runs(near) and not self.flat and (further := self._near(self.grown())) > near:
            near = further
        largest = galloped(near, least, MOST, self._runs)
        return self._fit(max(self._served()) if self.flat else largest)

    def grown(self) -> dict[int, int]:
        """Return the device's bytes with the least value and the largest that fits."""
        ends = (min(self.known), max(self._served(), default=min(self.known)))
        return {value: self.known[value].needed.device_used for value in ends}

    def _near(self, grown: dict[int, int]) -> int:
        """Return the value at which growth fills the device, or one far beyond where nothing grows yet."""
        low, high = min(grown), max(grown)
        if grown[high] <= grown[low]:
            return min(_FURTHER * high, MOST - 1)
        return where_full(grown, self._options)

    def _runs(self, value: int) -> bool:
        """Return whether the script fits with a value. Raises KeyboardInterrupt when it is interrupted."""
        if value in self.refused or (self.flat and value > self.flat):
            return False
        if value not in self.known:
            self._follow(value)
        one = self.known.get(value)
        return one is not None and fits(one)

    def _follow(self, value: int) -> None:
        arguments = (*self._arguments, self._option, str(value))
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the script's own words, once a value
                answer = self._choice.analyze_program(self._script, arguments, self._options, {}, "steady")
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
        if smaller and fits(one) and _alike(self.known[max(smaller)], one):
            self.flat = value
        self.known[value] = one

    def _served(self) -> list[int]:
        return [value for value, one in self.known.items() if fits(one)]

    def _typed(self, value: int) -> str:
        words = (self._script, *self._arguments, self._option, str(value))
        device = "" if self._options.device is None else f"--device {self._options.device} "
        return f"analyze run {device}{' '.join(words)}"

    def _fit(self, value: int) -> Fit:
        shown = self.known[value or min(self.known)]
        above = sorted(other for other in (*self.known, *self.refused) if other > value)
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
    """Return whether a followed script counts as fitting."""
    return estimate.within(estimate.allowed_bytes) and not estimate.doubt


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
