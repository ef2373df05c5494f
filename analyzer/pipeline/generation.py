"""A configuration that generates: a few tokens at the beginning, in the middle and at the end are run, the others told from them.

The program is run with a longer prompt and as many tokens fewer: its calls of the model are then those the program itself would
get to later, because they follow from how long the sequence is. From the first run's tokens to the last one's the rounds are told
(`runtimes/pytorch/told.py`), and checked by those of the middle. Where that cannot be, every token is run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.pytorch.onward import play_on
from analyzer.graph import Birth, Death, Graph
from analyzer.graph import Use as Used
from analyzer.pipeline.program import Followed
from analyzer.runtimes.events import AllocationEvent, Free, Malloc, Use
from analyzer.runtimes.pytorch import told
from analyzer.runtimes.pytorch.told import Loop, NotTold, Round

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recorder import Recorder
    from analyzer.runtimes.pytorch.live import Live

# Rounds that find the loop on its way, those of each run that tell it, and those that are run at the end.
_SETTLING, _TELLING, _LAST = 2, 2, 2
_BEGINNING = _SETTLING + _TELLING
# Fewer tokens than this are all run.
WORTH_TELLING = 20


@dataclass(frozen=True, slots=True)
class Position:
    """Where a program was when it called its model: how much there was of everything."""

    operators: int
    storages: int
    moments: int
    events: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """A run whose prompt is so many tokens longer, and where it called its model."""

    longer: int
    followed: Followed
    calls: tuple[Position, ...]

    @property
    def rounds(self) -> tuple[list[Round], dict[int, tuple[int, int]]]:
        """Those that tell the loop, and of each key requested in them where."""
        ran = self.followed
        starts = [call.events for call in self.calls[1 : _BEGINNING + 2]]
        every, places = told.rounds(ran.live.events, ran.ran.graph.operators, starts, self.longer + 1)
        return every[_SETTLING:], places


def watching(run: Callable[..., Followed], longer: int, to_its_end: bool) -> Beginning:
    """Run the program with a prompt so much longer, up to its first rounds or to its end. run(longer, called)."""
    from analyzer.capture.pytorch.script import Enough

    calls: list[Position] = []

    def called(recorder: Recorder, live: Live) -> None:
        calls.append(
            Position(len(recorder.operators), len(recorder.storages), len(recorder.program), live.position)
        )
        if not to_its_end and len(calls) == _BEGINNING + 2:
            live.stop()
            raise Enough

    return Beginning(longer, run(longer, called), tuple(calls))


def followed(run: Callable[..., Followed], new_tokens: int) -> tuple[Followed, str]:
    """The program of so many tokens, most of which are told; and a sentence about it. Raises NotTold."""
    # The prompt's call makes the first token; each round another.
    last = new_tokens - 1
    longest = last - _BEGINNING - _LAST
    if new_tokens < WORTH_TELLING:
        raise NotTold("so few tokens are run")
    samples: list[Round] = []
    runs: list[Beginning] = []
    for longer, to_its_end in ((0, False), (longest // 2, False), (longest, True)):
        one = watching(run, longer, to_its_end)
        if one.followed.ran.error is not None or len(one.calls) < _BEGINNING + 2:
            raise NotTold("a run ended before its rounds")
        if longer == longest and len(one.calls) != last - longest + 1:
            raise NotTold("the loop ends elsewhere")
        samples += one.rounds[0]
        runs.append(one)
    first, _, end = runs
    loop = told.loop(samples, first.followed.profile)
    told_rounds = range(_BEGINNING + 1, _BEGINNING + longest + 1)
    try:
        graph = _joined(first, end, loop, told_rounds)
    except (OutOfMemoryError, ValueError) as error:
        raise NotTold(str(error)) from error
    ran = replace(first.followed.ran, graph=graph, error=None)
    said = (
        f"of {new_tokens:,} tokens {new_tokens - len(told_rounds):,} were run and {len(told_rounds):,} told from them: "
        f"tokens {told_rounds[0] + 1:,} to {told_rounds[-1] + 1:,}"
    )
    return dataclasses.replace(first.followed, ran=ran), said


def _joined(first: Beginning, end: Beginning, loop: Loop, numbers: range) -> Graph:
    """The first run's beginning and the last run's end as one program, its memory having gone through the rounds in between."""
    here, there = first.calls[_BEGINNING + 1], end.calls[_BEGINNING + 1]
    if (here.operators, here.storages) != (there.operators, there.storages):
        raise NotTold("runs with other prompts differ")
    ours, theirs = first.followed.ran.graph, end.followed.ran.graph
    live = first.followed.live
    places = first.rounds[1]
    alive = _alive(first.followed.live.events)
    grown = [key for key in alive if key in places]
    count = here.storages
    names = {storage: count + number for number, storage in enumerate(grown)}
    ahead = len(grown)

    def name(storage: int) -> int:
        return storage + ahead if storage >= count else names.get(storage, storage)

    mallocs = {e.key: e for e in end.followed.live.events[: there.events] if isinstance(e, Malloc)}
    fresh = iter(range(-1 - _most_negative(first, end), -(2**40), -1))
    scratch: dict[int, int] = {}

    def key(old: int) -> int:
        return name(old) if old >= 0 else scratch.setdefault(old, next(fresh))

    def event(old: AllocationEvent) -> AllocationEvent:
        if isinstance(old, Malloc):
            return replace(old, key=key(old.key), storage=name(old.storage) if old.storage >= 0 else -1)
        return replace(old, key=key(old.key)) if isinstance(old, Free | Use) else old

    after = len(numbers)
    live.go_on(
        lambda allocator, held: play_on(allocator, held, told.requests(loop, numbers), told.key_count(loop)),
        {storage: told.key_at(loop, *places[storage]) for storage in grown},
        [
            (
                told.key_at(loop, places[storage][0] + after, places[storage][1]),
                replace(mallocs[storage], key=names[storage], storage=names[storage]),
            )
            for storage in grown
        ],
        map(event, end.followed.live.events[there.events :]),
    )
    every = {storage: name(storage) for storage in range(len(theirs.storages))}
    return replace(
        theirs,
        storages=(
            *ours.storages[:count],
            *(told.moved(theirs.storages[storage], names[storage]) for storage in grown),
            *(told.moved(storage, name(storage.index)) for storage in theirs.storages[count:]),
        ),
        operators=(
            *ours.operators[: here.operators],
            *(told.renamed(operator, every) for operator in theirs.operators[there.operators :]),
        ),
        program=(
            *ours.program[: here.moments],
            *map(Death, grown),
            *(Birth(names[storage]) for storage in grown),
            *(
                replace(moment, storage=name(moment.storage))
                if isinstance(moment, Birth | Death | Used)
                else moment
                for moment in theirs.program[there.moments :]
            ),
        ),
    )


def _alive(events: object) -> list[int]:
    """Keys requested and not given back, in order."""
    found: dict[int, None] = {}
    for event in events:  # type: ignore[attr-defined]
        if isinstance(event, Malloc):
            found[event.key] = None
        elif isinstance(event, Free):
            found.pop(event.key, None)
    return list(found)


def _most_negative(*runs: Beginning) -> int:
    keys = (event.key for run in runs for event in run.followed.live.events if isinstance(event, Malloc))
    return -min(keys, default=0)
