"""A recording explained, in the words and on the page of an estimate: the verdict, then the failure, the
setting that helps, the growth, the holders of the peak; below them the estimate's own parts.

Memory that a snapshot does not record (beside the allocator) is not reported. A way out is named only if its
simulation serves every request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from analyzer.report import html, page, text
from analyzer.report.console import printed
from analyzer.report.formats import PLAIN, View
from analyzer.report.json import to_dict
from analyzer.report.words import clean, operator_name, printed_size, size, tail

if TYPE_CHECKING:
    from rich.console import RenderableType

    from analyzer.results.estimate import Origin
    from analyzer.results.recording import FailedRequest, Message, Recording, Way

# A title, its columns (those from the second on are numbers), rows, and a sentence below.
Section = tuple[str, Sequence[str], list[tuple[str, ...]], str]


def render(recording: Recording, view: View = PLAIN) -> str:
    """Return the text: the estimate's, with what the recording tells after its verdict."""
    parts: list[RenderableType] = []
    for section in _sections(recording):
        parts += _section(section, view.width)
    return printed(text.parts(recording.estimate, view, way_out(recording), parts), view.width, view.color)


def render_json(recording: Recording, view: View = PLAIN) -> str:
    """Return the estimate's JSON with the recording's own findings under `recording`."""
    del view
    document = to_dict(recording.estimate)
    fields = asdict(recording)
    del fields["estimate"]
    document["recording"] = {**fields, "way_out": way_out(recording)}
    lines = (f" {json.dumps(key)}: {json.dumps(value)}" for key, value in document.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def render_html(recording: Recording, view: View = PLAIN) -> str:
    """Return the estimate's page, with what the recording tells above its course."""
    body = [page.paragraph(sentence) for sentence in way_out(recording)]
    for title, heads, rows, sentence in _sections(recording):
        cells = [(page.name(first), *map(page.text, others)) for first, *others in rows]
        body += [
            page.heading(title),
            page.table(heads, cells, range(1, len(heads)), "cards"),
            page.paragraph(sentence, "dim"),
        ]
    return html.render(recording.estimate, view, "\n".join(body))


def way_out(recording: Recording) -> list[str]:
    """Return sentences: which setting would have served everything, or what it would have held less."""
    recorded = next((way for way in recording.ways if way.as_recorded), None)
    others = [way for way in recording.ways if not way.as_recorded]
    if recorded is None:
        return []
    if recording.limit_bytes is not None:
        served = sorted((way for way in others if way.served), key=lambda way: way.peak_reserved)
        if served and not recorded.served:
            held = served[0].limited_reserved or served[0].peak_reserved
            return [f"{served[0].setting} would have served every request, and held {size(held)}"]
        if not served:
            more = max(recorded.peak_allocated - recording.limit_bytes, 0)
            need = (
                f": in use it needs {size(recorded.peak_allocated)}, {size(more)} more than it may hold"
                if more
                else ""
            )
            return [f"no setting of the allocator that was tried serves every request{need}"]
        return []
    best = min(others, key=lambda way: way.peak_reserved, default=recorded)
    if best.peak_reserved < 0.9 * recorded.peak_reserved:
        return [
            f"{best.setting} would have held {size(best.peak_reserved)} instead of"
            f" {size(recorded.peak_reserved)}"
        ]
    return []


def _sections(recording: Recording) -> Iterator[Section]:
    for failed in recording.failed[-1:]:
        yield _failed(failed, len(recording.failed))
    if recording.ways:
        yield _ways(recording)
    if recording.growth:
        rows: list[tuple[str, ...]] = [
            (row.place, f"+{size(row.step_bytes)}", f"{row.step_count:,}", size(row.held_bytes))
            for row in recording.growth
        ]
        together = sum(row.step_bytes for row in recording.growth)
        sentence = f"together +{size(together)} each {recording.steps}"
        left = (recording.limit_bytes or 0) - recording.estimate.peak_reserved
        if recording.limit_bytes is not None and not recording.failed and together:
            sentence += f"; full after {max(left, 0) // together:,} more"
        yield "What grows", (f"place, by {recording.steps}", "each", "times", "held at last"), rows, sentence
    if recording.holders:
        rows = [(row.place, size(row.nbytes), f"{row.count:,}") for row in recording.holders]
        yield "Holders of the peak", ("place", "bytes", "blocks"), rows, ""


def _failed(failed: FailedRequest, count: int) -> Section:
    rows: list[tuple[str, ...]] = [
        (
            f"free, {hole.pool}{'' if hole.serves else ' (serves other requests)'}",
            size(hole.nbytes),
            f"{hole.count:,}",
            size(hole.largest_bytes),
        )
        for hole in failed.holes
    ]
    room = (
        f"a memory fraction or the settings allowed no more (the device had {size(failed.free_bytes)} free)"
        if failed.fraction
        else f"the device had {size(failed.free_bytes)} free"
    )
    again = f"; {count} requests failed, this is the last" if count > 1 else ""
    sentence = (
        f"asked: {failed.nbytes:,} bytes by {failed.asked_by}, for which the driver is asked for"
        f" {size(failed.segment_bytes)}; {size(failed.allocated_bytes)} were in use,"
        f" {size(failed.reserved_bytes)}"
        f" held; {room}{again}"
    )
    return "The request that found no room", ("memory held", "bytes", "pieces", "largest"), rows, sentence


def _ways(recording: Recording) -> Section:
    def cells(way: Way) -> tuple[str, ...]:
        served = "" if way.served is None else "yes" if way.served else "no"
        name = f"{way.setting} (recorded)" if way.as_recorded else way.setting
        row = (name, size(way.peak_allocated), size(way.peak_reserved))
        return row if recording.limit_bytes is None else (*row, served)

    heads: tuple[str, ...] = ("setting", "in use", "held")
    sentence = "with room, each simulated with the recorded requests"
    if recording.limit_bytes is not None:
        heads = (*heads, "served")
        sentence += f"; served: within {size(recording.limit_bytes)}"
    return "Settings of the allocator", heads, [cells(way) for way in recording.ways], sentence


def _section(section: Section, width: int) -> list[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    title, heads, rows, sentence = section
    numbers = [max(len(cell) for cell in column) for column in list(zip(heads, *rows, strict=True))[1:]]
    room = max(width - sum(numbers) - 3 * len(heads), 12)
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column(
        heads[0], width=min(room, max(len(clean(row[0])) for row in [heads, *rows])), no_wrap=True
    )
    for head, digits in zip(heads[1:], numbers, strict=True):
        table.add_column(head, justify="right", width=digits, no_wrap=True)
    for row in rows:
        table.add_row(tail(clean(row[0]), room), *row[1:])
    parts: list[RenderableType] = ["", Text(title, style="bold")]
    parts += [table] if rows else []
    return [*parts, Text(clean(sentence), style="dim")] if sentence else parts


def message(explained: Message, view: View = PLAIN) -> str:
    """Return an error's text explained."""
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(clean(explained.verdict), style="bold" if explained.harmless else "bold red"),
        *([Text(f"at {clean(explained.place)}")] if explained.place else []),
        Text(f"message of {explained.source}", style="dim"),
        *([Text(clean(explained.need), style="bold")] if explained.need else []),
    ]
    rows: list[tuple[str, ...]] = [
        (figure.name, printed_size(figure.nbytes), _exactly(figure.nbytes, figure.precision_bytes))
        for figure in explained.figures
    ]
    if rows:
        parts += _section(("The text says", ("figure", "", "bytes"), rows, ""), view.width)
    for section in _of_size(explained):
        parts += _section(section, view.width)
    if explained.advice:
        parts += ["", Text("Way out", style="bold"), *(Text(f"- {clean(line)}") for line in explained.advice)]
    if explained.unknown:
        parts += [
            "",
            Text("Not in the text", style="bold"),
            *(Text(f"- {clean(line)}") for line in explained.unknown),
        ]
    return printed(parts, view.width, view.color)


def _of_size(explained: Message) -> Iterator[Section]:
    """Yield the estimate's requests of the message's size."""
    if not explained.requests:
        return
    rows: list[tuple[str, ...]] = [
        (
            _purpose(request.origin),
            _kind(request.origin),
            request.origin.phase,
            f"{request.count:,}",
        )
        for request in explained.requests
    ]
    place = "line" if explained.place else "node"
    here = sum(request.likely for request in explained.requests)
    which = "the first is" if here == 1 else f"the first {here} are"
    sentence = f"{which} at the {place} that failed" if here else ""
    yield "Requests of that size", ("request of", "tensor", "in", "times"), rows, sentence


def _purpose(origin: Origin) -> str:
    """Return the operator, module and line of a request."""
    return " ".join(filter(None, (operator_name(origin.name), origin.module, origin.source)))


def _kind(origin: Origin) -> str:
    """Return the shape and type of a request's tensor; the category of one without."""
    return f"{'x'.join(map(str, origin.shape))} {origin.dtype}" if origin.dtype else origin.category


def _exactly(nbytes: int, precision: int) -> str:
    """Return bytes; with a figure that the text rounds, up to how much that may be."""
    return f"{nbytes:,}" if not precision else f"{nbytes:,} ± {size(precision // 2)}"


def message_json(explained: Message, view: View = PLAIN) -> str:
    """Return it as JSON."""
    del view
    return json.dumps({"schema": 1, "message": asdict(explained)}, indent=1) + "\n"


def message_html(explained: Message, view: View = PLAIN) -> str:
    """Return it as a page."""
    del view
    rows = [
        (page.text(f.name), page.text(printed_size(f.nbytes)), _exactly(f.nbytes, f.precision_bytes))
        for f in explained.figures
    ]
    body = [
        page.verdict(explained.harmless, explained.verdict),
        page.paragraph(f"at {explained.place}") if explained.place else "",
        page.paragraph(explained.need) if explained.need else "",
        page.table(("figure", "", "bytes"), rows, (1, 2), "cards") if rows else "",
        *(
            part
            for title, heads, lines, sentence in _of_size(explained)
            for part in (
                page.heading(title),
                page.table(heads, [tuple(map(page.text, line)) for line in lines], (3,), "cards"),
                page.paragraph(sentence, "dim") if sentence else "",
            )
        ),
        page.heading("Way out") if explained.advice else "",
        page.items(explained.advice),
        page.heading("Not in the text") if explained.unknown else "",
        page.items(explained.unknown),
        page.paragraph(explained.quoted, "dim"),
    ]
    return page.render(f"message of {explained.source}", "\n".join(filter(None, body)))
