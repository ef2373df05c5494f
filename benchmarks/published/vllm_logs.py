"""Caches as vLLM logged them, beside what its arithmetic says here: `python -m benchmarks vllm_logs table`.

Each row is a public log of a run on a GPU. What it had for the cache is logged to a hundredth of a GiB, so what follows from it is a range of
blocks; the logged count is one of them or it is not. Requests at a time are logged to a hundredth, and follow from the logged count.
Writes `docs/evidence/SERVING_LOGS.md`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from analyzer.recipes.config import ModelConfig
from analyzer_serving.arithmetic import BATCHED_TOKENS, Cache, cache_of

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "SERVING_LOGS.md"
GIB = 2**30


@dataclass(frozen=True)
class Logged:
    """A log. available: GiB for the cache; count: of blocks or, with tokens, of tokens as that release counts them; users: requests of
    `length` tokens at a time (None where it is not quoted); ranks: tensor parallel."""

    model: str
    release: str
    available: float
    count: int
    length: int
    users: float | None
    source: str
    tokens: bool = True
    ranks: int = 1
    kv_dtype: str = "auto"
    batched: int = BATCHED_TOKENS
    why: str = field(default="", compare=False)


_SAID = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Of public config.json files what a cache depends on. Qwen3.5 and its successors attend to everything in every fourth layer; the others keep a
# state in float32.
MODELS: Mapping[str, Mapping[str, Any]] = _SAID["models"]
LOGS = tuple(Logged(**log) for log in _SAID["logs"])


def cache(log: Logged) -> Cache:
    """What its model keeps."""
    return cache_of(
        ModelConfig(log.model, Path("config.json"), MODELS[log.model]), log.kv_dtype, ranks=log.ranks
    )


def counted(log: Logged, blocks: int) -> int:
    """So many blocks as its release logs them."""
    kept = cache(log)
    if not log.tokens:
        return blocks
    minor = log.release.split()[0].split(".")[1]
    if int(minor) <= 20:
        return kept.tokens_until_0_20(blocks)
    return blocks * log.length // kept.blocks_of_request(log.length, log.batched)


def span(log: Logged) -> tuple[int, int]:
    """The least and the most it could have logged, from what it had to a hundredth of a GiB."""
    least, most = (cache(log).blocks(round((log.available + off) * GIB)) for off in (-0.005, 0.005))
    return counted(log, least), counted(log, most)


def users(log: Logged) -> tuple[float, float]:
    """The least and the most requests at a time, of the blocks that give the logged count."""
    kept = cache(log)
    first, last = (kept.blocks(round((log.available + off) * GIB)) for off in (-0.005, 0.005))
    found = [blocks for blocks in range(first, last + 1) if counted(log, blocks) == log.count]
    each = kept.blocks_of_request(log.length, log.batched)
    # One kind of layers until 0.20: tokens over tokens, without whole blocks a request.
    if len(kept.kept) == 1:
        return (
            (found[0] * kept.block_tokens / log.length, found[-1] * kept.block_tokens / log.length)
            if found
            else (0, 0)
        )
    return (found[0] / each, found[-1] / each) if found else (0, 0)


def equal(log: Logged) -> bool:
    """Whether the logged count, and the requests where they are quoted, follow."""
    least, most = span(log)
    if not least <= log.count <= most:
        return False
    return log.users is None or any(abs(log.users - one) < 0.00501 for one in users(log))


def page(logs: Sequence[Logged] = LOGS) -> str:
    """The page."""
    lines = []
    for log in logs:
        least, most = span(log)
        ours = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        kind = "tokens" if log.tokens else "blocks"
        asked = f"{log.users:.2f} x {log.length:,}" if log.users is not None else "-"
        told = "equal" if equal(log) else log.why
        gpus = f"{log.ranks}" if log.ranks > 1 else "1"
        lines.append(
            f"| {log.model} | {log.release} | {gpus} | {log.kv_dtype} | {log.available:.2f} | {ours} {kind} | {log.count:,} | {asked} | "
            f"{told} |"
        )
    same = sum(map(equal, logs))
    return "\n".join(
        (
            "# Caches that vLLM logged",
            "",
            'Public logs of runs on GPUs ("Available KV cache memory", "GPU KV cache size" or "# GPU blocks", "Maximum concurrency") beside the',
            "arithmetic of `analyze serve --available`, as `python -m benchmarks vllm_logs table` writes it. What a run had is logged to a hundredth of a GiB,",
            "so a range of counts follows; requests at a time are those of the logged count. Shapes are those of the public `config.json`. Full",
            "attention, windows (Gemma 3: seven groups of layers), gated delta nets (a block as large as a state), tensor parallel ranks.",
            "",
            f"**{same} of {len(logs)} equal.**",
            "",
            "| model | vLLM | GPUs | cache's type | GiB for it | here | logged | requests | |",
            "|---|---|--:|---|--:|--:|--:|--:|---|",
            *lines,
            "",
            "Where they stand, in the order of the rows:",
            "",
            *(f"- {log.model}, {log.count:,}: {log.source}" for log in logs),
            "",
        )
    )


@click.command("table")
def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
