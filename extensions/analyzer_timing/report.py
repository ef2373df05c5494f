"""The fastest way that fits, for a terminal and as JSON: the answer first, what to type or the patch, then
every way that was analysed."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

from analyzer.report import speed
from analyzer.report.columns import Column, room_of, table, within
from analyzer.report.formats import PLAIN, View
from analyzer.report.sentences import subject
from analyzer.report.words import clean, mib, operator_name, size

if TYPE_CHECKING:
    from analyzer.results.estimate import Estimate
    from analyzer_timing.results import Advice, Way

_NAME_WIDTH = 40
JUDGED = {"fits": "yes", "may not fit": "maybe", "does not fit": "no"}


def render(advice: Advice, view: View = PLAIN) -> str:
    """Return the verdict, the options or the patch, the ways by time, notes."""
    base = advice.base.estimate
    assert base is not None
    lines = [*verdict(advice), " · ".join([*subject(base), clean(base.device)])]
    best = advice.best
    if best is not None and best.typed:
        lines.append(f"  add {clean(best.typed)}")
    ways = [way for way in (*advice.ways, *advice.others) if way.estimate is not None]
    failed = [way for way in advice.others if way.estimate is None]
    failures = [f"{clean(way.name)} does not run: {clean(way.error)}" for way in failed]
    failures += [f"- {clean(note)}" for note in notes(advice)]
    parts = [*within(lines, view.width), "", *_table(ways, view), "", *within(failures, view.width)]
    text = "\n".join(parts).rstrip("\n") + "\n"
    return text + (f"\n{_patch(advice)}" if advice.patch else "")


def verdict(advice: Advice) -> list[str]:
    """Return the answer in one or two sentences."""
    base, best = advice.base.estimate, advice.best
    assert base is not None
    need = f"needs {mib(base.needed.device_used)} MiB of {mib(base.allowed_bytes)} as it is"
    if best is None or best.estimate is None:
        return [_nothing(advice, base, need)]
    word = "fastest way that fits" if best.verdict == "fits" else "fastest way that may fit"
    if best.name == advice.base.name:
        head = f"{word}: {clean(best.name)}"
    else:
        head = f"{word}: {clean(best.name)}" + (" (changes numbers)" if best.numbers else "")
    took = f"{mib(best.estimate.device_used)} MiB of {mib(best.estimate.allowed_bytes)}"
    lines = [f"{head}: {took}{_timed(best.estimate)}"]
    if base.verdict() != "fits":
        lines.append(need)
    elif best.name != advice.base.name:
        lines.append(f"as it is it fits too{_timed(base)}")
    if advice.wanted is not None:
        lines.insert(0, _reached(advice, best.estimate))
    return lines


def _reached(advice: Advice, estimate: Estimate) -> str:
    rate, wanted = speed.rate(estimate), speed.number(advice.wanted or 0.0)
    rate_text = f"{rate} samples a second at batch {estimate.batch}, of {wanted} that were asked for"
    if advice.reached:
        sure = estimate.samples_per_second is not None and estimate.samples_per_second[1] >= (
            advice.wanted or 0.0
        )
        return f"reached: {rate_text}" + ("" if sure else ", though not at the slow end of the range")
    return f"not reached: {rate_text}"


def _nothing(advice: Advice, base: Estimate, need: str) -> str:
    """Return why nothing that was tried fits: the bound proves it, or else what takes least."""
    bound = advice.bound
    if bound is not None and advice.missing_bytes:
        return (
            f"cannot fit: one sample needs at least {mib(bound.device_bytes)} MiB,"
            f" {size(advice.missing_bytes)} more than the {mib(base.allowed_bytes)} there are, whatever is"
            f" computed again (at {_place(bound.place)}); it {need}"
        )
    least = min(
        (way for way in (advice.base, *advice.others) if way.estimate is not None),
        key=lambda way: way.estimate.needed.device_used if way.estimate is not None else 0,
    )
    assert least.estimate is not None
    sentence = (
        f"nothing that was tried fits: {clean(least.name)} takes least,"
        f" {mib(least.estimate.needed.device_used)} MiB of {mib(base.allowed_bytes)}"
    )
    if bound is None:
        return sentence
    least_needed = mib(bound.device_bytes)
    return f"{sentence}; that nothing can is not proven (one sample needs at least {least_needed} MiB)"


def _place(place: str) -> str:
    """Return where the peak is: "addmm h.0.mlp gpt2.py:30" (operator, module, line)."""
    name, _, rest = place.partition(" ")
    return f"{operator_name(name)} {clean(rest)}" if "::" in name else clean(place)


def _timed(estimate: Estimate) -> str:
    sentence = speed.line(estimate)
    return f"; {sentence}" if sentence else ""


def _table(ways: list[Way], view: View) -> list[str]:
    """Return one table row for each way, in their order."""
    timed = any(way.seconds is not None for way in ways)
    columns = [Column("way", _NAME_WIDTH, least=20), Column("device MiB", 12), Column("fits", 6)]
    if timed:
        columns += [Column("step", 9), Column("samples/s", 11, rank=1), Column("step range", 20, rank=2)]
    rows, below = [], []
    room = room_of(columns[0], columns, view.width)
    for way in ways:
        estimate = way.estimate
        assert estimate is not None
        first, *others = textwrap.wrap(clean(way.name), room, subsequent_indent="  ", break_on_hyphens=False)
        below.append(others)
        times = [speed.step(estimate), speed.rate(estimate), speed.step_range(estimate)] if timed else []
        used = estimate.device_used if way.verdict == "fits" else estimate.needed.device_used
        rows.append([first, mib(used), JUDGED[way.verdict], *times])
    titles, *lines = table(columns, rows, view.width)
    body = [part for line, more in zip(lines, below, strict=True) for part in (line, *more)]
    return [titles, *body]


def notes(advice: Advice) -> list[str]:
    """Return the notes, ways too close to tell apart, and the basis of the times."""
    notes = list(advice.notes)
    best = advice.best
    time = None if best is None or best.estimate is None else best.estimate.step_seconds
    if best is not None and time is not None:
        near = [w.name for w in advice.ways[1:] if w.seconds is not None and w.seconds < 1.05 * time.seconds]
        if near:
            notes.append(f"less than 5 % slower, which the times do not tell apart: {', '.join(near)}")
        if not time.source.startswith("measured"):
            notes.append(f"times: {time.source}")
    return notes


def _patch(advice: Advice) -> str:
    how = (
        "the changed file was analysed: the same bytes"
        if advice.patch_proven
        else "the changed file was not analysed, or takes other bytes: use the option above"
    )
    return f"Or as a patch of the file, without --checkpoint ({how}):\n\n{_shown(advice.patch)}"


def _shown(patch: str) -> str:
    """Return a diff with nothing in it that a terminal obeys."""
    return "".join(
        "".join(c for c in line if c.isprintable() or c == "\t") + "\n" for line in patch.splitlines()
    )


def render_json(advice: Advice, _: View = PLAIN) -> str:
    """Return the advice as JSON without timelines; sizes in bytes, times in seconds."""
    bound = advice.bound
    best = advice.best
    document = {
        "schema": 1,
        "best": None if best is None else best.name,
        "base": _row(advice.base),
        "ways": [_row(way) for way in advice.ways],
        "others": [_row(way) for way in advice.others],
        "infeasible": advice.missing_bytes > 0,
        "missing_bytes": advice.missing_bytes,
        "bound": None
        if bound is None
        else {"device_bytes": bound.device_bytes, "beside_bytes": bound.beside_bytes, "place": bound.place},
        "wanted_samples_per_second": advice.wanted,
        "reached": advice.reached,
        "patch": advice.patch,
        "patch_proven": advice.patch_proven,
        "analyses": advice.analyses,
        "notes": notes(advice),
    }
    return json.dumps(document, indent=1) + "\n"


def _row(way: Way) -> dict[str, Any]:
    estimate = way.estimate
    return {
        "name": way.name,
        "options": way.typed,
        "changes": {name: str(value) for name, value in way.changes.items()},
        "changes_numbers": way.numbers,
        "verdict": way.verdict,
        "peak_allocated": estimate.peak_allocated if estimate else None,
        "peak_reserved": estimate.peak_reserved if estimate else None,
        "device_used": estimate.device_used if estimate else None,
        "batch": estimate.batch if estimate else None,
        **speed.fields(estimate),
        "error": way.error,
    }
