"""vLLM's arithmetic beside what it logged, and pages worked out by hand.

Logged (figures rounded to a hundredth of a GiB, so a count lies in the range these leave): github.com/vllm-project/vllm, issue
10517 (comment of 2024-12-02: Llama-3.1-8B on an RTX 3090) and pull request 10511 (comment of 2024-12-14: Llama-3-8B on an 80 GB
GPU); github.com/dennislee22/vLLM-benchmarking, log/ at commit b474d1e (vLLM 0.10.1.1, Qwen2-7B-Instruct, whose shapes are
Qwen2.5-7B's, on one A100 or tensor parallel on two).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyzer.cli import main
from analyzer.errors import OptionError
from analyzer.recipes.config import ModelConfig, opened
from analyzer_serving.arithmetic import Cache, Kept, ServingMemory, cache_of, request_length
from tests.paths import ROOT

GIB = 2**30
LLAMA_8B = opened(str(ROOT / "benchmarks/language_models/configs/llama-3.1-8b"))


def config(**document: Any) -> ModelConfig:
    return ModelConfig("a model", Path("config.json"), {"model_type": "x", **document})


def gib(figure: float) -> int:
    return round(figure * GIB)


@pytest.mark.parametrize(
    ("peak", "outside", "logged_gib", "blocks", "length", "users"),
    [(17.06, 0.35, 3.81, 1952, 20000, 1.56), (17.98, 0.35, 2.89, 1478, 29000, 0.82)],
)
def test_blocks_that_were_logged(
    peak: float, outside: float, logged_gib: float, blocks: int, length: int, users: float
) -> None:
    cache = cache_of(LLAMA_8B)
    budget = ServingMemory(gib(23.58), 0.90, gib(14.9888), gib(peak - 14.9888), gib(outside))
    assert round(budget.cache_bytes / GIB, 2) == logged_gib
    least, most = (cache.blocks(gib(logged_gib + off)) for off in (-0.005, 0.005))
    assert least <= blocks <= most < least + 7
    assert round(blocks * 16 / length, 2) == users


@pytest.mark.parametrize(
    ("ranks", "logged_gib", "tokens", "users"),
    [
        (1, 5.01, 93_872, 5.73),  # vllm-7B-1gpuA10080GB-0.25GRAM.log
        (1, 24.83, 464_848, 28.37),  # vllm-7B-1gpuA10080GB-0.5GRAM.log
        (2, 11.03, 412_944, 25.20),  # vllm-7B-2gpuA10040GB-0.5GRAM-diff-nodes.log
        (2, 12.02, 450_192, 27.48),  # vllm-7B-2gpuA10080GB-0.25GRAM-same-node.log
        (2, 31.83, 1_192_160, 72.76),  # vllm-7B-2gpuA10080GB-0.5GRAM-same-node.log
    ],
)
def test_tokens_that_were_logged(ranks: int, logged_gib: float, tokens: int, users: float) -> None:
    cache = cache_of(opened(str(ROOT / "benchmarks/language_models/configs/qwen2.5-7b")), ranks=ranks)
    least, most = (cache.blocks(gib(logged_gib + off)) * 16 for off in (-0.005, 0.005))
    assert tokens % 16 == 0
    assert least <= tokens <= most < least * 1.003
    assert round(tokens / 16384, 2) == users


def test_the_budget_that_was_logged() -> None:
    budget = ServingMemory(gib(79.22), 0.90, gib(14.96), gib(1.26), gib(1.79))
    assert round(budget.cache_bytes / GIB, 2) == 53.29
    assert round(budget.allowed / GIB, 2) == 71.30  # logged as 71.29: of figures cut off, not rounded


def test_weights_that_were_logged() -> None:
    sources = json.loads((ROOT / "benchmarks/language_models/configs/sources.json").read_text())
    assert round(2 * sources["models"]["llama-3.1-8b"]["parameters"] / GIB, 2) == 14.96


def test_pages_by_hand() -> None:
    cache = cache_of(LLAMA_8B)
    assert (cache.heads, cache.sizes, cache.page_bytes) == (8, (128, 128), 8 * 16 * 256 * 2)
    assert cache.token_bytes == 32 * 8 * 256 * 2 == 131_072
    assert cache_of(LLAMA_8B, "fp8").token_bytes == 65_536
    assert cache_of(LLAMA_8B, ranks=2).token_bytes == 65_536
    assert cache_of(LLAMA_8B, ranks=16).heads == 1  # each kv head is on two ranks
    latent = config(
        num_hidden_layers=61, num_attention_heads=128, kv_lora_rank=512, qk_rope_head_dim=64, dtype="bfloat16"
    )
    assert cache_of(latent).token_bytes == 61 * 576 * 2
    assert cache.blocks(-1) == 0


@pytest.mark.parametrize(
    "document",
    [
        {"layer_types": ["full_attention", "sliding_attention"]},  # how long the window is, is not said
        {"layer_types": ["full_attention", "linear_attention"]},  # nor how large the state
        {"layer_types": ["full_attention", "conv"]},
        {"layer_types": ["full_attention"]},
        {"model_type": "mamba"},
        {"num_key_value_heads": 6},
    ],
)
def test_what_is_not_counted_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        cache_of(config(**{"num_hidden_layers": 2, "num_attention_heads": 12, **document}), ranks=4)


def test_groups_by_hand() -> None:
    """Gemma 3 27B's 10 and 52 layers: a group of ten, and six of ten or nine. As many again as half: groups of the larger kind."""
    kept = (Kept("window", 52, 1024), Kept("all", 10))
    cache = Cache(kept, 16, (128, 128), 2, 16)
    assert cache.group_layers == 10 and [cache.groups(part) for part in kept] == [6, 1]
    assert cache.page_bytes == 16 * 16 * 256 * 2 and cache.block_bytes == 10 * cache.page_bytes
    # A window of 1,023 tokens and two batches of 64, in blocks of 16, and one more; 8,000 tokens are 500 blocks.
    assert cache.blocks_of_request(8000, 64) == 6 * (72 + 1) + 500
    assert cache.blocks_of_request(640, 64) == 6 * (40 + 1) + 40  # a shorter request has no more
    assert Cache((Kept("window", 12, 128), Kept("all", 13)), 8, (64, 64), 2, 16).group_layers == 13
    assert Cache((Kept("window", 18, 128), Kept("all", 12)), 8, (64, 64), 2, 16).group_layers == 12
    assert Kept("chunk", 3, 8192).blocks(100_000, 2 * 2048, 16) == (8192 + 4096) // 16


def test_blocks_beside_states_have_room_for_one() -> None:
    """Qwen3.5-35B-A3B: three inputs of 8,192 channels in bfloat16 and 32 matrices of 128 x 128 in float32."""
    hybrid = {
        "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "dtype": "bfloat16",
        "full_attention_interval": 4, "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32",
    }  # fmt: skip
    cache = cache_of(config(**hybrid), "fp8")
    state = 3 * 8192 * 2 + 32 * 128 * 128 * 4
    assert (cache.block_tokens, cache.page_bytes) == (2096, state) and cache.group_count == 4
    assert (
        cache_of(config(**hybrid), "fp8", ranks=2).block_tokens == 2096
    )  # half the state beside half the heads
    assert cache_of(config(**hybrid), prefixes=False).blocks_of_request(4096, 2048) == 4096 // 1056 + 1 + 3
    plain = {**hybrid, "mamba_ssm_dtype": "auto"}
    assert cache_of(config(**plain)).page_bytes >= state // 2


def test_a_window_that_is_not_used_is_none() -> None:
    unused = config(
        num_hidden_layers=2, num_attention_heads=4, hidden_size=64, sliding_window=8, use_sliding_window=False
    )
    assert cache_of(unused).token_bytes == 2 * 4 * 32 * 4


def test_a_request_s_length() -> None:
    assert request_length(LLAMA_8B, None) == 131072 and request_length(LLAMA_8B, 7) == 7
    with pytest.raises(OptionError, match="positions"):
        request_length(config(), None)


def test_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The second logged case, all of its terms said."""
    folder = str(ROOT / "benchmarks/language_models/configs/llama-3.1-8b")
    said = "--weights 14.9888GiB --activations 2.9912GiB --outside 0.35GiB --gpu-memory-utilization 0.9 --device 23.58GiB"
    assert main(["serve", folder, "--length", "29000", *said.split()]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("no room for a request of 29,000 tokens: the longest with room has 23,")
    assert "--available SIZE takes the cache it logs" in " ".join(shown.split())
    assert "CUDA graphs are not counted" in shown and max(map(len, shown.splitlines())) <= 80
    assert "- CUDA graphs  " not in shown and "nvidia-smi" not in shown  # a profile has what CUDA counts
    assert main(["serve", folder, "--length", "20000", *said.split()]) == 0
    assert capsys.readouterr().out.startswith("room for 1.1")


def test_several_devices_are_told_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(ROOT / "benchmarks/language_models/configs/llama-3.1-8b")
    assert main(["serve", folder, "--device", "rtx4090,h100"]) == 2
    assert f"once for each: analyze serve {folder} --device rtx4090" in capsys.readouterr().err
