"""What a serving engine has room for, as a page (`page.py`), in the words of the text (`serving.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from analyzer.report import page
from analyzer.report import serving as words
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import size

if TYPE_CHECKING:
    from analyzer.results.serving import EngineMemory, Serving

_HEADS = ("", "", "bytes", "")


def _budget(terms: Iterable[tuple[str, int]]) -> str:
    """Return HTML of an account's lines with bars; a subtraction ends where the line before begins."""
    rows, left = list(terms), 0
    most = max((abs(nbytes) for _, nbytes in rows), default=0) or 1
    cells = []
    for name, nbytes in rows:
        low = max(left - nbytes, 0) if name.startswith("-") else 0
        high = left if name.startswith("-") else max(nbytes, 0)
        left = low if name.startswith("-") else max(nbytes, 0)
        drawn = page.bar(high, most, low, high) if high else ""
        cells.append((page.text(name), drawn, f"{nbytes:,}", size(nbytes)))
    return page.table(_HEADS, cells, (2, 3), "cards")


def engine(found: EngineMemory, _: View = PLAIN) -> str:
    """Return the page of the engine's account: the GPU with the least cache, all ranks, changes."""
    rank = found.rank
    body = [page.verdict(found.fits, words.verdict(found))]
    if found.blocks:
        body.append(page.paragraph(words.capacity(found), "dim"))
    if found.device_note:
        body.append(page.paragraph(f"device: {found.device}, {found.device_note}", "dim"))
    if rank is not None:
        body += [page.heading("What the engine accounts for"), _budget(words.terms(found, rank))]
    if len(found.ranks) > 1:
        body += [page.heading("Each GPU"), _ranks(found)]
    if found.changes:
        body += [page.heading(words.CHANGES), page.items(found.changes)]
    settings = [(page.text(name), page.text(value)) for name, value in found.settings.items()]
    if settings:
        body.append(page.folded("Its settings", page.table(("", ""), settings), False))
    body += [page.heading("Notes"), page.items([*found.notes, *words.about(found)])]
    return page.render(f"{found.name} · {found.engine} on {found.device}", "\n".join(filter(None, body)))


def _ranks(found: EngineMemory) -> str:
    """Return an HTML table of what each rank holds, in GiB."""
    names = ("weights", "activations", "outside", "cache", "graphs")
    rows = [
        (str(number), *(size(value) if (value := getattr(rank, name)) is not None else "-" for name in names))
        for number, rank in enumerate(found.ranks)
    ]
    heads = ("rank", "weights", "peak activation", "non-torch", "KV cache", "CUDA graphs")
    return page.table(heads, rows, range(1, len(heads)), "figures")


def arithmetic(found: Serving, _: View = PLAIN) -> str:
    """Return the page of the budget, line by line."""
    cache = found.cache
    body = [
        page.verdict(found.requests >= 1, words.sentence_of(found)),
        page.paragraph(
            f"{found.blocks:,} blocks of {cache.block_tokens} tokens: {found.tokens:,} tokens", "dim"
        ),
        page.heading("Its budget, by arithmetic"),
        _budget(words.budget_terms(found)),
    ]
    if notes := list(words.budget_notes(found)):
        body += [page.heading("Notes"), page.items(notes)]
    return page.render(f"{found.name} · vLLM on {found.device}", "\n".join(body))
