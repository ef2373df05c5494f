"""Steps that are played on the allocator are those the program would have run."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from analyzer import Estimate
from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.driver import MIB
from analyzer.graph import Category
from analyzer.runtimes.events import EmptyCache, Event, Free, Malloc, Use
from analyzer_programs.following.repetition import ENOUGH, Repetition
from analyzer_programs.live import Live
from analyzer_programs.playing import later, next_rounds

# The last step's logits live until the next ones are there, so that the allocator's holes move.
LOOP = """
import sys, torch
from torch import nn
model = nn.Sequential(nn.Linear(300, 1700), nn.GELU(), nn.Linear(1700, 3100)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
try:
    for step in range(int(sys.argv[1])):
        logits = model(torch.randn(700, 300, device="cuda"))
        loss = logits.logsumexp(-1).mean()
        loss.backward()
        # more
        optimizer.step()
        optimizer.zero_grad()
except torch.OutOfMemoryError:
    print("caught")
"""
COUNTED = LOOP.replace("# more", "if step == 12: torch.zeros(1 << 26, device='cuda')")
KEEPING = LOOP.replace("# more", "kept.append(loss.detach())")


def column(estimate: Estimate, name: str) -> list[int]:
    return list(getattr(estimate.timeline, name))


def part(estimate: Estimate) -> str:
    return next((note for note in estimate.notes if "--until end" in note), "")


@pytest.fixture
def no_layout_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator is never known to be as it was."""
    monkeypatch.setattr(Repetition, "_repeats", lambda self, period: False)
    numbers = count()
    monkeypatch.setattr(Live, "layout", lambda self, storages: next(numbers))


@pytest.mark.usefixtures("no_layout_repeats")
def test_a_played_step_is_one_that_was_run(run: Any) -> None:
    played = run(LOOP, "400", until="played")
    note = part(played)
    words = note.split()
    followed, more = int(words[2]), int(words[5])
    assert note.startswith(f"steady after {followed} optimizer steps, {more} more like them played on the ")
    assert followed < ENOUGH <= more
    whole = run(LOOP, str(followed + more), until="end")
    steps = len(column(whole, "allocated")) * 19 // 20  # behind them the program gives everything back
    for name in ("allocated", "reserved"):
        assert column(played, name)[:steps] == column(whole, name)[:steps], name
    assert (played.peak_allocated, played.peak_reserved) == (whole.peak_allocated, whole.peak_reserved)
    assert [mark.event for mark in played.marks if mark.event.endswith(".step")] == [
        f"{number}.step" for number in range(followed + more)
    ]


def test_an_allocator_that_repeats_ends_it_at_once(run: Any) -> None:
    played, steady = (run(LOOP, "400", until=until) for until in ("played", "steady"))
    assert (played.peak_allocated, played.peak_reserved) == (steady.peak_allocated, steady.peak_reserved)
    assert int(part(played).split()[2]) <= int(part(steady).split()[2])


@pytest.mark.usefixtures("no_layout_repeats")
def test_an_if_that_always_went_one_way_keeps_the_program_running(run: Any) -> None:
    """Its twelfth step asks for more: a program that may change is not played."""
    estimate = run(COUNTED, "400", until="played")
    assert int(part(estimate).split()[2]) > 12
    assert estimate.peak_allocated > 1 << 28


@pytest.mark.usefixtures("no_layout_repeats")
def test_what_leaves_more_alive_is_run(run: Any) -> None:
    assert "played" not in part(run(KEEPING, "60", until="played"))


def test_no_room_for_a_played_step_ends_the_program(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program could catch such an error of its own step, but this is none that it has made."""

    def play(_: Repetition) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Repetition, "play", play)
    monkeypatch.setattr(Repetition, "_repeats", lambda self, period: False)
    estimate = run(LOOP, "400", until="played")
    assert "the program ran out of memory after" in " ".join(estimate.notes)


def malloc(key: int, mebibytes: int) -> Malloc:
    return Malloc(key, mebibytes * MIB, Category.ACTIVATION, storage=key)


ROUND = [malloc(2, 30), malloc(-5, 4), Free(-5), Free(1), Event("3.step")]


def test_a_round_frees_what_is_in_the_place_of_what_it_freed() -> None:
    pair = next_rounds(ROUND, {"logits": 1}, {"logits": 2}, iter((-10, -11)).__next__)
    assert pair is not None
    first, second = pair
    assert first == (Malloc(-10, 30 * MIB, Category.ACTIVATION, storage=2), Malloc(-11, 4 * MIB, Category.ACTIVATION, storage=-5), Free(-11), Free(2), Event("3.step"))  # fmt: skip
    assert second == (*ROUND[:3], Free(-10), ROUND[4])
    assert later(ROUND[4], 2) == Event("5.step") and later(Event("empty"), 2) == Event("empty")


@pytest.mark.parametrize(
    "events",
    [
        [malloc(2, 30)],
        [Free(1)],
        [Free(9)],
        [*ROUND, Event("empty_cache")],
        [*ROUND, EmptyCache()],
        [*ROUND, Use(2, 7)],
    ],
    ids=["keeps more", "keeps less", "another's", "empties", "kernel empties", "other stream"],
)
def test_other_rounds_are_run(events: list[Any]) -> None:
    assert next_rounds(events, {"logits": 1}, {"logits": 2}, iter(range(-99, 0)).__next__) is None


def test_no_room_while_playing_frees_nothing_twice() -> None:
    from analyzer.devices import load
    from analyzer.graph import Birth, Death, Storage

    live = Live(load("h200"), "")
    live.attach([Storage(index, 30 * MIB, Category.ACTIVATION) for index in (0, 1)], [])
    for moment in (Birth(0), Birth(1), Death(0)):
        live.follow(moment)
    playing = live.play(1, {"logits": 0}, {"logits": 1}, 1)
    next(playing)
    held = live.allocator.reserved
    live.allocator.empty_cache()
    live.allocator.leave(live.allocator.reserved + MIB)
    with pytest.raises(OutOfMemoryError):
        next(playing)
    assert live.failures == 1 and held == 60 * MIB
    live.follow(Death(1))
