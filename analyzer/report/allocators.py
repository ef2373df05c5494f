"""One program under every allocator, for a terminal, a program, a spreadsheet, a browser, or as a picture.

1. The same figures in every form: peaks in bytes, calls of the driver; lower bounds are marked.
2. The picture of the terminal and of the page draws reserved memory, its part in use filled; `svg` and `png`
   draw the same with matplotlib, which the extra `analyzer[plot]` brings.
3. Names come out of models: they pass through `words.clean`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from analyzer.report import page
from analyzer.report.console import printed
from analyzer.report.csv import csv_records
from analyzer.report.formats import PLAIN, View
from analyzer.report.palette import LIGHT
from analyzer.report.picture import drawing, saved
from analyzer.report.words import clean, folded, mib, percent, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from analyzer.results.allocators import Comparison, UnderAllocator

SCHEMA = 1
WIDTH = 80
_BAR_WIDTH = 9
_NAME_WIDTH = 32
_HEADER = (
    "allocator",
    "setting",
    "requested_bytes",
    "allocated_bytes",
    "reserved_bytes",
    "unused_bytes",
    "device_calls",
    "fits",
    "at_least",
    "out_of_memory",
)
_FRAMEWORKS = {
    "pytorch": "PyTorch",
    "pytorch_cudamallocasync": "PyTorch, cudaMallocAsync",
    "onnxruntime_bfc": "ONNX Runtime",
    "tensorflow_bfc": "TensorFlow",
    "paddle_auto_growth": "Paddle auto_growth",
    "paddle_naive_best_fit": "Paddle naive_best_fit",
}


def render(comparison: Comparison, view: View = PLAIN) -> str:
    """Return the table with its picture, ending with a newline."""
    return printed(_parts(comparison, view), WIDTH, view.color)


def _records(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        dict(
            zip(
                _HEADER,
                (
                    clean(row.allocator),
                    clean(row.setting),
                    row.requested,
                    row.allocated,
                    row.reserved,
                    row.unused,
                    row.device_calls,
                    row.fits,
                    row.at_least,
                    clean(row.out_of_memory),
                ),
                strict=True,
            )
        )
        for row in comparison.rows
    ]


def render_json(comparison: Comparison, _: View = PLAIN) -> str:
    """Schema 1: bytes, one entry an allocator."""
    names = ("target", "runtime", "mode", "batch", "optimizer", "device", "available_bytes", "request_count")
    document = {"schema": SCHEMA, **{name: getattr(comparison, name) for name in names}}
    return (
        json.dumps({**document, "rows": _records(comparison), "notes": list(comparison.notes)}, indent=1)
        + "\n"
    )


def render_csv(comparison: Comparison, _: View = PLAIN) -> str:
    """Return a CSV with one row for each allocator."""
    return csv_records(_HEADER, _records(comparison))


def verdict(comparison: Comparison) -> str:
    """Return which allocator holds least, and how many fit; lower bounds stand aside."""
    sure = [row for row in comparison.rows if not row.at_least and not row.out_of_memory]
    fitting = sum(row.fits for row in sure)
    counted = sum(not row.at_least for row in comparison.rows)
    head = (
        f"fits under {fitting} of {counted} on {clean(comparison.device)} ({size(comparison.available_bytes)}"
        " for the allocator)"
    )
    if not sure:
        return head
    least = min(sure, key=lambda row: row.reserved)
    return f"{head}; least reserved: {size(least.reserved)}, {name_of(least)} ({clean(least.setting)})"


def name_of(row: UnderAllocator) -> str:
    """Return the framework, and its strategy."""
    return _FRAMEWORKS.get(row.allocator, clean(row.allocator))


def subject(comparison: Comparison) -> str:
    """Return the analysed job in words."""
    words = [
        clean(comparison.target),
        f"requests of {clean(comparison.runtime)}",
        {"infer": "inference", "train": "training"}[comparison.mode],
    ]
    if comparison.batch is not None:
        words.append(f"batch {comparison.batch:,}")
    if comparison.mode == "train" and comparison.optimizer:
        words.append(clean(comparison.optimizer))
    return " · ".join([*words, f"{comparison.request_count:,} requests"])


def _fragmentation(row: UnderAllocator) -> str:
    return "-" if row.at_least or row.out_of_memory else percent(row.unused, row.reserved)


def _shown(row: UnderAllocator, nbytes: int) -> str:
    return f"{'≥ ' if row.at_least else ''}{mib(nbytes)}"


def _parts(comparison: Comparison, view: View) -> list[RenderableType]:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("allocator (MiB)", width=_NAME_WIDTH, overflow="fold")
    for head in ("allocated", "reserved", "unused"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("calls", justify="right", no_wrap=True)
    ceiling = _ceiling(comparison)
    table.add_column("held", width=_BAR_WIDTH, no_wrap=True)
    for row in comparison.rows:
        table.add_row(
            Text.assemble(name_of(row), (f"\n  {_setting(row)}", "dim")),
            _shown(row, row.allocated),
            Text(_shown(row, row.reserved), style="" if row.fits else "bold red"),
            _fragmentation(row),
            "-" if row.at_least else f"{row.device_calls:,}",
            Text.assemble(*_bar(row, ceiling)),
        )
    parts: list[RenderableType] = [Text(verdict(comparison), style="bold")]
    if comparison.device_note:
        parts.append(Text(f"device: {clean(comparison.device_note)}", style="dim"))
    most = max(
        row.requested for row in comparison.rows
    )  # the same under every allocator that serves them all
    parts += ["", Text(f"{subject(comparison)}, {size(most)} at once", style="bold"), "", table]
    for row in comparison.rows:
        if row.out_of_memory:
            sentence = f"{name_of(row)} ({clean(row.setting)}) runs out of memory: {clean(row.out_of_memory)}"
            parts.append(Text(sentence, style="bold red"))
    parts += [
        "",
        Text("Notes", style="bold"),
        *(Text(f"- {clean(note)}") for note in folded(comparison.notes, view.verbose)),
    ]
    return parts if comparison.notes else parts[:-2]


def _setting(row: UnderAllocator) -> str:
    """Return the setting, with its value on a second line if both do not fit one."""
    setting = clean(row.setting)
    return setting if len(setting) + 2 <= _NAME_WIDTH else setting.replace("=", "=\n  ", 1)


def _ceiling(comparison: Comparison) -> int:
    """Return the length of the longest bar, twice the median: an allocator that takes the whole card in
    advance would leave the others no length."""
    return 2 * sorted(row.reserved for row in comparison.rows)[len(comparison.rows) // 2] or 1


def _bar(row: UnderAllocator, ceiling: int) -> tuple[tuple[str, str], ...]:
    def columns(nbytes: int) -> int:
        return min(_BAR_WIDTH, -(-nbytes * _BAR_WIDTH // ceiling))

    used, held = columns(row.allocated), columns(row.reserved)
    beyond = row.reserved > ceiling
    return (
        ("█" * used, "cyan"),
        ("░" * max(0, held - used - beyond), "cyan"),
        ("»" if beyond else "", "bold"),
    )


def render_html(comparison: Comparison, view: View = PLAIN) -> str:
    """Return one self-contained HTML page."""
    ceiling = _ceiling(comparison)
    rows = (
        (
            f"{page.text(name_of(row))}<br>{page.name(row.setting)}",
            mib(row.requested),
            _shown(row, row.allocated),
            _shown(row, row.reserved),
            _fragmentation(row),
            "-" if row.at_least else f"{row.device_calls:,}",
            page.bar(min(row.reserved, ceiling), ceiling, 0, min(row.allocated, ceiling)),
        )
        for row in comparison.rows
    )
    heads = ("allocator", "requested", "allocated", "reserved", "unused", "driver calls", "")
    failures = [
        f"{name_of(row)} ({row.setting}): {row.out_of_memory}" for row in comparison.rows if row.out_of_memory
    ]
    body = [
        page.verdict(any(row.fits for row in comparison.rows), verdict(comparison)),
        page.table(heads, rows, range(1, 6), "cards"),
        page.paragraph(
            "In MiB; dark: in use at its peak, light: held of the device, cut at twice the median.", "dim"
        ),
        *((page.heading("Out of memory"), page.items(failures)) if failures else ()),
        *(
            (page.heading("Notes"), page.items(folded(comparison.notes, view.verbose)))
            if comparison.notes
            else ()
        ),
    ]
    return page.render(subject(comparison), "\n".join(body))


def _picture(comparison: Comparison, _: View = PLAIN, *, form: str) -> bytes:
    """Return the picture. Raises MissingDependencyError without matplotlib."""
    rows = comparison.rows[::-1]
    with drawing(form) as pyplot:
        figure, axes = pyplot.subplots(figsize=(9, 0.34 * len(rows) + 1.2), layout="constrained")
        labels = [
            f"{name_of(row)}: {clean(row.setting)}{' (at least)' if row.at_least else ''}" for row in rows
        ]
        places = range(len(rows))
        for values, shade, label in (
            ([min(row.reserved, _ceiling(comparison)) / 2**20 for row in rows], LIGHT["c1"], "reserved"),
            ([min(row.allocated, _ceiling(comparison)) / 2**20 for row in rows], LIGHT["c0"], "allocated"),
        ):
            axes.barh(places, values, color=shade, label=label)
        axes.set_yticks(places, labels)
        axes.set_xlabel("MiB")
        # Bars are cut where one that takes the card in advance would leave the others no length; the figures
        # are not.
        ceiling = _ceiling(comparison) / 2**20
        axes.set_xlim(0, 1.25 * min(ceiling, max(row.reserved for row in rows) / 2**20) or 1)
        for place, row in enumerate(rows):
            end = min(row.reserved / 2**20, ceiling)
            axes.annotate(
                f" {_shown(row, row.reserved)}{' »' if row.reserved / 2**20 > ceiling else ''}",
                (end, place),
                va="center",
            )
        axes.set_title(subject(comparison).replace("$", r"\$"), fontsize=9)
        figure.legend(loc="outside lower right", ncols=2)
        return saved(pyplot, figure, form)


render_svg, render_png = partial(_picture, form="svg"), partial(_picture, form="png")
