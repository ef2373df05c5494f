"""Words and sentences of the terminal's report."""

from __future__ import annotations

from dataclasses import replace

from analyzer.report import formats
from analyzer.report.sentences import sureness
from analyzer.report.words import sizes
from analyzer.results.estimate import Certainty
from tests.report.estimates import TRAINING


def test_a_range_is_in_one_unit() -> None:
    """Both ends in the greater one's unit; in the lesser's where they would read the same."""
    assert sizes(1069023232, 2**30) == "1,019.5 MiB to 1,024.0 MiB"
    assert sizes(700 << 20, 3 << 29) == "0.7 GiB to 1.5 GiB"
    assert sizes(5 << 20, 5 << 20) == "5.0 MiB" and sizes(0, 100) == "0 B to 100 B"


def test_certainty_says_what_it_is_not_of() -> None:
    """Of compiled code followed as eager code, and of NCCL's memory, "100.0 % by rule, 0.0 % bounded" is not true."""
    assert sureness(TRAINING).endswith(" bounded")
    eager = replace(TRAINING, caveats=("torch.compile is not followed",))
    assert sureness(eager) == f"{sureness(TRAINING)}; not of the caveats above"
    nothing = replace(TRAINING, certainty=Certainty(0, 0, 0))
    assert sureness(nothing) == "nothing is allocated"
    bounded = replace(TRAINING, notes=("NCCL bounded: 840 MiB are counted",))
    shown = " ".join(str(formats.render("estimate", "text", bounded)).split())
    assert "bounded; not of NCCL's memory" in shown


def test_memory_that_is_no_tensors_is_explained() -> None:
    """Where the table has the word, the line below says it in others; nothing is said of what is not there."""
    shares = {"activations": 900, "scratch": 60, "workspace": 40}
    shown = str(formats.render("estimate", "text", replace(TRAINING, breakdown=shares)))
    assert "scratch: an operator takes it for itself while it runs" in shown
    assert "workspace: a library keeps it for its operators" in shown
    page = str(formats.render("estimate", "html", replace(TRAINING, breakdown=shares)))
    assert "an operator takes it for itself" in page
    none = str(formats.render("estimate", "text", replace(TRAINING, breakdown={"activations": 900})))
    assert "for itself while it runs" not in none


def test_equal_rows_of_a_page_are_one() -> None:
    row = replace(TRAINING.tensors[0], name="h.0.weight", module="h.0")
    rows = (row, replace(row, name="h.1.weight", module="h.1"))
    page = str(formats.render("estimate", "html", replace(TRAINING, tensors=rows)))
    assert "h.*.weight x2" in page.replace("<wbr>", "") and "unscripted" not in page
    bare = str(formats.render("estimate", "html", replace(TRAINING, tensors=rows), formats.View(top=0)))
    assert "Largest tensors" in page and "Largest tensors" not in bare
