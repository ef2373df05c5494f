"""The rows kept of PyTorch's own tests: added to, never rewritten, and which of them count (`benchmarks/operators/recorded.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from benchmarks.operators import recorded
from benchmarks.operators.campaign import pieces
from benchmarks.operators.recorded import Row
from benchmarks.operators.table import PAGE, counting, page


def _compared(
    name: str, sample: int, kind: str, limit: int, date: str, torch: str = "2.11.0+cu130"
) -> list[Any]:
    row = Row(torch, ("op", name, "float32", 8, sample, "contiguous", "plain"), "x", kind, "", 0, limit, date)
    read: list[Any] = json.loads(json.dumps(row))
    return read


def _emulated(name: str, sample: int, parts: list[Any]) -> dict[str, Any]:
    case = [["op", name, "float32", 8], sample, "contiguous", "plain"]
    return {"case": case, "limit": 4, "torch": "2.11.0+cu130", "sample": "x", "parts": parts, "error": None}


def test_rows_are_added_behind_the_others(tmp_path: Path) -> None:
    assert recorded.add([_compared("mm", 0, "sizes", 4, "2026-01-01")], tmp_path) == 1
    (path,) = recorded.kept("compared", tmp_path)
    before = path.read_bytes()
    assert recorded.add([_compared("mm", 0, "same", 4, "2026-01-02")], tmp_path) == 1
    assert path.read_bytes().startswith(before) and len(recorded.lines(path)) == 2
    (row,) = recorded.compared_rows([path])
    assert (row.kind, row.date) == ("same", "2026-01-02")


def test_what_is_said_already_is_not_said_again(tmp_path: Path) -> None:
    recorded.add([_compared("mm", 0, "same", 4, "2026-01-01"), _emulated("mm", 0, [])], tmp_path)
    assert recorded.add([_compared("mm", 0, "same", 4, "2026-01-02"), _emulated("mm", 0, [])], tmp_path) == 0
    assert recorded.add([_emulated("mm", 0, [["forward", [4]]])], tmp_path) == 1


def test_of_an_entry_the_campaign_with_most_samples_counts(tmp_path: Path) -> None:
    few = [_compared("mm", number, "sizes", 2, "2026-01-02") for number in range(2)]
    many = [_compared("mm", number, "same", 3, "2026-01-01") for number in range(3)]
    other = _compared("bmm", 0, "order", 2, "2026-01-02")
    recorded.add([*many, *few, other], tmp_path)
    rows = recorded.compared_rows(recorded.kept("compared", tmp_path))
    assert [row.kind for row in rows if row.case[1] == "mm"] == ["same"] * 3
    assert [row.kind for row in rows if row.case[1] == "bmm"] == ["order"]


def test_a_file_holds_one_release_type_and_scale(tmp_path: Path) -> None:
    recorded.add(
        [
            _compared("mm", 0, "same", 4, "d"),
            _compared("mm", 0, "same", 4, "d", "2.15.0"),
            _emulated("mm", 0, []),
        ],
        tmp_path,
    )
    names = [path.name for path in recorded.kept("compared", tmp_path)]
    assert names == ["torch2.11_op_float32_x8.jsonl.gz", "torch2.15_op_float32_x8.jsonl.gz"]
    assert [path.name for path in recorded.kept("emulated", tmp_path)] == names[:1]


def test_emulated_rows_of_an_entry_stand_side_by_side(tmp_path: Path) -> None:
    recorded.add([_emulated("mm", 0, []), _emulated("abs", 0, []), _emulated("mm", 1, [])], tmp_path)
    rows = recorded.emulated_rows(recorded.kept("emulated", tmp_path))
    assert [(row["case"][0][1], row["case"][1]) for row in rows] == [("abs", 0), ("mm", 0), ("mm", 1)]


def test_the_page_is_written_from_what_is_kept_and_none_is_under_by_more_than_a_mebibyte() -> None:
    rows = counting()
    assert PAGE.read_text("utf-8") == page(rows)
    assert len(rows) > 9_000 and not [row for row in rows if row.under_bytes > 2**20]


def test_a_part_of_a_campaign_says_its_way_and_nothing_else_is_taken() -> None:
    (first, *_) = pieces("python", "module:float32:4:sliced:3:double")
    assert first.job["ways"] == ["double"] and first.job["layouts"] == ["sliced"] and first.job["limit"] == 3
    assert {(which, dtype, scale) for which, _, dtype, scale in first.job["groups"]} == {
        ("module", "float32", 4)
    }
    assert next(pieces("python", "optim:float32:1:contiguous:12")).job["ways"] == ["plain"]
    for part in (
        "op:float32:8:contiguous:3:doubled",
        "op:float32:8:turned:3",
        "ops:float32:8:contiguous:3",
        "op:float32:8",
    ):
        with pytest.raises(click.BadParameter):
            next(pieces("python", part))
