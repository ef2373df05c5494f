"""Ranks that do not call the same collectives would wait for each other for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from analyzer.errors import CaptureError
from analyzer.options import Options
from analyzer.ranks import Call, Rank
from analyzer_programs import order
from analyzer_programs.ranks import every_rank

EVERYBODY = ((0, 1), 0)
REDUCE, GATHER = ("allreduce", "train.py:4"), ("_allgather_base", "train.py:9")


def test_the_same_calls_in_the_same_order_are_in_order() -> None:
    order.check({0: {EVERYBODY: [REDUCE, GATHER]}, 1: {EVERYBODY: [REDUCE, GATHER]}}, whole=True)


def test_a_rank_that_is_in_another_group_need_not_call_what_this_one_does() -> None:
    order.check(
        {0: {((0, 1), 0): [REDUCE]}, 1: {((0, 1), 0): [REDUCE]}, 2: {((2, 3), 0): []}, 3: {}}, whole=True
    )


@pytest.mark.parametrize(
    ("zero", "one", "text"),
    [
        ([REDUCE, GATHER], [GATHER, REDUCE], "rank 0 calls allreduce at train.py:4 where rank 1 calls _allgather_base"),
        ([REDUCE, GATHER], [REDUCE], "rank 0 calls _allgather_base at train.py:9, and rank 1 never does"),
        ([], [REDUCE], "rank 1 calls allreduce at train.py:4, and rank 0 never does"),
    ],
)  # fmt: skip
def test_other_calls_are_an_error_that_names_the_lines(zero: list[Call], one: list[Call], text: str) -> None:
    with pytest.raises(CaptureError) as error:
        order.check({0: {EVERYBODY: zero}, 1: {EVERYBODY: one}}, whole=True)
    assert text in error.value.message


def test_a_rank_that_was_ended_may_have_called_fewer() -> None:
    order.check({0: {EVERYBODY: [REDUCE, GATHER]}, 1: {EVERYBODY: [REDUCE]}}, whole=False)
    with pytest.raises(CaptureError):
        order.check({0: {EVERYBODY: [REDUCE]}, 1: {EVERYBODY: [GATHER]}}, whole=False)


def test_groups_of_the_same_ranks_are_told_apart_by_their_first_use() -> None:
    said = json.dumps([[[[0, 1], "5"], [REDUCE]], [[[0, 1], "7"], [GATHER]], [[[0], "6"], []]])
    assert order.read(said.encode()) == {((0, 1), 0): [REDUCE], ((0, 1), 1): [GATHER], ((0,), 0): []}


@pytest.mark.usefixtures("forked_ranks")
def test_a_barrier_only_one_rank_calls_is_an_error_that_names_its_line(tmp_path: Path) -> None:
    """What ranks may do apart is in `tests/extensions/cli/test_ranks.py`."""
    path = tmp_path / "train.py"
    path.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "rank = dist.get_rank()\n"
        "weights = torch.zeros(1000, device=f'cuda:{rank}')\n"
        "if rank == 0:\n    dist.barrier()\n"
    )
    with pytest.raises(CaptureError, match=r"rank 0 calls barrier at .*train\.py:6, and rank 1 never does"):
        every_rank(str(path), (), Options(device="h200"), "end", Rank.of(0, 2))
