"""The shell of every page: one self-contained file, safe to open with untrusted names in it.

1. A page needs no network: styles, scripts and the libraries they use (`assets/`) are embedded.
2. Its content security policy allows exactly these scripts and styles, by their hashes, and nothing else: no
   script from elsewhere, none in an attribute, no request, no form.
3. Names are data. In markup they pass through `words.clean` and are escaped; scripts get them in one JSON
   block, in which no tag can end or begin, and insert them as text only.
4. The essentials (verdict, figures, tables, notes) are markup, visible without scripts and in print.
5. It ends with the tool's version, the day it was written (SOURCE_DATE_EPOCH's where that is set) and, where
   the command line wrote it, the command.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Any

from analyzer import __version__
from analyzer.report import origin
from analyzer.report.palette import page_style
from analyzer.report.words import as_typed, clean

# Scripts by what a page shows; libraries first.
TIMELINE = (
    "vendor/uPlot.iife.min.js",
    "vendor/d3-hierarchy.min.js",
    "vendor/tabulator.min.js",
    "shared.js",
    "timeline.js",
    "live.js",
)
CHARTS = ("vendor/uPlot.iife.min.js", "shared.js", "charts.js")
NONE = ("shared.js",)
_STYLES = ("vendor/uPlot.min.css", "vendor/tabulator_simple.min.css", "page.css")
# Longest name shown where a page repeats it; the rest is not worth its place.
_LONGEST = 300
_ENDS = re.compile(r"(?<=[._:/])(?=\w)|(?<=\dx)(?=\d)")


def render(title: str, body: str, data: Any = None, scripts: Sequence[str] = NONE) -> str:
    """Return the page. title: text; body: HTML of the functions here; data: `DATA` of the scripts."""
    style = "\n".join([*(_asset(name) for name in _STYLES), page_style()])
    sources = [_asset(name) for name in scripts]
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src {_hashed(style)}; script-src {' '.join(_hashed(source) for source in sources)}"
    )
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{text(title)}</title>",
            f"<style>{style}</style>",
            '<a class="skip" href="#content">Skip to the content</a>',
            f'<header><h1>{_breaking(text(title))}</h1><button id="theme" type="button">light /'
            " dark</button></header>",
            f'<main id="content" tabindex="-1">\n{body}\n</main>',
            _footer(),
            f'<script type="application/json" id="data">{block(data)}</script>',
            *(f"<script>{source}</script>" for source in sources),
            "</html>\n",
        ]
    )


def _footer() -> str:
    """Return what wrote the page, when and by which command."""
    seconds = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    day = datetime.fromtimestamp(seconds, UTC if "SOURCE_DATE_EPOCH" in os.environ else None).date()
    command = f" · {name(origin.command)}" if origin.command else ""
    return f'<footer class="dim">analyzer {__version__} · {day.isoformat()}{command}</footer>'


def block(data: Any) -> str:
    """JSON that ends no script element and begins no tag or comment."""
    return (
        json.dumps(data, separators=(",", ":"))
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
    )


def text(untrusted: object) -> str:
    """Return untrusted text escaped and shortened for HTML."""
    shown = clean(untrusted)
    return escape(shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…")


def lines(untrusted: str) -> str:
    """Return a text of several lines for HTML, each cleaned and escaped."""
    return "\n".join(escape(clean(line)) for line in untrusted.splitlines())


def name(untrusted: object) -> str:
    """Return a name for HTML that may break after dots, colons, slashes, underscores and "x"."""
    return f"<code>{_breaking(text(untrusted))}</code>"


def _breaking(escaped: str) -> str:
    return _ENDS.sub("<wbr>", escaped)


def heading(words: str) -> str:
    """Return a section heading."""
    return f"<h2>{text(words)}</h2>"


def folded(title: str, content: str, shown: bool) -> str:
    """Return a section that opens when its title is clicked, and is open from the start if `shown`."""
    return f"<details{' open' if shown else ''}><summary>{heading(title)}</summary>{content}</details>"


def paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph; "" for no words."""
    return f'<p class="{kind}">{text(words)}</p>' if words else ""


def items(lines: Iterable[str]) -> str:
    """Return an HTML list; "" for no lines."""
    shown = "".join(f"<li>{text(line)}</li>" for line in lines)
    return f"<ul>{shown}</ul>" if shown else ""


def code(typed: str) -> str:
    """Return HTML for lines as they are typed."""
    return f"<pre>{escape(as_typed(typed))}</pre>" if typed else ""


def verdict(holds: bool | None, sentence: str) -> str:
    """Return a sentence a page begins with; None: one that judges nothing."""
    if holds is None:
        return paragraph(sentence, "dim")
    return f'<p class="{"yes" if holds else "no"}"><strong>{text(sentence)}</strong></p>'


def table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = (), kind: str = ""
) -> str:
    """Return a table of cells, which are HTML already. numbers: the columns to the right; kind: a class of
    its own, such as "cards": where there is no room for its columns, a row is a block and each cell says what
    it is."""
    right = set(numbers)
    words = [text(word) for word in heads]

    def attributes(place: int) -> str:
        return f' data-head="{words[place]}"' if place and words[place] else ""

    def row(cells: Sequence[str]) -> str:
        written = (
            f"<td{' class=number' if place in right else ''}{attributes(place)}>{cell}</td>"
            for place, cell in enumerate(cells)
        )
        return f"<tr>{''.join(written)}</tr>"

    titles = (
        f'<th scope="col"{" class=number" if place in right else ""}>{word}</th>' if word else "<td></td>"
        for place, word in enumerate(words)
    )
    head = f"<tr>{''.join(titles)}</tr>" if any(heads) else ""
    return (
        f'<div class="wide"><table class="plain {kind}">{head}\n'
        + "\n".join(row(cells) for cells in rows)
        + "\n</table></div>"
    )


def bar(nbytes: int, most: int, low: int, high: int) -> str:
    """Return a bar of `nbytes`, the part from `low` to `high` dark; `most` fills it. A picture of its own:
    the page's policy forbids styles in attributes."""
    scale = 200 / most
    return (
        '<svg class="bar" viewBox="0 0 200 12" width="200" height="12" role="img" aria-hidden="true"><rect'
        f' x="0" y="3" width="{nbytes * scale:.2f}" height="6" fill="var(--c1)"/><rect x="{low * scale:.2f}"'
        f' y="0" width="{max((high - low) * scale, 0.5):.2f}" height="12" fill="var(--c0)"/></svg>'
    )


def chart(number: int, label: str) -> str:
    """Return the place of the chart that `charts.js` draws from `data["charts"][number]`."""
    return (
        f'<div class="legend"></div><div class="plot chart" data-chart="{number}" role="img"'
        f' aria-label="{text(label)}"></div><p class="readout" aria-live="polite"></p>'
    )


def _hashed(source: str) -> str:
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@lru_cache
def _asset(name: str) -> str:
    """A file of `assets/`, without the note where its unminified form would be."""
    text = (resources.files("analyzer.report") / "assets" / name).read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))
