"""Equal tensors stand in one row, and shares of what is sure say what they are of."""

from __future__ import annotations

from dataclasses import replace

from analyzer.report import attribution, sentences, text
from analyzer.report import json as json_report
from analyzer.report.formats import View
from analyzer.results.estimate import TensorRow
from tests.report.estimates import TRAINING


def row(name: str, module: str, nbytes: int = 1 << 20, operator: str = "addmm") -> TensorRow:
    return TensorRow(
        name, nbytes, "saved for backward", "float32", (4, 8), operator, module, "a.py:1", "forward"
    )


def test_rows_that_differ_by_a_block_are_one() -> None:
    blocks = [row("addmm", f"blocks.{number}.mlp.0") for number in range(12)]
    others = [row("addmm", "blocks.0.mlp.0", 2 << 20), row("gelu", "blocks.0.mlp.1", operator="gelu")]
    ((one, count), *rest) = attribution.grouped([*blocks, *others])
    assert (one.module, count, len(rest)) == ("blocks.*.mlp.0", 12, 2)
    assert [row.module for row, _ in rest] == ["blocks.0.mlp.0", "blocks.0.mlp.1"]


def test_a_name_that_has_nothing_in_common_stays() -> None:
    ((one, count),) = attribution.grouped([row("addmm", "0"), row("addmm", "2")])
    assert (one.module, count) == ("0", 2)


def test_names_with_numbers_inside_are_apart() -> None:
    rows = [row("addmm", "layer1.conv"), row("addmm", "layer2.conv")]
    assert [count for _, count in attribution.grouped(rows)] == [1, 1]


def test_text_counts_equal_rows_and_verbose_and_json_have_each() -> None:
    first = TRAINING.tensors[0]
    many = tuple(replace(first, name=f"h.{number}.w", module="", path=()) for number in range(10))
    estimate = replace(TRAINING, tensors=many)
    shown = text.render(estimate)
    assert shown.count("h.*.w x10") == 1 and "h.0.w" not in shown
    assert "h.9.w" in text.render(estimate, View(verbose=True))
    assert "h.7.w" in json_report.render(estimate)


def test_shares_say_what_they_are_of_beside_a_wide_range() -> None:
    certainty = replace(TRAINING.certainty, reserved_range=None, beside_range=None)
    sure = replace(TRAINING, certainty=certainty)
    assert "tensors in use" not in sentences.sureness(sure)
    least, most = TRAINING.peak_reserved, 2 * TRAINING.peak_reserved
    wide = replace(TRAINING, certainty=replace(certainty, reserved_range=(least, most)))
    assert "These are tensors in use: the device may hold" in sentences.sureness(wide)
