"""The predicted sequence of allocations beside the recorded one: where do they part, and whose fault is it.

1. Both are sequences of requests (bytes) and of returns (of the k-th request). Requests of zero bytes are
   none.
2. They are compared request by request. Returns between two requests are a set: their order among themselves
   changes nothing that the allocator does.
3. The first difference is shown with what was predicted there: the operator, its module and source line, and
   the named event under way. A difference in the returns is shown with what was, or was not, given back.
4. Behind the first difference, positions mean little; so the whole is compared as a multiset of sizes: how
   many requests of a size were recorded but not predicted, and the other way round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analyzer.graph import Graph
from analyzer.runtimes.events import AllocationEvent, Event, Free, Malloc
from analyzer_verify.results import Divergence, HistoryComparison

_LISTED = 8


@dataclass(slots=True)
class _Slot:
    """One request, with the requests freed right before it."""

    nbytes: int | None
    returned: set[int]
    malloc: Malloc | None = None
    event: str = ""


def compare_history(
    events: Iterable[AllocationEvent], recorded: Sequence[int], graph: Graph | None
) -> HistoryComparison:
    """Compare predicted `events` with a recorded history (`program.encode`). `graph` names the operators."""
    predicted, labels = _predicted(tuple(events))
    measured = _slots_of(recorded)
    first = next(
        (
            _difference(number, ours, theirs, labels, graph)
            for number, (ours, theirs) in enumerate(zip(predicted, measured, strict=False))
            if ours.nbytes != theirs.nbytes or ours.returned != theirs.returned
        ),
        None,
    )
    if first is None and len(predicted) != len(measured):
        number = min(len(predicted), len(measured))
        ours = predicted[number] if number < len(predicted) else _Slot(None, set())
        theirs = measured[number] if number < len(measured) else _Slot(None, set())
        first = _difference(number, ours, theirs, labels, graph)
    mine = Counter(slot.nbytes for slot in predicted if slot.nbytes is not None)
    real = Counter(slot.nbytes for slot in measured if slot.nbytes is not None)
    return HistoryComparison(
        predicted_count=mine.total(),
        recorded_count=real.total(),
        first=first,
        missing=_largest(real - mine),
        extra=_largest(mine - real),
    )


def _largest(counts: Counter[int]) -> dict[int, int]:
    return dict(sorted(counts.items(), key=lambda entry: -entry[0] * entry[1])[:_LISTED])


def _predicted(events: tuple[AllocationEvent, ...]) -> tuple[list[_Slot], list[str]]:
    """Return the slots, the last with what is freed at the end, and a label for every request."""
    names: list[str] = []
    following = ""
    for event in reversed(events):
        if isinstance(event, Event):
            following = event.name
        names.append(following)
    names.reverse()
    slots, labels, returned, numbers = list[_Slot](), list[str](), set[int](), dict[int, int]()
    for event, name in zip(events, names, strict=True):
        if isinstance(event, Malloc):
            if event.nbytes == 0:
                continue
            numbers[event.key] = len(labels)
            slots.append(_Slot(event.nbytes, returned, event, name))
            labels.append(event.label or event.category.value)
            returned = set()
        elif isinstance(event, Free) and event.key in numbers:
            returned.add(numbers.pop(event.key))
    slots.append(_Slot(None, returned, None, names[-1] if names else ""))
    return slots, labels


def _slots_of(history: Sequence[int]) -> list[_Slot]:
    slots: list[_Slot] = []
    returned: set[int] = set()
    for entry in history:
        if entry >= 0:
            slots.append(_Slot(entry, returned))
            returned = set()
        else:
            returned.add(-1 - entry)
    slots.append(_Slot(None, returned))
    return slots


def _difference(
    number: int, ours: _Slot, theirs: _Slot, labels: list[str], graph: Graph | None
) -> Divergence:
    """Return how request `number` differs, as a sentence with the operator that made it."""
    operator = None
    if graph is not None and ours.malloc is not None and ours.malloc.operator >= 0:
        operator = graph.operators[ours.malloc.operator]
    if ours.returned != theirs.returned:
        late, early = ours.returned - theirs.returned, theirs.returned - ours.returned
        differences = []
        if late:
            differences.append(
                f"{_requests_in_words(late, labels)} should have been given back before it and was not"
            )
        if early:
            differences.append(
                f"{_requests_in_words(early, labels)} was given back before it, which was not predicted"
            )
        what = "; ".join(differences)
    else:
        what = f"predicted {_request(ours)}, recorded {_request(theirs)}"
    return Divergence(
        request=number,
        what=what,
        event=ours.event,
        operator=operator.name if operator else (ours.malloc.label if ours.malloc else ""),
        module=operator.module if operator else "",
        source=operator.source if operator else "",
        predicted_bytes=ours.nbytes if ours.returned == theirs.returned else None,
        recorded_bytes=theirs.nbytes if ours.returned == theirs.returned else None,
    )


def _request(slot: _Slot) -> str:
    if slot.nbytes is None:
        return "the end"
    what = f" for {slot.malloc.label or slot.malloc.category.value}" if slot.malloc else ""
    return f"{slot.nbytes:,} bytes{what}"


def _requests_in_words(numbers: set[int], labels: list[str]) -> str:
    shown = [
        f"request {number} ({labels[number]})" if number < len(labels) else f"request {number}"
        for number in sorted(numbers)
    ]
    return ", ".join(shown[:3]) + (f" and {len(shown) - 3} more" if len(shown) > 3 else "")
