"""The estimate for a terminal: whether it fits, the estimates side by side, what the peak consists of.

1. The first line is the verdict with the headroom; then what the runtime would refuse to run as it was asked
   for, and on which device, and whether that was assumed.
2. Everything fits the columns there are, from 40 on: long names lose their beginning, numbers and rules never
   a digit. Where there is little room bars are shorter, the column of bytes goes (MiB stay), and tensors
   stand in one column.
3. Without a terminal there is no colour and no escape sequence, and the same estimate gives the same bytes.
4. Names come out of models: they pass through `words.clean` and are never read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analyzer.report import attribution
from analyzer.report.console import printed
from analyzer.report.formats import PLAIN, View
from analyzer.report.sentences import (
    after_runs,
    attempts,
    breakdown_rows,
    devices,
    estimate_rows,
    figures_of,
    fragmented,
    growing,
    naive_terms,
    other_notes,
    own_memory,
    peak_place,
    remedies,
    size_heading,
    step_line,
    subject,
    sureness,
    uncertain,
)
from analyzer.report.verdicts import verdicts
from analyzer.report.words import clean, folded, mib, operator_name, percent, size, tail, unit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from analyzer.results.estimate import Estimate, TensorRow

_BAR_WIDTH = 30
# Width of a breakdown's line without its bar; narrower than this, tensors are in one column.
_BESIDE_BAR = 44
_PHASE_WIDTH = 10  # the longest: "evaluation", "generation"
_NARROW = 64
_WHAT_WIDTH = 34
_UNKNOWN_SHOWN = 8
_BELOW_ADVICE = 5


def render(estimate: Estimate, view: View = PLAIN) -> str:
    """Return the whole report, ending with a newline."""
    return printed(parts(estimate, view), view.width, view.color)


def _summary(estimate: Estimate, view: View) -> list[RenderableType]:
    """Return verdicts and caveats, then the subject and the table of estimates."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(sentence, style="dim")
        if holds is None
        else Text(
            sentence, style="bold green" if holds else "bold red", no_wrap=view.width >= 80, overflow="ignore"
        )
        for holds, sentence in verdicts(estimate, view.budget_bytes)
    ]
    parts += [Text(clean(message), style="bold yellow") for message in estimate.caveats]
    if estimate.device_note:
        parts.append(Text(f"device: {clean(estimate.device_note)}", style="dim"))
    parts += ["", Text(" · ".join(subject(estimate)), style="bold"), "", _estimates(estimate, view.width)]
    return parts


def parts(
    estimate: Estimate, view: View, after_verdict: Sequence[str] = (), besides: Sequence[RenderableType] = ()
) -> list[RenderableType]:
    """Return the parts of the report. after_verdict: sentences behind the first one; besides: parts behind
    the table of estimates."""
    from rich.text import Text

    summary = _summary(estimate, view)
    parts = [
        *summary[:1],
        *(Text(clean(line), style="bold") for line in after_verdict),
        *summary[1:],
        *besides,
    ]
    if terms := naive_terms(estimate):
        parts.append(Text(terms, style="dim"))
    if sentence := step_line(estimate):
        parts.append(Text(sentence))
    if (fullest := estimate.fullest) is not None:
        parts += ["", Text(f"Each GPU (all else is of cuda:{fullest.number})", style="bold")]
        parts += map(Text, devices(estimate))
    if lines := after_runs(estimate):
        parts += ["", Text("After each run", style="bold"), *map(Text, lines)]
    if estimate.breakdown:
        where = f" ({place})" if (place := peak_place(estimate)) else ""
        parts += ["", Text(f"At the peak{where}", style="bold"), _breakdown(estimate, view.width)]
        parts += [Text(line, style="dim") for line in own_memory(estimate)]
        grows = growing(estimate) if estimate.out_of_memory is not None else ""  # else beside the verdict
        for sentence in (attribution.unread(estimate), grows, fragmented(estimate)):
            if sentence:
                parts.append(Text(sentence, style="yellow"))
    parts += _ways_out(estimate)
    if view.by and estimate.tensors:
        parts += ["", *_by_name(estimate, view)]
    if estimate.tensors and view.top > 0:
        parts += [
            "",
            Text.assemble(("Largest tensors at the peak", "bold"), (" (analyze explain RULE)", "dim")),
            _tensors(_shown_tensors(estimate, view), view, size_heading(estimate)),
        ]
    if estimate.engine != "recording":  # which happened
        parts += ["", *_certainty(estimate)]
    if notes := other_notes(estimate):
        parts += ["", Text("Notes", style="bold"), _notes(folded(notes, view.verbose))]
    return parts


def _rows_shown(estimate: Estimate, view: View) -> int:
    """Return how many of the largest tensors are shown: fewer below ways out, unless a number was given."""
    return _BELOW_ADVICE if estimate.remedies and view.top == PLAIN.top else view.top


def _shown_tensors(estimate: Estimate, view: View) -> list[tuple[TensorRow, int]]:
    """Return the largest tensors with how many are equal; --verbose shows each, with its holder."""
    count = _rows_shown(estimate, view)
    if view.verbose:
        return [(row, 1) for row in estimate.top(count)]
    return attribution.grouped(estimate.tensors)[:count]


def _ways_out(estimate: Estimate) -> list[RenderableType]:
    """Return what makes a program fit; what is typed is never wrapped, and can be copied."""
    from rich.text import Text

    parts: list[RenderableType] = []
    if known := remedies(estimate):
        parts += ["", Text("It fits with any of these, each followed", style="bold")]
    for sentence, typed in known:
        parts += [Text(sentence), typed]
    if others := attempts(estimate):
        parts += ["", Text("Of other changes", style="bold")]
    for sentence, command in others:
        parts += [_notes([sentence]), *([f"    {command}"] if command else [])]
    return parts


def summary(estimate: Estimate, view: View = PLAIN) -> str:
    """Return verdict, subject and estimates, for `str(estimate)`."""
    return printed(_summary(estimate, view), view.width, view.color)


def line(estimate: Estimate, _: View = PLAIN) -> str:
    """Return the estimate in one line, for `repr(estimate)`."""
    sentence = verdicts(estimate)[0][1]
    return f"<Estimate {' · '.join(subject(estimate))}: {sentence}>"


def _estimates(estimate: Estimate, width: int) -> RenderableType:
    from rich import box
    from rich.table import Table

    rows = estimate_rows(estimate)
    widths = [
        max(len(cell) for cell in column)
        for column in zip(("", "bytes", ""), *((n, f"{b:,}", mib(b)) for n, b, _ in rows), strict=True)
    ]
    room = width - sum(widths) - 9
    bytes_fit = sum(widths) + 6 <= width
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column("estimate", width=widths[0], no_wrap=True)
    if bytes_fit:
        table.add_column("bytes", justify="right", width=widths[1], no_wrap=True)
    shown_as, write = ("MiB", mib) if bytes_fit else unit(nbytes for _, nbytes, _ in rows)
    last = max(len(shown_as), *(len(write(nbytes)) for _, nbytes, _ in rows))
    table.add_column(shown_as, justify="right", width=last, no_wrap=True)
    if room >= 10:
        table.add_column("", max_width=room, no_wrap=True, overflow="ellipsis", style="dim")
    for name, nbytes, meaning in rows:
        cells = (name, f"{nbytes:,}", mib(nbytes), meaning) if bytes_fit else (name, write(nbytes))
        table.add_row(*cells[: len(table.columns)])
    return table


def _breakdown(estimate: Estimate, width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    bar_width = min(_BAR_WIDTH, max(width - _BESIDE_BAR, 0))
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    if bar_width:
        table.add_column(width=bar_width, no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    rows = breakdown_rows(estimate)
    for name, nbytes in rows:
        bar = [Text("█" * max(1, nbytes * bar_width // rows[0][1]), style="cyan")] if bar_width else []
        share = percent(nbytes, estimate.peak_allocated)
        table.add_row(tail(clean(name), min(20, width - 20)), *bar, size(nbytes), share)
    return table


def _by_name(estimate: Estimate, view: View) -> list[RenderableType]:
    """Return the bytes at the peak by one kind of name: the largest rows, the rest in one, and their sum."""
    from rich.table import Table
    from rich.text import Text

    by_name = attribution.rows(estimate, view.by, view.depth)
    shown = by_name[: view.top] if view.top else by_name
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    room = max(view.width - 24, 16)
    for name, nbytes in shown:
        label = tail(clean(name), room) or attribution.NAMELESS[view.by]
        table.add_row(size(nbytes), percent(nbytes, estimate.peak_allocated), label)
    if rest := by_name[len(shown) :]:
        nbytes = sum(nbytes for _, nbytes in rest)
        more = f"{len(rest):,} more (--top 0 shows all)"
        table.add_row(size(nbytes), percent(nbytes, estimate.peak_allocated), Text(more, style="dim"))
    total = sum(nbytes for _, nbytes in by_name)
    table.add_row(size(total), percent(total, estimate.peak_allocated), Text("sum", style="bold"))
    return [Text(f"At the peak by {view.by}", style="bold"), table]


def _tensors(rows: Sequence[tuple[TensorRow, int]], view: View, heading: str) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    width = view.width
    phases = (clean(row.phase)[:_PHASE_WIDTH] for row, _ in rows)
    digits = max(5, *map(len, (*phases, *(size(row.nbytes) for row, _ in rows))))
    if width < _NARROW:
        return _tensors_narrow(rows, digits, view, heading)
    room = max(16, width - digits - _WHAT_WIDTH - 6)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column(f"{heading}\nphase", justify="right", width=digits, no_wrap=True)
    table.add_column("shape, type\ncategory · rule", width=_WHAT_WIDTH, no_wrap=True, overflow="ellipsis")
    table.add_column("tensor or module\noperator, line", width=room, no_wrap=True, overflow="ellipsis")
    for row, count in rows:
        name, maker = attribution.counted(row, count)
        holder, why = attribution.held_by(row) if view.verbose else ("", "")
        table.add_row(
            Text.assemble(size(row.nbytes), (f"\n{clean(row.phase)[:_PHASE_WIDTH]}", "dim")),
            Text.assemble(
                attribution.shape_and_type(row, _WHAT_WIDTH),
                (f"\n{_kind(row, _WHAT_WIDTH)}\n{holder}".rstrip(), "dim"),
            ),
            Text.assemble(
                tail(name, room), (f"\n{tail(maker, room)}\n{tail(why, room)}".rstrip("\n"), "dim")
            ),
        )
    return table


def _tensors_narrow(
    rows: Sequence[tuple[TensorRow, int]], digits: int, view: View, heading: str
) -> RenderableType:
    """Size and phase, and beside them everything else, one below the other."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    room = max(16, view.width - digits - 3)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    table.add_column(f"{heading}\nphase", justify="right", width=digits, no_wrap=True)
    table.add_column(
        "tensor, shape, type\nmaker, category · rule", max_width=room, no_wrap=True, overflow="ellipsis"
    )
    for row, count in rows:
        name, maker = attribution.counted(row, count)
        holder = [tail(part, room) for part in attribution.held_by(row)] if view.verbose else []
        rest = "\n".join(
            filter(
                None, (attribution.shape_and_type(row, room), tail(maker, room), _kind(row, room), *holder)
            )
        )
        table.add_row(
            Text.assemble(size(row.nbytes), (f"\n{clean(row.phase)[:_PHASE_WIDTH]}", "dim")),
            Text.assemble(tail(name, room), (f"\n{rest}", "dim")),
        )
    return table


def _kind(row: TensorRow, width: int) -> str:
    """Return the category and the rule behind the size; the rule's name stays whole."""
    rule, category = clean(row.rule), clean(row.category)
    room = width - len(rule) - 3
    if rule and len(category) > room:
        category = category[: max(room - 1, 0)] + "…"
    return " · ".join(filter(None, (category, rule)))


def _certainty(estimate: Estimate) -> list[RenderableType]:
    """Return how the bytes at the peak are known, the releases, and the operators without a rule."""
    from rich.padding import Padding
    from rich.text import Text

    certainty = estimate.certainty
    lines: list[RenderableType] = [Text.assemble(("How sure: ", "bold"), sureness(estimate))]
    lines += [Padding(line, (0, 0, 0, 2)) for line in uncertain(estimate)]
    if estimate.modelled:
        lines.append(Text.assemble(("Figures of: ", "bold"), figures_of(estimate)))
    if certainty.unknown_operators:
        lines.append(
            Text(
                "Operators of which only the results are known, so that all figures are at least what it"
                " takes:",
                style="bold yellow",
            )
        )
        by_calls = sorted(certainty.unknown_operators.items(), key=lambda entry: -entry[1])
        for name, calls in by_calls[:_UNKNOWN_SHOWN]:
            plural = "call" if calls == 1 else "calls"
            lines.append(Text(f"  {tail(operator_name(name), 44)}: {calls:,} {plural}"))
        if len(by_calls) > _UNKNOWN_SHOWN:
            lines.append(Text(f"  and {len(by_calls) - _UNKNOWN_SHOWN:,} more (--format json lists all)"))
    return lines


def _notes(notes: Sequence[str]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=1)
    table.add_column(overflow="fold")
    for note in notes:
        table.add_row("-", clean(note))
    return table
