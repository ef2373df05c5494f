"""The largest batch of every length: how many samples of which size a GPU has room for.

Lengths are powers of two from `FIRST` on, up to the most positions a configuration has, or to where no GPU
has room for a single sample. Each batch is an answer of `fit`.
"""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer.pipeline.workload import Progress, Workload
from analyzer.planning.countdown import Countdown
from analyzer.planning.fit import largest
from analyzer.recipes.config import opened
from analyzer.results.fit import Fit, Lengths

FIRST, LAST = 512, 1 << 20


def over_lengths(
    target: str, devices: Sequence[str], options: Options, progress: Progress | None = None
) -> Lengths:
    """Return the largest batch of every length by device. Raises AnalyzerError if the first fails."""
    workload = Workload(target, options, progress)
    last = (opened(target).number("max_position_embeddings") if workload.config else None) or LAST
    found: dict[int, tuple[Fit | None, ...]] = {}
    notes: tuple[str, ...] = ()
    length = options.length or FIRST
    alive = set(range(len(devices)))
    lengths = (last // length).bit_length()
    steps = Countdown(lengths * len(devices), progress)
    while alive and length <= last:
        row: list[Fit | None] = [None] * len(devices)
        try:
            sized = workload.fixed(length=length)  # what is captured for one device serves the others
            for place in sorted(alive):
                steps.begin(f"length {length:,} on {devices[place]}")
                row[place] = fit = largest(sized.on(devices[place]), None, steps.tell)
                if fit.batch == 0:
                    alive.discard(place)
        except AnalyzerError as error:
            if not found:
                raise
            notes = (f"at length {length:,} the program itself fails: {error.message}",)
            break
        found[length] = tuple(row)
        length *= 2
    if alive and not notes:
        notes = (f"the model has {last:,} positions",) if last != LAST else ()
    return Lengths(target, tuple(devices), found, notes)
