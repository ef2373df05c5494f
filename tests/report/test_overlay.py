"""Two courses over one another, on estimates worked out by hand: shared names lie together, no peak is lost."""

from __future__ import annotations

from dataclasses import replace

from analyzer.report import overlay
from analyzer.results.estimate import Estimate, Timeline
from tests.report.estimates import TRAINING


def course(*allocated: int, names: dict[int, str]) -> Estimate:
    """An estimate with these bytes after each event; names: event → what it is called."""
    count = len(allocated)
    line = Timeline(
        allocated, tuple(2 * nbytes for nbytes in allocated), (0,) * count,
        tuple(names.get(event, "block") for event in range(count)),
        tuple("" if event in names else "activations" for event in range(count)), ("",) * count,
    )  # fmt: skip
    return replace(TRAINING, timeline=line)


def drawn(before: Estimate, after: Estimate) -> tuple[list[float], dict[str, list[int]]]:
    found = overlay.chart(before, after, ("before", "after"))
    assert found is not None
    return found["values"], {line["name"]: line["values"] for line in found["lines"]}


def test_the_same_course_lies_on_itself() -> None:
    one = course(1, 5, 2, 7, 3, names={2: "0.forward"})
    places, lines = drawn(one, one)
    assert places == [1, 2, 3, 4, 5]
    assert lines["allocated, before"] == lines["allocated, after"] == [1, 5, 2, 7, 3]
    assert lines["reserved, after"] == [2, 10, 4, 14, 6]


def test_named_events_lie_together_and_no_peak_is_lost() -> None:
    """The first has four events before its "0.forward" and one after, the second two and three."""
    before = course(1, 2, 3, 40, 4, 60, names={4: "0.forward"})
    after = course(10, 20, 5, 6, 70, 8, names={2: "0.forward"})
    places, lines = drawn(before, after)
    at = places.index(3)  # the event "0.forward" of the second is its third
    assert lines["allocated, before"][at] == 4 and lines["allocated, after"][at] == 5
    assert max(lines["allocated, before"][:at]) == 40 and lines["allocated, before"][-1] == 60
    assert max(lines["allocated, after"]) == 70 and places == sorted(set(places))


def test_without_a_course_there_is_nothing_to_draw() -> None:
    none = replace(TRAINING, timeline=Timeline((), (), (), (), (), ()))
    assert overlay.chart(none, TRAINING, ("before", "after")) is None
