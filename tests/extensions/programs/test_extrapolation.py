"""Rounds extrapolated from others: worked out by hand for a cache that grows by 600 bytes a round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.devices import resolve
from analyzer.errors import NotExtrapolated
from analyzer.graph import Category, Operator, TensorMeta
from analyzer.runtimes.events import AllocationEvent, EmptyCache, Free, Malloc, Use
from analyzer_programs import extrapolation
from analyzer_programs.extrapolation import Round

PROFILE = resolve("h200")[0]
CAT = Operator(0, "aten::cat.default", (), (TensorMeta(0, (1,), (1,), "float32"),))


def malloc(key: int, nbytes: int, storage: int | None = None) -> Malloc:
    return Malloc(key, nbytes, Category.ACTIVATION, 0, key if storage is None else storage)


def followed(numbers: range, growth: int = 600) -> list[Round]:
    """Each round makes the cache anew, gives the last one's back, and makes and gives back an answer of 8 bytes."""
    events: list[AllocationEvent] = [malloc(1000 + numbers[0] - 1, 1)]
    starts = [0]
    for number in numbers:
        starts.append(len(events))
        events += [
            malloc(1000 + number, growth * number),
            Free(1000 + number - 1),
            malloc(number, 8),
            Free(number),
        ]
    rounds, _ = extrapolation.rounds(events, [CAT], [*starts, len(events)], numbers[0] - 1)
    return rounds[1:]


def samples() -> list[Round]:
    return [*followed(range(3, 5)), *followed(range(50, 52)), *followed(range(97, 99))]


def test_a_round_is_told_by_what_it_gives_back() -> None:
    first, second = followed(range(3, 5))
    assert first.items == second.items
    assert first.items == (("take", 0), ("give", 1, 0), ("take", 0), ("give", 0, 1))
    assert (first.sizes, second.sizes) == ((1800, 8), (2400, 8))


def test_the_rounds_in_between() -> None:
    loop = extrapolation.loop(samples(), PROFILE)
    ((events, sizes),) = extrapolation.requests(loop, range(10, 12))
    # Three rounds have keys of their own at a time, two each: round 10 has 2 and 3, round 11 has 4 and 5.
    assert extrapolation.keys_of(loop) == (3, 2)
    assert events[:, :2].tolist() == [[2, 0], [0, -1], [3, 1], [3, -1], [4, 2], [2, -1], [5, 3], [5, -1]]
    assert not events[:, 2].any()
    assert sizes.tolist() == [6000, 8, 6600, 8]
    assert extrapolation.key_at(loop, 11, 0) == 4 < extrapolation.key_count(loop)


def test_sizes_that_are_no_polynomial_are_not_told() -> None:
    rounds = samples()
    odd = replace(rounds[2], sizes=(rounds[2].sizes[0] + 1, 8))
    with pytest.raises(NotExtrapolated, match="no polynomial"):
        extrapolation.loop([*rounds[:2], odd, *rounds[3:]], PROFILE)


def test_another_order_is_not_told() -> None:
    rounds = samples()
    with pytest.raises(NotExtrapolated, match="form"):
        extrapolation.loop([*rounds[:5], replace(rounds[5], items=rounds[5].items[::-1])], PROFILE)


def test_a_cache_that_is_emptied_is_not_told() -> None:
    with pytest.raises(NotExtrapolated, match="emptied"):
        extrapolation.rounds([malloc(1, 8), EmptyCache()], [CAT], [0, 2], 1)
    with pytest.raises(NotExtrapolated, match="several streams"):
        extrapolation.rounds([malloc(1, 8), Use(1, 7)], [CAT], [0, 2], 1)


def test_a_round_on_two_streams() -> None:
    def samples(*numbers: int) -> list[Round]:
        found = []
        for number in numbers:
            events = [
                malloc(number, 8),
                replace(malloc(100 + number, 600 * number), stream=7),
                Free(number),
                Free(100 + number),
            ]
            found += extrapolation.rounds(events, [CAT], [0, 4], number)[0]
        return found

    loop = extrapolation.loop(samples(3, 4, 50, 51, 97, 98), PROFILE)
    ((events, sizes),) = extrapolation.requests(loop, range(10, 11))
    assert events[:, 1:].tolist() == [[0, 0], [1, 7], [-1, 0], [-1, 0]] and sizes.tolist() == [8, 6000]
    others = [replace(one, items=(("take", 7), *one.items[1:])) for one in samples(98)]
    with pytest.raises(NotExtrapolated, match="form"):
        extrapolation.loop([*samples(3, 4, 50, 51, 97), *others], PROFILE)


def test_what_was_there_before_the_loop_is_not_given_back_in_it() -> None:
    rounds, _ = extrapolation.rounds([Free(5), Free(5)], [CAT], [0, 1, 2], 1)
    with pytest.raises(NotExtrapolated, match="before the loop"):
        extrapolation.loop(rounds, PROFILE)
