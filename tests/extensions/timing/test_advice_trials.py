"""What the page says of advice beside trials: counted by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.timing.advise import RECORD, best_of, lines, read, section
from benchmarks.timing.page import PAGE

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
    text, every = section(read(RECORD)), lines(read(RECORD))
    assert text in PAGE.read_text(encoding="utf-8")
    assert "| all | 23 | 20 of 20 |" in text
    assert len(every.splitlines()) == 2 + 23


def test_a_program_is_counted_by_its_budgets() -> None:
    """One way as fast as the best and in its range; one slower than all blocks again; one budget that nothing fits."""
    slow = pair(0.2, everything={"seconds": 0.1, "peak_reserved": 90, "changes": {}})
    none = {"share": 0.35, "limit": 50, "ways": []}
    record = {
        "versions": {"gpu": "G", "torch": "2", "date": "today"},
        "programs": {"net.py": {"alternatives": [], "pairs": [pair(0.1), slow, none]}},
    }
    (line,) = (line for line in section(record).splitlines() if line.startswith("| net.py"))
    assert (
        line
        == "| net.py | 3 | 2 of 2 | 1 of 2 | 1 of 2 | 1 of 1 | 25.0% / 50.0% | 0.0% | net.py at 90%, -50% |"
    )
