"""Curves as text: what is said of bends, and a picture whose lines can be told apart on paper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

import analyzer
from analyzer.report import formats
from analyzer.report.formats import View
from analyzer.report.plan import curve_text, kink_lines
from analyzer.report.verdicts import verdicts
from analyzer.results.curve import Curve, Kink, Row, Slope
from analyzer.spec import TensorSpec
from tests.report.estimates import TRAINING

PEAK = ("1.backward", TRAINING.top(2))


def test_bends_are_explained_or_named_together() -> None:
    lines = kink_lines([Kink(4, 5), Kink(8, 9, "", PEAK, PEAK), Kink(20, 21)])
    assert lines[0] == "the curve bends between batch 8 and 9"
    assert lines[1].startswith("  peak before, in 1.backward: ") and lines[2].startswith("  peak after, in ")
    assert lines[3:] == ["it bends less between batch 4 and 5, 20 and 21"]
    assert kink_lines([Kink(4, 5), Kink(6, 7)]) == ["the curve bends between batch 4 and 5, 6 and 7"]
    assert kink_lines([]) == []


def test_a_program_that_is_another_one_at_every_batch_does_not_fill_the_screen() -> None:
    lines = kink_lines([Kink(batch, batch + 1, f"relu is called {batch} times") for batch in range(1, 31)])
    assert lines[0] == "from batch 2 on the program is another one: relu is called 1 times"
    assert len(lines) == 9 and lines[-1] == "and 22 times more; --format json has all"


def test_without_colors_each_line_is_drawn_with_its_own_letter() -> None:
    rows = tuple(
        Row(batch, 2**28 * batch, 2**29 * batch, 2**30 * batch, 2**27 * batch) for batch in range(3, 16)
    )
    curve = Curve(
        rows, {}, (Slope(3, 15, float(2**28)),), (), (3, 9, 15), lambda: replace(TRAINING, batch=15)
    )
    picture = curve_text(curve).split("\n\n")[1].splitlines()
    drawn = "".join(line.split("┤")[-1].split("│")[-2] for line in picture[1:-3] if "│" in line)
    assert all(letter * 3 in drawn for letter in "ardn")
    ticks = picture[-2].split()
    assert ticks == ["3", "6", "9", "12", "15"] and picture[-1].split() == ["GiB", "batch"]
    assert all(len(line) <= 80 for line in curve_text(curve, View(width=80)).splitlines())


def test_speeds_of_float32_say_that_tf32_changes_their_order() -> None:
    """By the data sheets an A100 has 19.5 TFLOP/s of float32, an L4 30.3; with TF32 156 and 60 (`rates.json`)."""

    def shown(**options: Any) -> str:
        layer, inputs = nn.Linear(4096, 4096, device="meta"), lambda n: ((TensorSpec((n, 4096)),), ())
        answers = [analyzer.fit(layer, inputs, device=name, **options) for name in ("a100-80gb", "l4")]
        return str(formats.render("fits", "text", answers))

    assert "float32 without TF32, as it runs; with TF32 or bf16" in shown()
    assert "TF32" not in shown(amp="bf16")


class PartlyHalf(nn.Module):
    """One product under autocast, one left out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2048, 2048), nn.Linear(2048, 2048)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        with torch.autocast("cuda", enabled=False):
            return self.second(x.float())


def test_products_that_stay_in_float32_are_named_under_amp() -> None:
    """Advice to take bf16 says nothing to a program that does; which GPUs it slows down does."""
    inputs = lambda n: ((TensorSpec((n, 2048)),), ())  # noqa: E731
    answers = [
        analyzer.fit(PartlyHalf(), inputs, mode="train", device=name, amp="bf16")
        for name in ("h100", "rtx4090")
    ]
    text = " ".join(str(formats.render("fits", "text", answers)).split())
    assert (
        "products that stay in float32, without TF32 (h100, rtx4090)" in text
        and "with TF32 or bf16" not in text
    )


def test_a_display_takes_some_of_a_small_headroom() -> None:
    """39 MiB are left on an RTX 4090 that draws a desktop as well; an L4 has no output for a screen."""
    left = 39 * 2**20
    job = replace(TRAINING, device="rtx4090", capacity_bytes=TRAINING.device_used + left, driver_bytes=0)
    job = replace(job, budget_bytes=None, out_of_memory=None, device_assumed=False)
    told = [sentence for _, sentence in verdicts(job)]
    assert told[0].startswith("fits: ") and told[1].startswith("a display on this card")
    assert len(verdicts(replace(job, device="l4"))) == 1
    assert len(verdicts(replace(job, capacity_bytes=job.capacity_bytes + 2**31))) == 1
