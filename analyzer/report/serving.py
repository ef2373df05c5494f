"""What a serving engine has room for, as text: the verdict, the budget line by line, what a request costs,
what would change it; and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, size

if TYPE_CHECKING:
    from analyzer.results.serving import EngineMemory, RankMemory, Serving

CHANGES = "What would change it"
_KEPT = {
    "all": "keep every token",
    "window": "keep a window of {:,} tokens",
    "chunk": "keep a chunk of {:,} tokens",
    "state": "keep a state, in {} blocks",
}


def wrapped(note: str) -> list[str]:
    """Return a note in lines of 80 columns."""
    return textwrap.wrap(note, 80, initial_indent="- ", subsequent_indent="  ")


def budget_terms(found: Serving) -> list[tuple[str, int]]:
    """Return the lines of the budget's table, or of the cache alone if its bytes were given."""
    budget = found.budget
    if budget is None:
        return [("cache, as said", found.available)]
    return [
        (f"{budget.utilization:g} of {clean(found.device)}", budget.allowed),
        ("- weights", budget.weights),
        ("- activations of the profile run", budget.activations),
        ("- outside PyTorch", budget.outside),
        ("- CUDA graphs", budget.graphs),
        ("= cache", found.available),
    ]


def sentence_of(found: Serving) -> str:
    """Return the verdict in one sentence."""
    if found.requests >= 1:
        return f"room for {found.requests:,.2f} requests of {found.length:,} tokens at a time"
    return f"no room for a request of {found.length:,} tokens: the cache holds {found.tokens:,}"


def text(found: Serving, _: View = PLAIN) -> str:
    """Return the result as text of 80 columns."""
    budget, cache = found.budget, found.cache
    rows = [f"{name:<36}{nbytes:>20,}  {size(nbytes):>11}" for name, nbytes in budget_terms(found)]
    lines = [
        sentence_of(found),
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
    if notes := list(budget_notes(found)):
        lines += ["", "Notes", *(line for note in notes for line in wrapped(note))]
    return "\n".join(lines) + "\n"


def budget_notes(found: Serving) -> Iterator[str]:
    """Yield notes on what the arithmetic leaves out."""
    budget, cache = found.budget, found.cache
    if budget is not None:
        yield ("the device's memory is nvidia-smi's; CUDA, and so vLLM, counts up to 2 % less")
    if len(cache.kept) > 1:
        before = cache.tokens_until_0_20(found.blocks)
        yield (
            f"vLLM until 0.20 logs {before:,} tokens, its blocks over the {cache.group_count} groups of"
            " layers"
        )
    if "activations" in found.bounded:
        yield (
            "activations are bounded: those of transformers' own forward pass, with every token's logits;"
            " vLLM's kernels take less (--activations: what it logs)"
        )
    if budget is not None and not budget.graphs:
        yield ("CUDA graphs are not counted: vLLM takes off what it estimates them at (--graphs)")


def engine_text(found: EngineMemory, _: View = PLAIN) -> str:
    """Return the engine's own accounting as text of 80 columns."""
    rank = found.rank
    lines = [*textwrap.wrap(verdict(found), 80)]
    if found.blocks:
        lines.append(capacity(found))
    if found.device_note:
        lines += textwrap.wrap(f"device: {clean(found.device)}, {found.device_note}", 80)
    where = f" on each of {len(found.ranks)} GPUs" if len(found.ranks) > 1 else ""
    lines += ["", f"{clean(found.name)} · {found.engine}, started without a GPU{where}"]
    if rank is not None:
        lines += ["", f"{'what the engine accounts for':<36}{'bytes':>20}"]
        lines += [f"{name:<36}{nbytes:>20,}  {size(nbytes):>11}" for name, nbytes in terms(found, rank)]
    lines += ranks_table(found)
    if found.changes:
        lines += ["", CHANGES, *(line for change in found.changes for line in wrapped(change))]
    notes = [*found.notes, *about(found)]
    return "\n".join([*lines, "", "Notes", *(line for note in notes for line in wrapped(note))]) + "\n"


def ranks_table(found: EngineMemory) -> list[str]:
    """Return each rank's terms side by side where they differ; above stand those of the smallest cache."""
    if len(set(found.ranks)) < 2:
        return []
    columns = ("weights", "activations", "outside", "cache", "graphs")
    rows = [
        f"{number:<6}"
        + "".join(
            f"{'' if (nbytes := getattr(rank, name)) is None else size(nbytes):>13}" for name in columns
        )
        for number, rank in enumerate(found.ranks)
    ]
    return ["", f"{'rank':<6}" + "".join(f"{name:>13}" for name in columns), *rows]


def verdict(found: EngineMemory) -> str:
    if found.error is not None:
        kind, message = found.error
        return f"does not start: {kind}: {' '.join(clean(message).split())}"
    if found.concurrency >= 1:
        return f"room for {found.concurrency:,.2f} requests of {found.length:,} tokens at a time"
    return f"no room for a request of {found.length:,} tokens: the cache holds {found.tokens:,}"


def capacity(found: EngineMemory) -> str:
    """Return what the cache holds."""
    held = f"{found.tokens:,} tokens"
    if found.block_tokens == 1:
        return held
    return f"{found.blocks:,} blocks of {found.block_tokens} tokens: {held}"


def terms(found: EngineMemory, rank: RankMemory) -> Iterator[tuple[str, int]]:
    """Lines of the table: the names that vLLM, or SGLang, logs them by."""
    if (static := found.settings.get("mem_fraction_static")) is not None:
        yield f"{static:g} of what is free of {clean(found.device)}", rank.requested
    else:
        share = found.settings.get("gpu_memory_utilization", round(rank.requested / rank.total, 4))
        yield f"{share:g} of {clean(found.device)}", rank.requested
    yield "- model weights", rank.weights
    for name, nbytes in (("- peak activation", rank.activations), ("- non-torch memory", rank.outside)):
        if nbytes is not None:
            yield name, nbytes
    counted = rank.requested - rank.weights - (rank.activations or 0) - (rank.outside or 0) - rank.cache
    if rank.graphs_estimated is not None and counted:
        yield "- CUDA graphs, as estimated", counted
    yield "= KV cache", rank.cache
    if rank.pools is not None:
        yield "tables and states of requests", rank.pools
    if rank.graphs is not None:
        yield "CUDA graphs, as captured", rank.graphs
    if rank.left is not None:
        yield "left for activations", rank.left


def about(found: EngineMemory) -> Iterator[str]:
    """Yield sentences on how the figures were obtained."""
    yield (
        f"every figure is the engine's own, of torch {clean(found.torch)} on an emulated CUDA runtime;"
        " weights are random, and kernels compute nothing"
    )
    rank = found.rank
    if rank is not None and rank.left is not None:
        yield "it runs no batch before it serves: what activations take is not measured, only what is left"
    if rank is not None and rank.graphs is not None and rank.graphs_most is not None:
        yield (
            f"CUDA graphs: {size(rank.graphs)} is of driver 580; others since CUDA 12.4 take up to"
            f" {size(rank.graphs_most)} for the same {rank.graph_nodes:,} nodes, older ones more"
        )
    yield "what would change it is arithmetic from these figures; start it again to see"


def engine_json(found: EngineMemory, _: View = PLAIN) -> str:
    """Return the same as JSON, all in bytes."""
    document: dict[str, Any] = asdict(found) | {"fits": found.fits, "token_bytes": found.token_bytes}
    for rank, one in zip(document["ranks"], found.ranks, strict=True):
        rank["graphs_most"] = one.graphs_most
    return json.dumps(document, indent=2) + "\n"


def arithmetic_json(found: Serving, _: View = PLAIN) -> str:
    """Return the arithmetic result as JSON, in bytes."""
    counted = ("blocks", "blocks_of_request", "tokens", "requests")
    document = asdict(found) | {name: getattr(found, name) for name in counted}
    return json.dumps(document, indent=2) + "\n"
