"""The page of published figures, from predictions given by hand; what it says of contexts is the profiles'."""

from __future__ import annotations

from benchmarks.published import litgpt
from benchmarks.published.compare import CONTEXTS, FIGURES, PAGE, Figure, page


def test_the_page_has_every_figure_and_its_error() -> None:
    one = Figure("one", ("x.py",), "t4", "somebody", 100.0, 200.0, "why")
    two = Figure("two", ("x.py",), "t4", "somebody", None, 300.0)
    made = page([(one, 101.0, 240.0), (two, 5.0, 270.0)])
    assert "| one | t4 | allocated | 100.0 | 101.0 | +1.0 % |  |" in made
    assert "| one | t4 | reserved | 200.0 | 240.0 | +20.0 % | why |" in made
    assert "| two | t4 | reserved | 300.0 | 270.0 | -10.0 % |  |" in made
    # What is loose is shown and not counted.
    assert "- allocated: 1 figures, median error 1.0 %, largest 1.0 %" in made
    assert "- reserved: 1 figures, median error 10.0 %, largest 10.0 %" in made
    assert made.count("- somebody") == 1 and all(f"| {name} |" in made for name in CONTEXTS)


def test_the_written_page_has_the_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for figure in FIGURES:
        for value in (figure.allocated, figure.reserved):
            assert value is None or (
                f"| {figure.name} | {figure.device} |" in text and f"{value:,.1f}" in text
            )


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
