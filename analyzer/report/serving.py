"""What a serving engine has room for, as text: the verdict, the budget line by line, what a request costs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from analyzer.report.words import clean, size

if TYPE_CHECKING:
    from analyzer.results.serving import Serving

_KEPT = {
    "all": "keep every token",
    "window": "keep a window of {:,} tokens",
    "chunk": "keep a chunk of {:,} tokens",
    "state": "keep a state, in {} blocks",
}


def wrapped(note: str) -> list[str]:
    """A note in lines of 80 columns."""
    return textwrap.wrap(note, 80, initial_indent="- ", subsequent_indent="  ")


def text(found: Serving) -> str:
    """Fits 80 columns."""
    budget, cache = found.budget, found.cache
    if found.requests >= 1:
        verdict = f"room for {found.requests:,.2f} requests of {found.length:,} tokens at a time"
    else:
        verdict = f"no room for a request of {found.length:,} tokens: the cache holds {found.tokens:,}"
    terms = [("cache, as said", found.available)]
    if budget is not None:
        terms = [
            (f"{budget.utilization:g} of {clean(found.device)}", budget.allowed),
            ("- weights", budget.weights),
            ("- activations of the profile run", budget.activations),
            ("- outside PyTorch", budget.outside),
            ("- CUDA graphs", budget.graphs),
            ("= cache", found.available),
        ]
    rows = [f"{name:<36}{nbytes:>20,}  {size(nbytes):>11}" for name, nbytes in terms]
    lines = [
        verdict,
        f"{found.blocks:,} blocks of {cache.block_tokens} tokens: {found.tokens:,} tokens",
        *(
            textwrap.wrap(f"device: {clean(found.device)}, {found.device_note}", 80)
            if found.device_note and budget is not None
            else []
        ),
        "",
        f"{clean(found.name)} · vLLM",
        "",
        f"{'budget':<36}{'bytes':>20}  {'':>11}".rstrip(),
        *rows,
        "",
        (
            f"A request takes {size(found.blocks_of_request * cache.block_bytes)} of the cache; a token takes"
            f" {cache.token_bytes:,} bytes of it"
            if len(cache.kept) == 1
            else (
                f"A request takes {size(found.blocks_of_request * cache.block_bytes)} of the cache, by"
                " layers:"
            )
        ),
    ]
    lines[-1:] = textwrap.wrap(lines[-1], 80)
    if len(cache.kept) > 1:
        lines += [f"  {part.layers} {_KEPT[part.kind].format(part.reach)}" for part in cache.kept]
    notes = []
    if budget is not None:
        notes.append("the device's memory is nvidia-smi's; CUDA, and so vLLM, counts up to 2 % less")
    if len(cache.kept) > 1:
        before = cache.tokens_until_0_20(found.blocks)
        notes.append(
            f"vLLM until 0.20 logs {before:,} tokens, its blocks over the {cache.group_count} groups of"
            " layers"
        )
    if "activations" in found.bounded:
        notes.append(
            "activations are bounded: those of transformers' own forward pass, with every token's logits;"
            " vLLM's kernels take less (--activations: what it logs)"
        )
    if budget is not None and not budget.graphs:
        notes.append("CUDA graphs are not counted: vLLM takes off what it estimates them at (--graphs)")
    if notes:
        lines += ["", "Notes", *(line for note in notes for line in wrapped(note))]
    return "\n".join(lines) + "\n"
