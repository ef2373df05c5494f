"""What a serving engine has room for, as text: the verdict, the budget line by line, what a request costs."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from analyzer.report.words import clean, size

if TYPE_CHECKING:
    from analyzer.results.serving import Serving


def wrapped(note: str) -> list[str]:
    """A note in lines of 80 columns."""
    return textwrap.wrap(note, 80, initial_indent="- ", subsequent_indent="  ")


def text(found: Serving) -> str:
    """Fits 80 columns."""
    budget, cache = found.budget, found.cache
    if found.tokens >= found.length:
        verdict = f"room for {found.requests:,.2f} requests of {found.length:,} tokens at a time"
    else:
        verdict = f"no room for a request of {found.length:,} tokens: the cache holds {found.tokens:,}"
    terms = [
        (f"{budget.utilization:g} of {clean(found.device)}", budget.allowed),
        ("- weights", budget.weights),
        ("- activations of the profile run", budget.activations),
        ("- outside PyTorch", budget.outside),
        ("- CUDA graphs", budget.graphs),
        ("= cache", budget.cache_bytes),
    ]
    rows = [f"{name:<36}{nbytes:>20,}  {size(nbytes):>11}" for name, nbytes in terms]
    request = -(-found.length // cache.block_tokens) * cache.block_tokens * cache.token_bytes
    lines = [
        verdict,
        f"{found.blocks:,} blocks of {cache.block_tokens} tokens: {found.tokens:,} tokens",
        *(
            textwrap.wrap(f"device: {clean(found.device)}, {found.device_note}", 80)
            if found.device_note
            else []
        ),
        "",
        f"{clean(found.name)} · vLLM",
        "",
        f"{'budget':<36}{'bytes':>20}  {'':>11}".rstrip(),
        *rows,
        "",
        f"A token takes {cache.token_bytes:,} bytes of the cache, a request {size(request)}.",
    ]
    notes = ["the device's memory is nvidia-smi's; CUDA, and so vLLM, counts up to 2 % less"]
    if "activations" in found.bounded:
        notes.append(
            "activations are bounded: those of transformers' own forward pass, with every token's logits; vLLM's kernels "
            "take less (--activations: what it logs)"
        )
    if not budget.graphs:
        notes.append("CUDA graphs are not counted: vLLM takes off what it estimates them at (--graphs)")
    lines += ["", "Notes", *(line for note in notes for line in wrapped(note))]
    return "\n".join(lines) + "\n"
