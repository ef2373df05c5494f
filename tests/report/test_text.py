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
