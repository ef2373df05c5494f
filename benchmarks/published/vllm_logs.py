"""Caches as vLLM logged them, beside what its arithmetic says here: `python -m benchmarks vllm_logs table`.

Each row is a public log of a run on a GPU. What it had for the cache is logged to a hundredth of a GiB, so what follows from it is a range of
blocks; the logged count is one of them or it is not. Requests at a time are logged to a hundredth, and follow from the logged count.
Writes `docs/evidence/SERVING_LOGS.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from analyzer.recipes.config import ModelConfig
from analyzer.recipes.serving import BATCHED_TOKENS, Cache, cache_of

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "SERVING_LOGS.md"
GIB = 2**30


def _model(layers: int, heads: int, size: int, **more: Any) -> dict[str, Any]:
    """Of a public config.json what the cache depends on. heads: of keys and values."""
    shapes = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": size,
    }
    return {"model_type": "public", "dtype": "bfloat16", **shapes, **more}


def _delta_net(layers: int, heads: int, values: int) -> dict[str, Any]:
    """Qwen3.5 and its successors: every fourth layer attends to everything, the others keep a state in float32."""
    return _model(
        layers, heads, 256, full_attention_interval=4, linear_num_key_heads=16, linear_num_value_heads=values,
        linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4, mamba_ssm_dtype="float32",
    )  # fmt: skip


MODELS: Mapping[str, Mapping[str, Any]] = {
    "Llama-2-7b": _model(32, 32, 128),
    "Llama-3.1-8B": _model(32, 8, 128),
    "Llama-3.1-70B (AWQ)": _model(80, 8, 128),
    "Qwen2-7B": _model(28, 4, 128),
    "Qwen2.5-7B": _model(28, 4, 128),
    "Qwen3-8B": _model(36, 8, 128),
    "Qwen3-235B-A22B (FP8)": _model(94, 4, 128),
    "Phi-4 (4 bits)": _model(40, 10, 128),
    "GLM-OCR": _model(16, 8, 128),
    "GLM-4.7 (NVFP4)": _model(92, 8, 128),
    "gemma-3-27b": _model(62, 16, 128, sliding_window=1024, sliding_window_pattern=6),
    "Qwen3.5-35B-A3B": _delta_net(40, 2, 32),
    "Qwen3.8-27B (FP8)": _delta_net(64, 4, 48),
}


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


_LEE = "github.com/dennislee22/vLLM-benchmarking, log/, commit b474d1e: "
_ISSUE = "github.com/vllm-project/vllm/issues/"
_CLUB = "github.com/noonghunna/club-3090/issues/"
LOGS = (
    Logged("Llama-3.1-8B", "0.6", 3.81, 1952, 20000, 1.56, _ISSUE + "10517, comment of 2024-12-02", tokens=False),
    Logged("Llama-3.1-8B", "0.6", 2.89, 1478, 29000, 0.82, _ISSUE + "10517, comment of 2024-12-02", tokens=False),
    Logged("Phi-4 (4 bits)", "0.7", 45.21, 14815, 512, 462.97, "a notebook's output, 07-02 17:08:07", tokens=False),
    Logged(
        "Llama-2-7b", "0.8", 56.18, 7191, 16, None,
        "github.com/kubernetes-sigs/gateway-api-inference-extension/pull/550", tokens=False,
    ),
    Logged("Qwen3-8B", "0.9.2", 18.69, 136_080, 40960, 3.32, "a diary of deploying vLLM, A100 of 40 GB, 06-10 10:58:13"),
    Logged(
        "Qwen3-235B-A22B (FP8)", "0.9", 8.11, 178_880, 16, None, _ISSUE + "21348", ranks=4,
        why="178,880 tokens are 8.02 GiB: the rank that has least decides, and one rank's 8.11 is quoted",
    ),
    Logged("Qwen2-7B", "0.10.1.1", 5.01, 93_872, 16384, 5.73, _LEE + "vllm-7B-1gpuA10080GB-0.25GRAM.log"),
    Logged("Qwen2-7B", "0.10.1.1", 24.83, 464_848, 16384, 28.37, _LEE + "vllm-7B-1gpuA10080GB-0.5GRAM.log"),
    Logged("Qwen2-7B", "0.10.1.1", 11.03, 412_944, 16384, 25.20, _LEE + "vllm-7B-2gpuA10040GB-0.5GRAM-diff-nodes.log", ranks=2),
    Logged("Qwen2-7B", "0.10.1.1", 12.02, 450_192, 16384, 27.48, _LEE + "vllm-7B-2gpuA10080GB-0.25GRAM-same-node.log", ranks=2),
    Logged("Qwen2-7B", "0.10.1.1", 31.83, 1_192_160, 16384, 72.76, _LEE + "vllm-7B-2gpuA10080GB-0.5GRAM-same-node.log", ranks=2),
    Logged("gemma-3-27b", "0.11.0rc2", 109.86, 205_696, 4096, 50.05, "an example of a startup log, 09-25 13:40:27", batched=8192),
    Logged("Llama-3.1-70B (AWQ)", "0.14.0rc2", 38.71, 126_832, 16, None, "a report of crashes on an RTX PRO 6000"),
    Logged("GLM-4.7 (NVFP4)", "0.15.1", 31.99, 729_248, 16, None, "notes of a healthy start, TP 4", ranks=4, kv_dtype="fp8"),
    Logged("GLM-OCR", "0.17.1rc1", 4.97, 81_408, 8192, 9.94, "a startup log, 03-20 10:08:36", batched=8192),
    Logged("Qwen3.5-35B-A3B", "0.17.1rc1", 5.69, 148_816, 32768, 12.91, "a startup log, 03-20 10:20:32", kv_dtype="fp8", batched=8192),
    Logged("Qwen3.5-35B-A3B", "0.17.0", 6.08, 159_296, 65536, 8.00, "a post of 2026-08-30 on hybrid models", kv_dtype="fp8"),
    Logged("Qwen2.5-7B", "0.18.0", 13.1, 245_360, 32768, 7.49, "a startup log, 03-27 12:24:24", batched=8192),
    Logged("Qwen3.5-35B-A3B", "0.24.0", 5.98, 567_978, 131_072, 4.33, _CLUB + "612", kv_dtype="fp8", batched=8192),
    Logged("Qwen3.5-35B-A3B", "0.24.0", 6.01, 569_878, 131_072, 4.35, _CLUB + "652", kv_dtype="fp8", batched=8192),
    Logged(
        "Qwen3.8-27B (FP8)", "0.24 or later", 4.99, 302_921, 131_072, 2.31,
        "github.com/mitchross/talos-argocd-proxmox/pull/1995", ranks=2, kv_dtype="fp8", batched=8192,
    ),
)  # fmt: skip


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
