"""Tokens that are extrapolated instead of run: a generating program's requests between two tokens that were
followed.

A loop that makes tokens asks for the same again and again, for tensors that grow with the sequence. So a few
of its **rounds** are followed (one call of the model, and what comes before the next), near its beginning, in
its middle and at its end, and the others are extrapolated from these:

1. A round's **form** is the order of its requests and of what it gives back, an allocation being known by how
   many rounds ago it was made, and as the how manieth of its round. All rounds that were followed must have
   one form; else nothing is extrapolated.
2. A size is a polynomial in the round's number, through every round that was followed
   (`parametric/polynomial.py`): of at most the second degree, so that most of them check it.
3. An operator's scratch is no polynomial (attention splits its keys at whole blocks): where its shapes
   change, its scratch rule is asked about every round, with the shapes that round has; and must say of the
   rounds that were followed what was recorded there.
4. The extrapolated rounds are simulated on the allocator as it stands after the first ones
   (`allocators/pytorch/onward.py`), and the last ones, which were followed, go on from there.

A request for another stream (a cache offloaded to the host comes back on one) is served by that stream's
segments, and has it in its form.

Not modelled: rounds in which a stream uses what another made (`record_stream`), or that empty the cache;
rounds whose form changes on the way (a window that fills: one loop before it, another after).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, TypeAlias

import numpy as np

from analyzer.allocators.compiled import Integers
from analyzer.devices import DeviceProfile
from analyzer.errors import NotExtrapolated
from analyzer.graph import Operator, TensorMeta
from analyzer.parametric.numbers import NotTheSame, Numbers
from analyzer.parametric.polynomial import Polynomial
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc, Wait
from analyzer.runtimes.pytorch.scratch import Output, Take, kernel_allocations

# A step of an operator: a result is requested, so many bytes are taken, the n-th of these is given back.
Step: TypeAlias = "tuple[str, int]"
# Rounds that are simulated together; and how often one operator may take memory for itself.
_AT_ONCE = 64
_MOST_TAKEN = 16
# Rounds between those that were followed about which the rules of operators are asked that took nothing
# there.
_LOOKED_AT = 17
# Of a size in the round's number: with so few powers most rounds that were followed check it.
_MOST_DEGREE = 2


@dataclass(frozen=True, slots=True)
class Round:
    """A followed round. number: of the loop's; items: its events; sizes: bytes by place.

    operators: those that take memory for themselves, with what they do: place among the items -> (operator,
        steps). plain: those that only make results, likewise.
    """

    number: int
    items: tuple[tuple[Any, ...], ...]
    sizes: tuple[int, ...]
    operators: Mapping[int, tuple[Operator, tuple[Step, ...]]]
    plain: Mapping[int, Operator]


def rounds(
    events: Sequence[AllocationEvent], operators: Sequence[Operator], starts: Sequence[int], first: int
) -> tuple[list[Round], dict[int, tuple[int, int]]]:
    """Return the rounds between each two of the `starts` (positions of events), numbered from `first` on; and
    of each key requested in them the round and its place there. Raises NotExtrapolated."""
    result: list[Round] = []
    places: dict[int, tuple[int, int]] = {}
    for number, (begin, end) in enumerate(pairwise(starts), first):
        result.append(_round(number, events[begin:end], operators, places))
    return result, places


def _round(
    number: int,
    events: Sequence[AllocationEvent],
    operators: Sequence[Operator],
    places: dict[int, tuple[int, int]],
) -> Round:
    """Return one round's events as numbered items, with sizes and the operators' steps."""
    items: list[tuple[Any, ...]] = []
    sizes: list[int] = []
    steps_of: dict[int, tuple[Operator, tuple[Step, ...]]] = {}
    plain: dict[int, Operator] = {}

    def requested(event: Malloc) -> None:
        places[event.key] = number, len(sizes)
        sizes.append(event.nbytes)

    for operator, group in groupby(_requests_and_frees(events), lambda event: event[1]):
        part = [event for event, _ in group]
        if any(isinstance(event, Malloc) and event.storage < 0 for event in part):
            results = [event for event in part if isinstance(event, Malloc) and event.storage >= 0]
            steps_of[len(items)] = operators[operator], tuple(_steps_of_events(part))
            streams = {event.stream or 0 for event in part if isinstance(event, Malloc)}
            if len(streams) > 1:
                raise NotExtrapolated("an operator that takes memory on several streams")
            items.append(("operator", operators[operator].name, len(results), streams.pop()))
            for event in results:
                requested(event)
            continue
        if operator >= 0:
            plain[len(items)] = operators[operator]
        for each in part:
            if isinstance(each, Malloc):
                items.append(("take", each.stream or 0))
                requested(each)
            else:
                items.append(("give", *_freed_at(each, number, places)))
    return Round(number, tuple(items), tuple(sizes), steps_of, plain)


def _requests_and_frees(events: Sequence[AllocationEvent]) -> Iterator[tuple[Malloc | Free, int]]:
    """Yield requests and frees with their operator (-1: outside any). Raises NotExtrapolated for other events
    that matter."""
    running, own_keys = -1, set[int]()
    for event in events:
        if isinstance(event, Malloc):
            if event.outside_pools or event.fails or event.plan:
                raise NotExtrapolated("requests past the allocator, or by plans of cuDNN")
            running = event.operator
            if event.storage < 0:
                own_keys.add(event.key)
            yield event, running
        elif isinstance(event, Free):
            own = event.key in own_keys
            own_keys.discard(event.key)
            yield event, running if own else -1
        elif not isinstance(event, Wait | Event) or (
            isinstance(event, Event) and event.name == "empty_cache"
        ):
            raise NotExtrapolated("memory that several streams use, or a cache that is emptied")


def _freed_at(event: Free, number: int, places: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return a freed allocation as (rounds since it was made, its position in that round)."""
    place = places.get(event.key)
    return (number - place[0], place[1]) if place else (-1, event.key)


def _steps_of_events(events: Sequence[Malloc | Free]) -> Iterator[Step]:
    keys: list[int] = []
    for event in events:
        if isinstance(event, Free):
            yield "give", keys.index(event.key)
        elif event.storage < 0:
            keys.append(event.key)
            yield "take", event.nbytes
        else:
            yield "result", 0


@dataclass(frozen=True, slots=True)
class Loop:
    """Contents of every round as functions of its number.

    operators: those whose steps may change from round to round: place among the items -> which of `rules` has
    them.
    """

    items: tuple[tuple[Any, ...], ...]
    sizes: tuple[Polynomial, ...]
    steps: Mapping[int, tuple[Step, ...]]
    kinds: Mapping[int, int]
    rules: tuple[Callable[[int], tuple[Step, ...]], ...]


def loop(samples: Sequence[Round], profile: DeviceProfile) -> Loop:
    """Return the loop the rounds belong to. Raises NotExtrapolated."""
    try:
        return _loop(samples, profile)
    except NotTheSame as different:
        raise NotExtrapolated(different.where) from different


def _loop(samples: Sequence[Round], profile: DeviceProfile) -> Loop:
    """Return the loop the rounds belong to. Raises NotExtrapolated, NotTheSame."""
    first = samples[0]
    if any(other.items != first.items for other in samples):
        raise NotExtrapolated("rounds differ in their form")
    if any(item[0] == "give" and item[1] < 0 for item in first.items):
        raise NotExtrapolated("a round gives back what was made before the loop")
    if sum(item[2] if item[0] == "operator" else 1 for item in first.items if item[0] != "give") != sum(
        item[0] == "give" for item in first.items
    ):
        raise NotExtrapolated("a round keeps more than it gives back")
    numbers = Numbers([sample.number for sample in samples], _MOST_DEGREE)
    sizes = tuple(
        numbers.polynomial(values, "a size") for values in zip(*(s.sizes for s in samples), strict=True)
    )
    steps: dict[int, tuple[Step, ...]] = {}
    kinds: dict[int, int] = {}
    rule_of: dict[Any, Callable[[int], tuple[Step, ...]] | None] = {}
    rules: list[Callable[[int], tuple[Step, ...]]] = []
    for place in first.operators:
        calls = [sample.operators[place] for sample in samples]
        shown = tuple(_shown(operator) for operator, _ in calls)
        if shown not in rule_of:
            rule_of[shown] = _rule(numbers, [operator for operator, _ in calls], shown, profile)
        rule = rule_of[shown]
        if rule is None:
            if any(answer != calls[0][1] for _, answer in calls):
                raise NotExtrapolated(f"{calls[0][0].name} takes other memory for the same shapes")
            steps[place] = calls[0][1]
            continue
        if rule not in rules:
            rules.append(rule)
        kinds[place] = rules.index(rule)
        for number, (operator, answer) in zip(numbers.batches, calls, strict=True):
            if rule(number) != answer:
                raise NotExtrapolated(f"{operator.name} took other memory than its rule says")
    _check_plain(samples, numbers, profile)
    return Loop(first.items, sizes, steps, kinds, tuple(rules))


def _check_plain(samples: Sequence[Round], numbers: Numbers, profile: DeviceProfile) -> None:
    """Raise NotExtrapolated if an operator without scratch so far needs some in other rounds."""
    ends = min(numbers.batches), max(numbers.batches)
    between = sorted({int(number) for number in np.linspace(*ends, _LOOKED_AT)})
    checked = set()
    for place, operator in samples[0].plain.items():
        calls = [sample.plain[place] for sample in samples]
        shown = tuple(map(_shown, calls))
        if shown in checked:
            continue
        checked.add(shown)
        rule = _rule(numbers, calls, shown, profile)
        if rule is not None and any(kind == "take" for number in between for kind, _ in rule(number)):
            raise NotExtrapolated(f"{operator.name} takes memory for itself at some lengths")


def _shown(operator: Operator) -> tuple[Any, ...]:
    """Return everything a rule may read of a call, as nested tuples; storages are numbered by appearance, as
    a rule sees which tensors share one."""
    storages: dict[int, int] = {}

    def shown(value: Any) -> Any:
        if isinstance(value, TensorMeta):
            return replace(value, storage=storages.setdefault(value.storage, len(storages)))
        return tuple(map(shown, value)) if isinstance(value, tuple) else value

    named = tuple((name, shown(value)) for name, value in operator.keywords.items())
    return (
        operator.name,
        shown(operator.arguments),
        named,
        shown(operator.outputs),
        operator.settings,
        operator.phase,
    )


def _rule(
    numbers: Numbers, calls: Sequence[Operator], shown: Sequence[tuple[Any, ...]], profile: DeviceProfile
) -> Callable[[int], tuple[Step, ...]] | None:
    """Return a function from a round's number to an operator's allocation steps at that round's shapes, from
    its calls; None if no number of it varies. Raises NotTheSame, NotExtrapolated."""
    like, steps_at = calls[0], dict[int, tuple[Step, ...]]()
    if any((name, settings) != (like.name, like.settings) for name, _, _, _, settings, _ in shown):
        raise NotExtrapolated("an operator is called in another way")
    at = numbers.operator(
        [
            Operator(like.index, name, arguments, outputs, dict(named), phase=phase)
            for name, arguments, named, outputs, _, phase in shown
        ]
    )
    if at is None:
        return None

    def steps_of(number: int) -> tuple[Step, ...]:
        if number not in steps_at:
            steps = at(number)
            operator = replace(
                like, arguments=steps.arguments, keywords=steps.keywords, outputs=steps.outputs
            )
            steps_at[number] = tuple(_ruled_steps(operator, profile))
            if len(steps_at[number]) > 2 * _MOST_TAKEN:
                raise NotExtrapolated(f"{like.name} takes memory many times")
        return steps_at[number]

    return steps_of


def _ruled_steps(operator: Operator, profile: DeviceProfile) -> Iterator[Step]:
    """Yield the steps of the rule, without workspaces, which earlier rounds took, and results written in
    place."""
    place_of: dict[int, int] = {}
    inputs = {meta.storage for meta in operator.inputs}
    results: set[int] = set()
    for step in kernel_allocations(operator, profile).steps:
        if isinstance(step, Output):
            output = operator.outputs[step.index] if step.index < len(operator.outputs) else None
            if output is not None and output.storage not in inputs | results:
                results.add(output.storage)
                yield "result", 0
        elif isinstance(step, Take):
            if not step.workspace:
                place_of[step.token] = len(place_of)
                yield "take", step.nbytes
        elif step.token in place_of:
            yield "give", place_of[step.token]


def keys_of(loop_: Loop) -> tuple[int, int]:
    """Return how many rounds have allocation keys of their own at a time, and the keys per round."""
    longest = max((item[1] for item in loop_.items if item[0] == "give"), default=0)
    return longest + 2, len(loop_.sizes)


def key_at(loop_: Loop, number: int, place: int) -> int:
    """Return the key of the `place`-th allocation of a round."""
    ring, count = keys_of(loop_)
    return number % ring * count + place


def requests(loop_: Loop, numbers: range) -> Iterator[tuple[Integers, Integers]]:
    """Yield the rounds' requests as `onward.simulate_on` takes them, several rounds at a time."""
    shapes = [[_form(rule(number)) for rule in loop_.rules] for number in numbers]
    begin = 0
    for _, alike in groupby(shapes):
        end = begin + len(list(alike))
        for at in range(begin, end, _AT_ONCE):
            yield _together(loop_, numbers[at : min(at + _AT_ONCE, end)])
        begin = end


def _form(steps: tuple[Step, ...]) -> tuple[Any, ...]:
    return tuple((kind, number if kind == "give" else 0) for kind, number in steps)


def _together(loop_: Loop, numbers: range) -> tuple[Integers, Integers]:
    """Return the events of rounds in which every operator takes the same steps."""
    ring, count = keys_of(loop_)
    columns = [_values(size, numbers) for size in loop_.sizes]
    # Rounds ago, place (behind the places: of a round's own), column or -1, stream.
    rows: list[tuple[int, int, int, int]] = []
    done = own = 0

    def result(stream: int) -> None:
        nonlocal done
        rows.append((0, done, done, stream))
        done += 1

    ruled = {place: [loop_.rules[kind](number) for number in numbers] for place, kind in loop_.kinds.items()}
    for place, item in enumerate(loop_.items):
        if item[0] == "take":
            result(item[1])
        elif item[0] == "give":
            rows.append((item[1], item[2], -1, 0))
        else:
            every = ruled.get(place) or [loop_.steps[place]] * len(numbers)
            temporaries: list[int] = []
            for at, (kind, which) in enumerate(every[0]):
                if kind == "result":
                    result(item[3])
                elif kind == "take":
                    temporaries.append(own)
                    rows.append((0, count + own, len(columns), item[3]))
                    columns.append(np.array([steps[at][1] for steps in every], np.int64))
                    own += 1
                else:
                    rows.append((0, count + temporaries[which], -1, 0))
    form = np.array(rows, np.int64).reshape(-1, 4)
    of = np.array(numbers, np.int64)[:, None]
    ago, place_, column, stream = form.T
    shared = (of - ago) % ring * count + place_
    keys = np.where(place_ < count, shared, ring * count + place_ - count)
    size = np.where(column < 0, -1, column + len(columns) * np.arange(len(numbers))[:, None])
    events = np.stack([keys, size, np.broadcast_to(stream, keys.shape)], axis=-1).reshape(-1, 3)
    return np.ascontiguousarray(events), np.ascontiguousarray(np.stack(columns, axis=-1).reshape(-1))


def _values(size: Polynomial, numbers: range) -> Integers:
    value, integral = size.at_many(numbers)
    if not integral.all():
        raise NotExtrapolated("a size is no whole number everywhere")
    return value


def key_count(loop_: Loop) -> int:
    """Return an upper bound of all keys."""
    ring, count = keys_of(loop_)
    most = sum(len(steps) for steps in loop_.steps.values())
    most += _MOST_TAKEN * len(loop_.kinds)
    return ring * count + most
