"""What is said of programs that run out of memory, beside what a GPU did."""

from __future__ import annotations

from benchmarks.oom.page import PAGE, page, rows


def test_the_page_is_what_its_command_writes() -> None:
    assert page() == PAGE.read_text("utf-8")


def test_changes_that_are_named_run() -> None:
    every = rows()
    assert sum(one.fails for one in every) >= len(every) - 1
    assert all(one.runs for one in every)


def test_settings_hold_what_was_said() -> None:
    settings = [row for one in rows() for row in one.settings]
    assert settings and all(said == took for name, said, took in settings if name.startswith("expandable"))
