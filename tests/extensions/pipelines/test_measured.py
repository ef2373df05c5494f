"""Pipelines of real sizes, as foretold and as an H200 ran them."""

from __future__ import annotations

import pytest

from tests.extensions.pipelines.measured import PAGE, measured, page, predicted, prediction

ROWS = measured()["rows"]


def test_the_page_is_of_these_rows() -> None:
    """`python -m tests.extensions.pipelines.measured table` writes it anew."""
    assert PAGE.read_text() == page()
    assert predicted().keys() == {row["name"] for row in ROWS}


def test_no_run_is_foretold_too_small() -> None:
    for row in ROWS:
        if "error" not in row:
            assert predicted()[row["name"]]["allocated"] >= 0.999 * row["allocated"], row["name"]


@pytest.mark.campaign
@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_it_is_foretold_again(row: dict[str, object]) -> None:
    pytest.importorskip("diffusers")
    again, recorded = prediction(row), predicted()[str(row["name"])]
    assert again["allocated"] == recorded["allocated"] and again["stages"] == recorded["stages"]
