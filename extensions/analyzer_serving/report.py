"""A serving engine's capacity as text (the verdict, the budget line by line, the cost of a request, changes
that help) and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, size

if TYPE_CHECKING:
    from analyzer_serving.results import EngineMemory, RankMemory, Serving

CHANGES = "Ways to gain room"
_KEPT = {
    "all": "keep every token",
    "window": "keep a window of {:,} tokens",
    "chunk": "keep a chunk of {:,} tokens",
    "state": "keep a state, in {} blocks",
}


def wrapped(note: str) -> list[str]:
    """Return a note in lines of 80 columns."""
    return textwrap.wrap(note, 80, initial_indent="- ", subsequent_indent="  ")


def budget_terms(serving: Serving) -> list[tuple[str, int]]:
    """Return the lines of the budget's table, or of the cache alone if its bytes were given."""
    budget = serving.budget
    if budget is None:
        return [("cache, as said", serving.available)]
    return [
        (f"{budget.utilization:g} of {clean(serving.device)}", budget.allowed),
        ("- weights", budget.weights),
        ("- activations of the profile run", budget.activations),
        ("- outside PyTorch", budget.outside),
        *([("- CUDA graphs", budget.graphs)] if budget.graphs else []),
        ("= cache", serving.available),
    ]


def sentence_of(serving: Serving) -> str:
    """Return the verdict in one sentence."""
    if serving.requests >= 1:
        return f"room for {serving.requests:,.2f} requests of {serving.length:,} tokens at a time"
    return (
        f"no room for a request of {serving.length:,} tokens: the longest with room has {serving.longest:,}"
    )


def cache_sentence(serving: Serving) -> str:
    """Return what the cache holds, and the longest request."""
    most = ", the model's maximum" if serving.longest == serving.positions else ""
    return (
        f"{serving.blocks:,} blocks of {serving.cache.block_tokens} tokens: {serving.tokens:,} tokens; the"
        f" longest request has {serving.longest:,}{most}"
    )


def text(serving: Serving, _: View = PLAIN) -> str:
    """Return the result as text of 80 columns."""
    budget, cache = serving.budget, serving.cache
    rows = [f"{name:<36}{nbytes:>20,}  {size(nbytes):>11}" for name, nbytes in budget_terms(serving)]
    lines = [
        sentence_of(serving),
        *textwrap.wrap(cache_sentence(serving), 80),
        *(
            textwrap.wrap(f"device: {clean(serving.device)}, {serving.device_note}", 80)
            if serving.device_note and budget is not None
            else []
        ),
        "",
        f"{clean(serving.name)} · vLLM",
        "",
        f"{'budget':<36}{'bytes':>20}  {'':>11}".rstrip(),
        *rows,
        "",
        f"A request takes {size(serving.blocks_of_request * cache.block_bytes)} of the cache; a token"
        f" takes {cache.token_bytes:,} bytes of it"
        if len(cache.kept) == 1
        else (
            f"A request takes {size(serving.blocks_of_request * cache.block_bytes)} of the cache, by layers:"
        ),
    ]
    lines[-1:] = textwrap.wrap(lines[-1], 80)
    if len(cache.kept) > 1:
        lines += [f"  {part.layers} {_KEPT[part.kind].format(part.reach)}" for part in cache.kept]
    if notes := list(budget_notes(serving)):
        lines += ["", "Notes", *(line for note in notes for line in wrapped(note))]
    return "\n".join(lines) + "\n"


def budget_notes(serving: Serving) -> Iterator[str]:
    """Yield notes on what the arithmetic leaves out."""
    budget, cache = serving.budget, serving.cache
    if len(cache.kept) > 1:
        before = cache.tokens_until_0_20(serving.blocks)
        yield (
            f"vLLM until 0.20 logs {before:,} tokens, its blocks over the {cache.group_count} groups of"
            " layers"
        )
    if serving.formula:
        yield serving.formula
        yield "--engine vllm starts the engine itself: its profile run, its CUDA graphs, its blocks"
    elif "activations" in serving.bounded:
        yield (
            "activations are bounded: those of transformers' own forward pass, with every token's logits;"
            " vLLM's kernels take less (--activations: what it logs)"
        )
    if budget is not None and not budget.graphs:
        yield (
            "CUDA graphs are not counted, so the cache is smaller by what vLLM logs for them (--graphs SIZE)"
        )
    if budget is not None:
        yield (
            "a log whose cache differs has another share of the GPU than"
            f" {budget.utilization:g} (--gpu-memory-utilization), graphs, or memory outside PyTorch:"
            " --available SIZE takes the cache it logs"
        )


def engine_text(memory: EngineMemory, _: View = PLAIN) -> str:
    """Return the engine's own accounting as text of 80 columns."""
    rank = memory.rank
    lines = [*textwrap.wrap(verdict(memory), 80)]
    if memory.blocks:
        lines.append(capacity(memory))
    if memory.device_note:
        lines += textwrap.wrap(f"device: {clean(memory.device)}, {memory.device_note}", 80)
    where = f" on each of {len(memory.ranks)} GPUs" if len(memory.ranks) > 1 else ""
    lines += ["", f"{clean(memory.name)} · {memory.engine}, started without a GPU{where}"]
    if rank is not None:
        lines += ["", f"{'what the engine accounts for':<36}{'bytes':>20}"]
        lines += [f"{name:<36}{nbytes:>20,}  {size(nbytes):>11}" for name, nbytes in terms(memory, rank)]
    lines += ranks_table(memory)
    if memory.changes:
        lines += ["", CHANGES, *(line for change in memory.changes for line in wrapped(change))]
    notes = [*memory.notes, *about(memory)]
    return "\n".join([*lines, "", "Notes", *(line for note in notes for line in wrapped(note))]) + "\n"


def ranks_table(memory: EngineMemory) -> list[str]:
    """Return each rank's terms side by side where they differ; above stand those of the smallest cache."""
    if len(set(memory.ranks)) < 2:
        return []
    columns = ("weights", "activations", "outside", "cache", "graphs")
    rows = [
        f"{number:<6}"
        + "".join(
            f"{'' if (nbytes := getattr(rank, name)) is None else size(nbytes):>13}" for name in columns
        )
        for number, rank in enumerate(memory.ranks)
    ]
    return ["", f"{'rank':<6}" + "".join(f"{name:>13}" for name in columns), *rows]


def verdict(memory: EngineMemory) -> str:
    if memory.error is not None:
        kind, message = memory.error
        return f"does not start: {kind}: {' '.join(clean(message).split())}"
    if memory.concurrency >= 1:
        return f"room for {memory.concurrency:,.2f} requests of {memory.length:,} tokens at a time"
    return f"no room for a request of {memory.length:,} tokens: the cache holds {memory.tokens:,}"


def capacity(memory: EngineMemory) -> str:
    """Return what the cache holds."""
    held = f"{memory.tokens:,} tokens"
    if memory.block_tokens == 1:
        return held
    return f"{memory.blocks:,} blocks of {memory.block_tokens} tokens: {held}"


def terms(memory: EngineMemory, rank: RankMemory) -> Iterator[tuple[str, int]]:
    """Lines of the table: the names that vLLM, or SGLang, logs them by."""
    if (static := memory.settings.get("mem_fraction_static")) is not None:
        yield f"{static:g} of what is free of {clean(memory.device)}", rank.requested
    else:
        share = memory.settings.get("gpu_memory_utilization", round(rank.requested / rank.total, 4))
        yield f"{share:g} of {clean(memory.device)}", rank.requested
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


def about(memory: EngineMemory) -> Iterator[str]:
    """Yield sentences on how the figures were obtained."""
    yield (
        f"every figure is the engine's own, of torch {clean(memory.torch)} on an emulated CUDA runtime;"
        " weights are random, and kernels compute nothing"
    )
    rank = memory.rank
    if rank is not None and rank.left is not None:
        yield "it runs no batch before it serves: what activations take is not measured, only what is left"
    if rank is not None and rank.graphs is not None and rank.graphs_most is not None:
        yield (
            f"CUDA graphs: {size(rank.graphs)} is of driver 580; others since CUDA 12.4 take up to"
            f" {size(rank.graphs_most)} for the same {rank.graph_nodes:,} nodes, older ones more"
        )
    yield "what would change it is arithmetic from these figures; start it again to see"


def engine_json(memory: EngineMemory, _: View = PLAIN) -> str:
    """Return the same as JSON, all in bytes."""
    document: dict[str, Any] = asdict(memory) | {"fits": memory.fits, "token_bytes": memory.token_bytes}
    for rank, one in zip(document["ranks"], memory.ranks, strict=True):
        rank["graphs_most"] = one.graphs_most
    return json.dumps(document, indent=2) + "\n"


def arithmetic_json(serving: Serving, _: View = PLAIN) -> str:
    """Return the arithmetic result as JSON, in bytes."""
    counted = ("blocks", "blocks_of_request", "tokens", "requests", "longest")
    document = asdict(serving) | {name: getattr(serving, name) for name in counted}
    return json.dumps(document, indent=2) + "\n"
