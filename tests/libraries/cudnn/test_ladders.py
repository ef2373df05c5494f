"""What is asked for where a convolution's workspace finds no room: what was asked of cuDNN, carried over, or halves."""

from __future__ import annotations

import gzip
import json
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from analyzer.libraries.cudnn import ladders
from analyzer.libraries.cudnn.convolutions import workspace
from analyzer.libraries.cudnn.table import OPERATIONS, Convolution, convolution_of, measurements
from benchmarks.cudnn import ladders as cudnn_ladders

STEM = Convolution("forward", "float32", False, (270, 3, 224, 224), (64, 3, 7, 7), (3, 3), (2, 2), (1, 1))


def test_what_was_asked_is_told() -> None:
    """ResNet-18's first convolution at 270 samples: 982 MiB, then nothing."""
    assert ladders.ladder(STEM, 0) == (1_029_649_168, 0)


def test_every_ladder_descends_and_ends_with_nothing() -> None:
    for known in ladders.ladders().values():
        for steps in known.values():
            assert list(steps) == sorted(set(steps), reverse=True)
            assert steps[-1] == 0


def test_the_table_of_first_plans_agrees() -> None:
    """Every eleventh call that both tables were asked: the same first workspace."""
    both = 0
    for (operation, dtype, channels_last, family), known in list(ladders.ladders().items())[::11]:
        like = Convolution(
            OPERATIONS[operation], ladders.DTYPES[dtype], channels_last, (1, 1), (1, 1), (), (), ()
        )
        for batch, steps in known.items():
            found = workspace(convolution_of(np.array(family), batch, like), "h200")
            if found.source == "measured":
                both += 1
                assert found.nbytes == steps[0]
    assert both > 100


def test_at_another_batch_the_nearest_is_carried_over() -> None:
    """A copy of the input and one of the output grow with the batch; a step not below the first is none."""
    call = replace(STEM, x_shape=(1000, 3, 224, 224))
    known = ladders.ladders()[ladders._kind(STEM)]
    assert 1000 not in known
    first = workspace(call, "h200").nbytes
    steps = ladders.ladder(call, first)
    assert steps[0] == first and steps[-1] == 0
    assert ladders.ladder(call, 100)[0] == 100
    assert all(step < 100 for step in ladders.ladder(call, 100)[1:])


def test_a_stranger_goes_on_with_halves() -> None:
    stranger = replace(STEM, w_shape=(63, 3, 9, 9))
    assert ladders.ladder(stranger, 5000) == (5000, 2500, 1250, 625, 0)
    assert ladders.ladder(stranger, 0) == (0, 0)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    ladders.write(path, [(STEM, [300, 500, 200, 200, 0, 7])], json.dumps({"gpu": "none"}))
    arrays = np.load(path)
    assert arrays["nbytes"].tolist() == [300, 200, 0]
    assert arrays["count"].tolist() == [3] and str(arrays["about"]) == '{"gpu": "none"}'


def test_what_the_table_of_first_plans_kept_is_a_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the table of ladders every tenth of its calls has, where the other knows them, at most four of its steps."""
    calls = [call for call, _ in list(cudnn_ladders.known())[::10]]
    whole = [ladders.ladder(call, 0) for call in calls]
    monkeypatch.setattr(ladders, "ladders", dict)
    _forget()
    try:
        known = [
            call.x_shape[0]
            in ladders._asked(replace(call, x_shape=(1, *call.x_shape[1:])), measurements("h200"))
            for call in calls
        ]
        kept = [ladders.ladder(call, 0) for call in calls]
    finally:
        _forget()
    both = [(full, few) for full, few, there in zip(whole, kept, known, strict=True) if there]
    assert len(both) > 300
    for full, few in both:
        assert few == full if len(full) <= 4 else few == (*full[:3], full[-1])


def _forget() -> None:
    ladders._asked.cache_clear()
    ladders.ladder.cache_clear()


def test_new_answers_are_merged_into_the_table(tmp_path: Path) -> None:
    """As `python -m benchmarks cudnn ladders merge` does: what was there stays, what is new is added."""
    stranger = replace(STEM, x_shape=(3, 3, 50, 50))
    answers = tmp_path / "answers.json.gz"
    with gzip.open(answers, "wt") as file:
        json.dump([[list(astuple(stranger)), [900, 900, 400, 0]], [list(astuple(STEM)), []]], file)
    table = tmp_path / "table.npz"
    ladders.write(table, [(STEM, [5, 0])], json.dumps({"gpu": "mine"}))
    cudnn_ladders.merge.callback((answers,), table)
    arrays = np.load(table)
    assert str(arrays["about"]) == '{"gpu": "mine"}'
    before = sum(map(len, ladders.ladders().values()))
    assert len(arrays["call"]) == before + 1
    assert arrays["nbytes"][-3:].tolist() == [900, 400, 0]


def test_batches_of_a_list() -> None:
    assert cudnn_ladders.read_batches("110:112,64,64") == [110, 111, 112, 64]
    call = replace(STEM, x_shape=(8, 3, 224, 224))
    assert cudnn_ladders.at_batch(call, 3).x_shape == (6, 3, 224, 224)  # two images a sample
