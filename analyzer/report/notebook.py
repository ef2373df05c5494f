"""The estimate in a notebook's cell: verdict, estimates side by side, what the peak consists of, the largest
tensors.

A fragment without script, style sheet or identifiers, since a notebook has many of them on one page and may
be shown without being trusted. `--format html` is the page to explore.
"""

from __future__ import annotations

from analyzer.report import attribution, page, sentences
from analyzer.report.formats import PLAIN, View
from analyzer.report.palette import LIGHT
from analyzer.report.verdicts import verdicts
from analyzer.report.words import mib, percent, size
from analyzer.results.estimate import Estimate

_BAR_WIDTH = 200


def render(estimate: Estimate, view: View = PLAIN) -> str:
    """Return the HTML fragment for a notebook cell."""
    verdict = "".join(
        f"<p><strong>{page.text(sentence)}</strong></p>"
        for _, sentence in verdicts(estimate, view.budget_bytes)
    )
    figures = page.table(
        ("estimate", "bytes", "MiB", ""),
        (
            (page.text(name), f"{nbytes:,}", mib(nbytes), page.text(meaning))
            for name, nbytes, meaning in sentences.estimate_rows(estimate)
        ),
    )
    rows = sentences.breakdown_rows(estimate)
    peak = page.table(
        ("at the peak", "", "", ""),
        (
            (
                page.text(name),
                _bar(nbytes, rows[0][1]),
                size(nbytes),
                percent(nbytes, estimate.peak_allocated),
            )
            for name, nbytes in rows
        ),
    )
    tensors = page.table(
        ("size", "shape, type", "category", "tensor or module", "operator, line"),
        (
            (
                size(row.nbytes),
                page.text(f"{'x'.join(map(str, row.shape))} {row.dtype}"),
                page.text(row.category),
                *(page.text(word) for word in attribution.name_and_origin(row)),
            )
            for row in estimate.top(view.top)
        ),
    )
    subject = page.text(" · ".join(sentences.subject(estimate)))
    return (
        f"<div><p>{subject}</p>{verdict}{figures}{peak}"
        f"<details><summary>Largest tensors at the peak</summary>{tensors}</details></div>"
    )


def _bar(nbytes: int, most: int) -> str:
    width = max(1, nbytes * _BAR_WIDTH // most)
    return (
        f'<svg width="{_BAR_WIDTH}" height="10" aria-hidden="true"><rect width="{width}" height="10" '
        f'fill="{LIGHT["c0"]}"/></svg>'
    )
