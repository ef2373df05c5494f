"""Each figure is called what it is: a column has one meaning, a peak so far does not fall, a range has two ends."""

from __future__ import annotations

from dataclasses import replace

from analyzer.report import formats, html
from analyzer.report.formats import PLAIN, View
from analyzer.report.sentences import assumed, marks_so_far, naive_terms, uncertain
from analyzer.report.verdicts import verdicts
from analyzer.report.words import operator_name, pieces, sizes, span
from analyzer.results.estimate import MarkRow, Room
from analyzer.results.strategy import Strategy
from analyzer_verify.results import Figure, Verification
from tests.report.estimates import MIB, TRAINING


def test_a_verdict_stands_beside_the_figure_it_is_of() -> None:
    """A job that needs 2,090 MiB runs in 2,048: the verdict is on what it takes there."""
    here = replace(TRAINING, device_used=2040 * MIB, capacity_bytes=2048 * MIB, device_assumed=False)
    pressed = replace(here, with_room=Room(2000 * MIB, 2048 * MIB, 2090 * MIB))
    base = replace(here, device_used=3000 * MIB)
    ways = [Strategy("as it is", {}, base), Strategy("fsdp2", {}, pressed, saved=910 * MIB)]
    titles, _, row = formats.render("strategies", "text", ways, View(width=120)).splitlines()[2:5]
    assert titles.split()[:5] == ["strategy", "device", "MiB", "with", "room"]
    assert row.split()[:5] == ["fsdp2", "2,040.0", "2,090.0", "30.3", "%"] and row.split()[-1] == "yes"
    assert "with room" in formats.render("strategies", "html", ways)
    assert "with room" not in formats.render("strategies", "text", ways[:1], View(width=120))


def test_the_peak_so_far_does_not_fall() -> None:
    marks = tuple(MarkRow(f"{i}.step", 0, peak * MIB, 9 * MIB) for i, peak in enumerate((3, 7, 5)))
    estimate = replace(TRAINING, marks=marks)
    assert [mark.peak for mark in marks_so_far(estimate)] == [3 * MIB, 7 * MIB, 7 * MIB]
    assert "5.0 MiB" not in html.render(estimate, PLAIN).partition("peak so far")[2].partition("</table>")[0]


def test_a_range_whose_ends_read_the_same_is_one_figure() -> None:
    assert (span("15,994", "15,994"), span("1", "2")) == ("15,994", "1 to 2")
    certainty = replace(
        TRAINING.certainty,
        assumed={"context": MIB},
        reserved_range=(TRAINING.peak_reserved, TRAINING.peak_reserved + 1),
        beside_range=(18 * MIB, 18 * MIB),
    )
    said = assumed(replace(TRAINING, certainty=certainty))[1]
    assert said == "so device memory may be 60.0 MiB, reserved 42.0 MiB"


def test_the_range_of_a_measured_gpu_is_shown() -> None:
    """A convolution's workspace that cuDNN was not asked about: the screen and the page say between what the figures lie."""
    certainty = replace(TRAINING.certainty, reserved_range=(TRAINING.peak_reserved, 1042 * MIB))
    estimate = replace(TRAINING, certainty=certainty)
    assert uncertain(TRAINING)[-1:] != (said := uncertain(estimate)[-1:])
    assert said == [
        "between bounds: 42.0 MiB to 1,042.0 MiB reserved, 60.0 MiB to 1,060.0 MiB of device memory"
    ]
    shown = formats.render("estimate", "text", estimate, View(width=120)), html.render(estimate, PLAIN)
    assert all(said[0] in text for text in shown)


def test_each_term_of_training_is_named() -> None:
    naive = replace(TRAINING.naive, weight_gradient=32 * MIB, moments=2, ddp_factor=2)
    assert naive_terms(replace(TRAINING, naive=naive)) == (
        "naive = data 4.0 + weights 8.0 + outputs 16.0 + weight grads 8.0 + sent grads 8.0 + optimizer state 16.0"
        " + output grads 20.0 MiB"
    )


def test_an_operator_has_no_overload() -> None:
    """PyTorch's overloads ("self", "Tensor") are names of its own; a label that is no operator's stays."""
    assert [operator_name(f"aten::{name}") for name in ("where.self", "div.Tensor", "mm.default")] == [
        "where",
        "div",
        "mm",
    ]
    assert operator_name("mylib::smooth.default") == "mylib::smooth"
    assert operator_name("layer1.0.conv1.weight") == "layer1.0.conv1.weight"
    assert pieces(1) == "1 piece" and pieces(1200) == "1,200 pieces"
    assert operator_name("net.default") == "net.default"


def test_a_page_of_an_emulated_run_says_so_and_judges_predictions_alone() -> None:
    """The textbook's sum is none: where it alone differs, every figure is exact."""
    figures = (Figure("naive sum", 100, 90), Figure("peak in use", 80, 80), Figure("held", 90, 90))
    verified = Verification(
        "net.onnx", "onnxruntime CUDA", "infer", 8, "", "h200", {}, figures, (), None, None,
        {"emulated": "ONNX Runtime 1.30.0 itself"},
    )  # fmt: skip
    shown = str(formats.render("verification", "html", verified))
    assert "2 of 2 figures exact" in shown and ">emulated</th>" in shown and ">measured</th>" not in shown
    worse = replace(verified, figures=(*figures, Figure("device", 90, 91)), environment={})
    shown = str(formats.render("verification", "html", worse))
    assert "2 of 3 figures exact" in shown and ">measured</th>" in shown


def test_how_much_workspaces_may_be_is_of_the_figure_above_it() -> None:
    """Of device memory, as the verdict; by how much where both ends read the same."""
    beside = TRAINING.device_used - TRAINING.peak_reserved

    def line(least: int, most: int) -> str:
        span = {"reserved_range": (least, most), "unasked": {"unknown": (least, most)}}
        known = replace(TRAINING.certainty, **span)
        return verdicts(replace(TRAINING, certainty=known))[-1][1]

    reserved = TRAINING.peak_reserved
    assert line(MIB, 2**33) == f"it may take {sizes(MIB + beside, 2**33 + beside)}: unknown"
    assert line(reserved - 2048, reserved) == "it may take 2.0 KiB less: unknown"
    assert line(reserved - 2048, reserved + 1024) == "it may take 2.0 KiB less or 1.0 KiB more: unknown"


def test_a_phase_is_a_whole_word() -> None:
    tensors = tuple(replace(row, phase="evaluation") for row in TRAINING.tensors)
    shown = str(formats.render("estimate", "text", replace(TRAINING, tensors=tensors)))
    assert "\nevaluation " in shown and "evaluatio " not in shown
