"""What is said of programs that run out of memory, beside what a GPU did."""

from __future__ import annotations

from benchmarks.oom.page import PAGE, page, rows


def test_the_page_is_what_its_command_writes() -> None:
    assert page() == PAGE.read_text("utf-8")


def test_changes_that_are_named_run() -> None:
    every = rows()
    assert len(every) >= 20 and all(one.fails and one.line for one in every)
    assert all(one.removed for one in every)
    assert all(measured["ended"] == "ok" for one in every for _, _, measured in one.remedies)


def test_settings_hold_what_was_said() -> None:
    settings = [row for one in rows() for row in one.settings]
    assert len(settings) >= 20 and sum(said == took for _, said, took in settings) >= len(settings) - 2
    assert all(10 * abs(said - took) < took for _, said, took in settings)
