"""A serving engine's capacity as a page (`page.py`), in the words of the text
(`analyzer_serving/report.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from analyzer.report import page
from analyzer.report.formats import PLAIN, View
from analyzer.report.words import size
from analyzer_serving import report as words

if TYPE_CHECKING:
    from analyzer_serving.results import EngineMemory, Serving

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


def engine(memory: EngineMemory, _: View = PLAIN) -> str:
    """Return the page of the engine's account: the GPU with the least cache, all ranks, changes."""
    rank = memory.rank
    body = [page.verdict(memory.fits, words.verdict(memory))]
    if memory.blocks:
        body.append(page.paragraph(words.capacity(memory), "dim"))
    if memory.device_note:
        body.append(page.paragraph(f"device: {memory.device}, {memory.device_note}", "dim"))
    if rank is not None:
        body += [page.heading("The engine's memory budget"), _budget(words.terms(memory, rank))]
    if len(memory.ranks) > 1:
        body += [page.heading("Each GPU"), _ranks(memory)]
    if memory.changes:
        body += [page.heading(words.CHANGES), page.items(memory.changes)]
    settings = [(page.text(name), page.text(value)) for name, value in memory.settings.items()]
    if settings:
        body.append(page.folded("Its settings", page.table(("", ""), settings), False))
    body += [page.heading("Notes"), page.items([*memory.notes, *words.about(memory)])]
    return page.render(f"{memory.name} · {memory.engine} on {memory.device}", "\n".join(filter(None, body)))


def _ranks(memory: EngineMemory) -> str:
    """Return an HTML table of what each rank holds, in GiB."""
    names = ("weights", "activations", "outside", "cache", "graphs")
    rows = [
        (str(number), *(size(value) if (value := getattr(rank, name)) is not None else "-" for name in names))
        for number, rank in enumerate(memory.ranks)
    ]
    heads = ("rank", "weights", "peak activation", "non-torch", "KV cache", "CUDA graphs")
    return page.table(heads, rows, range(1, len(heads)), "figures")


def arithmetic(serving: Serving, _: View = PLAIN) -> str:
    """Return the page of the budget, line by line."""
    body = [
        page.verdict(serving.requests >= 1, words.sentence_of(serving)),
        page.paragraph(words.cache_sentence(serving), "dim"),
        page.heading("Its budget, by arithmetic"),
        _budget(words.budget_terms(serving)),
    ]
    if notes := list(words.budget_notes(serving)):
        body += [page.heading("Notes"), page.items(notes)]
    return page.render(f"{serving.name} · vLLM on {serving.device}", "\n".join(body))
