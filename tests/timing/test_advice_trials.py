"""What the page says of advice beside trials: counted by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.timing.advise import RECORD, best_of, read, section

WAY = {"name": "a way", "changes": {"checkpoint": "x"}, "said": [0.1, 0.08, 0.12], "peak_reserved": 90}


def pair(seconds: float, **more: Any) -> dict[str, Any]:
    advised = {"changes": {"checkpoint": "x"}, "seconds": seconds, "peak_reserved": 90}
    return {"share": 0.9, "limit": 100, "ways": [WAY], "advised": advised, **more}


def test_the_best_is_what_ran_or_might_have() -> None:
    quick = {"changes": {"batch": 2}, "seconds": 0.05, "peak_reserved": 111}
    near = {"changes": {"batch": 4}, "seconds": 0.06, "peak_reserved": 110}
    program = {"free": [quick, near]}
    assert best_of(program, pair(0.1)) == 0.06  # the quicker one holds too much for the limit
    failed = {"changes": {"batch": 4}, "out_of_memory": "no", "peak_reserved": 100}
    assert best_of(program, pair(0.1, under=[failed])) == 0.1
    ran = {"changes": {"batch": 4}, "seconds": 0.07, "peak_reserved": 99}
    assert best_of(program, pair(0.1, under=[ran])) == 0.07
    assert best_of(program, pair(0.04)) == 0.04


def test_the_record_is_what_the_page_says() -> None:
    title, opening, table = section(read(RECORD))
    assert title == "## Advice" and "20 of 20 ran" in opening
    assert len(table.splitlines()) == 2 + 23
