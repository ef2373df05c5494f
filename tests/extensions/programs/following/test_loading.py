"""A checkpoint read by transformers' threads: who has begun what when the program goes on, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from analyzer.graph import Category  # noqa: E402
from analyzer.runtimes.events import Free, Malloc  # noqa: E402
from analyzer.runtimes.pytorch.orders import Look, Reading, other_orders  # noqa: E402
from analyzer_programs.following.loading import LoadingPool  # noqa: E402

MIB = 1 << 20


class Recorder:
    """What a pool needs of one."""

    memory = None

    class places:
        class current:
            in_order = False


def begun(sizes: list[int], waits: list[int]) -> list[list[int]]:
    """After each wait, the pieces that were begun since the last; `sizes` in MiB."""
    pool, made = LoadingPool(Recorder()), []  # type: ignore[arg-type]

    def make(number: int) -> Any:
        made.append(number)
        return torch.empty(sizes[number] * MIB, dtype=torch.uint8, device="meta")

    pieces = [pool.submit(lambda number=number: make(number)) for number in range(len(sizes))]
    found = []
    for number in waits:
        before = len(made)
        assert pieces[number].result().numel() == sizes[number] * MIB
        found.append(made[before:])
    pool.shutdown()
    return found


def test_who_is_done_begins_the_next() -> None:
    """Of four equal ones the first is done first; the next is begun before the program goes on."""
    assert begun([5] * 12, [0, 1, 7]) == [[0, 1, 2, 3, 4], [5], [6, 7, 8, 9, 10, 11]]


def test_small_ones_pass_a_large_one() -> None:
    """The first takes 25 (and 1 for itself), the others 2 each: three threads make all ten of them before it is done."""
    assert begun([25, *[1] * 9, 1], [0]) == [list(range(11))]
    # Waited for is the second, done at 2 like its neighbours: they follow in the order they were begun.
    assert begun([25, *[1] * 9, 1], [1, 2, 3]) == [[0, 1, 2, 3, 4], [5], [6]]


def test_an_error_is_the_pieces_own() -> None:
    pool = LoadingPool(Recorder())  # type: ignore[arg-type]

    def fails() -> None:
        raise ValueError("no such file")

    pieces = [pool.submit(fails), pool.submit(lambda: torch.empty(1))]
    with pytest.raises(ValueError, match="no such file"):
        pieces[0].result()
    assert pieces[1].result().numel() == 1
    pool.shutdown()


def test_other_orders() -> None:
    """Three pieces; the first two are joined into what has key 10, then given back, while the third was begun too early or too late."""

    def malloc(key: int) -> Malloc:
        return Malloc(key, 100, Category.PARAMETER)

    a, b, c, joined = malloc(1), malloc(2), malloc(3), malloc(10)
    free_a, free_b = Free(1), Free(2)
    events = (a, b, c, joined, free_a, free_b)
    reading = Reading(pieces=[(0, 1), (1, 2), (2, 3)], waits=[(0, 0), (2, 1), (6, 2)])
    assert list(other_orders(events, [reading])) == [(a, b, joined, free_a, free_b, c)]
    assert list(other_orders(events, [])) == []


def test_what_a_watchdog_lets_go_is_kept_until_its_next_look() -> None:
    """Of two looks the first lets go the first block, which the program then drops; the second the other."""
    a, b, c = (Malloc(key, 100, Category.GRADIENT) for key in (1, 2, 3))
    events = (a, b, Free(1), c, Free(3), Free(2))
    looks = [Look(2, frozenset({1})), Look(4, frozenset({2}))]
    assert list(other_orders(events, [], looks)) == [(a, b, c, Free(1), Free(3), Free(2))]
    assert list(other_orders(events, [], looks[:1])) == [(a, b, c, Free(3), Free(2), Free(1))]
    assert list(other_orders(events, [], [Look(2, frozenset({3}))])) == [(a, b, Free(1), c, Free(2), Free(3))]
    assert list(other_orders(events, [], [Look(5, frozenset({2}))])) == []


def test_a_program_that_turns_each_piece_into_another_may_come_last() -> None:
    """Fifty pieces, each turned into what is twice as large: all may lie there before the first is. Joined in one they may not."""
    count = 50
    pieces = [Malloc(key, 100, Category.PARAMETER) for key in range(count)]
    wider = [Malloc(1000 + key, 200, Category.PARAMETER) for key in range(count)]
    events = [event for key in range(count) for event in (pieces[key], wider[key], Free(key))]
    reading = Reading(
        [(3 * key, 3 * key + 1) for key in range(count)], [(3 * key, key) for key in range(count)]
    )
    last = list(other_orders(events, [reading]))[-1]
    assert last == (*pieces, *(event for key in range(count) for event in (wider[key], Free(key))))
    joined = [event for event in events if event not in wider[1:]]
    places = [joined.index(piece) for piece in pieces]
    reading = Reading([(place, place + 1) for place in places], list(zip(places, range(count), strict=True)))
    assert all(other[:count] != tuple(pieces) for other in other_orders(joined, [reading]))


EXPERTS = {
    "model_type": "mixtral", "vocab_size": 64, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
    "architectures": ["MixtralForCausalLM"], "dtype": "bfloat16",
}  # fmt: skip


def test_a_checkpoint_of_experts_is_loaded_in_one_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in every run and on every machine, and what other orders would take beside it."""
    pytest.importorskip("accelerate")
    loading = pytest.importorskip("transformers.core_model_loading")
    import analyzer

    config = tmp_path / "config.json"
    config.write_text(json.dumps(EXPERTS))
    found = []
    for workers in (1, 4):
        monkeypatch.setattr(loading, "GLOBAL_WORKERS", workers)
        found.append(analyzer.analyze(config, length=64, device="h200"))
    first, second = found
    assert first.allocations == second.allocations
    least, most = first.reserved_range
    assert least <= first.peak_reserved <= most
    assert least < most
    assert [note for note in first.notes if "threads read the checkpoint" in note]
    assert not [note for note in first.notes if "several threads of the program" in note]
    assert first.verdict(first.device_range[0]) == "may not fit"
    assert first.verdict(first.device_range[1]) == "fits"
