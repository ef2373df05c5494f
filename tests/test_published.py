"""The page of published figures, from predictions given by hand; what it says of contexts is the profiles'."""

from __future__ import annotations

import json
from typing import Any

from benchmarks import SUBJECTS
from benchmarks.published import litgpt, torchtune, vllm_logs
from benchmarks.published.compare import CONTEXTS, KEPT, PAGE, device, key, page
from benchmarks.published.figures import FIGURES, Figure

MIB = 1 << 20


def told(allocated: int, reserved: int, verdict: str = "fits") -> dict[str, Any]:
    return {
        "allocated": allocated * MIB, "reserved": reserved * MIB, "beside": 30 * MIB, "off": [-5 * MIB, 10 * MIB],
        "beside_range": [20 * MIB, 40 * MIB], "verdict": verdict, "ended": "",
    }  # fmt: skip


def test_the_page_has_every_figure_and_its_error() -> None:
    one = Figure("one", ("x.py",), "t4", "2.6", "somebody", 100.0, 200.0, loose=(("reserved", "why"),))
    two = Figure("two", ("x.py",), "t4", "2.6", "somebody", None, 300.0, 320.0)
    three = Figure("three", ("x.py",), "t4", "2.6", "somebody", None, None, 350.0)
    made = page(
        [(one, told(101, 240)), (two, told(5, 270, "may not fit")), (three, told(5, 270, "does not fit"))]
    )
    assert "| one | t4 | 2.6 | allocated | 100.0 | 101.0 | +1.0 % |  |  |" in made
    assert "| one | t4 | 2.6 | reserved | 200.0 | 240.0 | +20.0 % |  | why |" in made
    assert "| two | t4 | 2.6 | reserved | 300.0 | 270.0 | -10.0 % |  |  |" in made
    assert "| two | t4 | 2.6 | device | 320.0 | 300.0 | -6.2 % | 285 to 320 |  |" in made
    # What is loose is shown and not counted.
    assert "- allocated: 1 figures, median error 1.00 %, 95 % within 1.0 %, largest 1.0 %" in made
    assert "- reserved: 1 figures, median error 10.00 %, 95 % within 10.0 %, largest 10.0 %" in made
    assert (
        "- device: 1 of 2 inside the range, which is 10 % of the figure wide in the median and 11 % at most"
        in made
    )
    assert '2 of 3 verdicts say "fits" or "may not fit"' in made
    assert made.count("- somebody") == 1 and all(f"| {name} |" in made for name in CONTEXTS)


def test_a_range_is_the_allocators_and_what_is_beside_it() -> None:
    assert device(told(1, 100)) == (130 * MIB, (100 - 5 + 20) * MIB, (100 + 10 + 40) * MIB)


def test_every_figure_can_be_followed_and_is_told_apart() -> None:
    assert len({(key(one), one.name) for one in FIGURES}) == len(FIGURES)
    for one in FIGURES:
        assert (SUBJECTS / "published" / one.program[0]).is_file()
        assert {kind for kind, _ in one.loose} <= {"allocated", "reserved", "device"}
    assert (
        sum(value is not None for one in FIGURES for value in (one.allocated, one.reserved, one.device)) >= 60
    )


def test_the_written_page_is_of_what_was_predicted() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert {key(one) for one in FIGURES} == set(kept)
    assert PAGE.read_text(encoding="utf-8") == page([(one, kept[key(one)]) for one in FIGURES])


def test_litgpt_s_page_has_every_row_and_its_error() -> None:
    one, two = litgpt.Row("lora", "m", 10, 1, "none", 10.0), litgpt.Row("lora", "m", 10, 2, "bnb.nf4", 5.0)
    made = litgpt.page([(one, 10.1), (two, 4.0)])
    assert "| lora | m | 1 | none | 10.00 | 10.10 | +1.0 % |" in made
    assert "| lora | m | 2 | bnb.nf4 | 5.00 | 4.00 | -20.0 % |" in made
    assert "- whole: 1 figures, median error 1.0 %, largest 1.0 %, 1 within 3 %" in made
    assert "- quantized: 1 figures, median error 20.0 %, largest 20.0 %, 0 within 3 %" in made


def test_litgpt_s_written_page_has_the_rows() -> None:
    text = litgpt.PAGE.read_text(encoding="utf-8")
    for row in litgpt.ROWS:
        assert f"| {row.recipe} | {row.model} | {row.micro} | {row.quantize} | {row.published:.2f} |" in text


def test_torchtune_s_page_has_every_row_and_its_error() -> None:
    """The most of the steps stands beside the figure, in the table's unit; what stands beside the table is not counted."""
    one, _, *others = (
        next(row for row in torchtune.ROWS if row.table == table) for table in torchtune._TABLES
    )
    aside = next(row for row in torchtune.ROWS if not row.counted)
    made, first, later = (dict.fromkeys(torchtune._KINDS, nbytes * 10**9) for nbytes in (99, 20, 27))
    text = torchtune.page(
        [(row, [made, first, later]) for row in (one, *(row for row in torchtune.ROWS if row.counted), aside)]
    )
    gib = 27e9 / 2**30
    assert (
        f"| baseline | active | followed | 25.5 | {20e9 / 2**30:.2f} | {gib:.2f} | {100 * (gib / 25.5 - 1):+.1f} % |"
        in text
    )
    assert "| LoRA, 2 x 4090 | reserved | followed | 16.2 | 20.00 | 27.00 | +66.7 % |" in text
    assert text.count("5 figures, median error") == 2 and "11 figures, median error" in text
    assert others


def test_torchtune_s_figures_are_explained_by_rows_behind_the_table() -> None:
    """Of a row behind the table that says it within 3 %, by its first step where it is of that; any other miss is not explained."""
    row, right = (
        next(row for row in torchtune.ROWS if row.title == title) for title in ("LoRA", "LoRA, first step")
    )
    others = [row for row in torchtune.ROWS if row.table != right.table]
    made, first, later = (dict.fromkeys(torchtune._KINDS, int(gib * 2**30)) for gib in (6.0, 8.6, 9.0))
    known = [(one, [made, first, later]) for one in (row, right, *others)]
    assert "0 within 3 %, 1 explained: LoRA: 8.60 (+1.2 %); 0 not explained." in torchtune.page(known)
    far = [(right, [made, later, later]) if one is right else (one, peaks) for one, peaks in known]
    assert "0 within 3 %, 0 explained; 1 not explained: LoRA." in torchtune.page(far)
    # A row that is within 3 % needs none.
    near = [(row, [made, first, first]) if one is row else (one, peaks) for one, peaks in known]
    assert "1 within 3 %, 0 explained; 0 not explained." in torchtune.page(near)
    titles = {(row.table, row.title) for row in torchtune.ROWS if not row.counted}
    assert all((row.table, row.by) in titles for row in torchtune.ROWS if row.by)


def test_torchtune_s_written_page_has_the_rows() -> None:
    text = torchtune.PAGE.read_text(encoding="utf-8")
    assert all(
        f"| {row.title} | {row.kind} | " in text and f" | {row.published} | " in text
        for row in torchtune.ROWS
    )
    assert len({str(row) for row in torchtune.ROWS}) == len(torchtune.ROWS)


def test_peaks_are_read_as_the_recipe_prints_them() -> None:
    assert torchtune.steps("x\nPEAK 1 2 3\n PEAK 4 5 6\nPEAK 7 8 9\n") == [
        {"active": 1, "allocated": 2, "reserved": 3},
        {"active": 7, "allocated": 8, "reserved": 9},
    ]
    # The card ends before what the program was told.
    told = torchtune.steps(
        "PEAK 1 2 3000\nPEAK 7 8 999\npytorch: reserved         2,000        0.0   peak held\n"
    )
    assert [peak["reserved"] for peak in told] == [2000, 999]


def test_vllm_s_logs_follow_from_its_arithmetic() -> None:
    """All but the one whose rank with least memory is not quoted."""
    strange = [log for log in vllm_logs.LOGS if not vllm_logs.equal(log)]
    assert [(log.model, log.ranks) for log in strange] == [("Qwen3-235B-A22B (FP8)", 4)]
    assert all(log.why for log in strange) and len(vllm_logs.LOGS) >= 21
    # Memory to a hundredth of a GiB leaves at most a few blocks to choose from, of thousands.
    assert all(most < 1.015 * least for least, most in map(vllm_logs.span, vllm_logs.LOGS))
    assert vllm_logs.PAGE.read_text(encoding="utf-8") == vllm_logs.page()


def test_a_log_that_does_not_follow_is_told() -> None:
    one = vllm_logs.LOGS[0]
    wrong = vllm_logs.Logged(
        one.model, one.release, one.available, one.count + 9, one.length, None, "somewhere", tokens=False
    )
    users = vllm_logs.Logged(
        one.model, one.release, one.available, one.count, one.length, 1.59, "somewhere", tokens=False
    )
    assert vllm_logs.equal(one) and not vllm_logs.equal(wrong) and not vllm_logs.equal(users)
