"""A decoder's parameters and activations by formula, beside transformers' own forward pass."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.cli import main
from analyzer.devices import resolve
from analyzer.recipes.config import ModelConfig, opened
from analyzer.recipes.formula import formula_of
from tests.paths import ROOT

CONFIGS = ROOT / "benchmarks/language_models/configs"
SMALL = {
    "num_hidden_layers": 3,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
    "pad_token_id": 0,
}
WINDOWS = {"sliding_window": 64, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralForCausalLM", {"head_dim": 32}),
    "granite": ("GraniteForCausalLM", {"tie_word_embeddings": True}),
    "phi3": ("Phi3ForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "gemma": ("GemmaForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", WINDOWS),
    "gemma3_text": ("Gemma3ForCausalLM", WINDOWS),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "head_dim": 16},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_and_activations_beside_the_model_itself(family: str, tmp_path: Path) -> None:
    """The model has a few bytes more: the frequencies of its rotary embedding, Gemma's scales."""
    architecture, own = FAMILIES[family]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": family, "architectures": [architecture], **SMALL, **own}))
    formula = formula_of(opened(str(path)))
    assert formula is not None
    followed = analyzer.analyze(str(path), length=512, device="h100")
    assert 0 <= followed.naive.weights - formula.weights <= 2 * 4 * 256 + 2
    workspace = resolve("h100")[0].cublas_workspace_bytes
    most = formula.activations(512) + workspace
    assert most / 3 <= followed.peak_allocated - followed.naive.weights <= most


@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "llama-3.2-1b", "mistral-7b", "mixtral-8x7b", "qwen2.5-0.5b"]
)
def test_published_numbers_of_parameters(model: str) -> None:
    published = json.loads((CONFIGS / "sources.json").read_text())["models"][model]["parameters"]
    formula = formula_of(opened(str(CONFIGS / model)))
    assert formula is not None and formula.parameters == published


@pytest.mark.parametrize(
    "changed",
    [
        {"model_type": "mamba"},
        {"quantization_config": {"quant_method": "fp8"}},
        {"text_config": {"hidden_size": 96}},
        {"hidden_size": None},
    ],
)
def test_no_formula_is_guessed(changed: dict[str, Any]) -> None:
    document = {"model_type": "llama", **SMALL, **changed}
    assert formula_of(ModelConfig("a model", Path("config.json"), document)) is None


def test_without_transformers_the_formula_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "transformers" else real(name, package),
    )
    assert main(["serve", str(CONFIGS / "llama-3.1-8b"), "--device", "h100", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["budget"]["weights"] == 2 * 8_030_261_248
    assert "gpu-memory-analyzer[llm]" in shown["formula"] and shown["longest"] == 131_072
    assert main(["serve", str(CONFIGS / "llama-3.1-8b"), "--device", "rtx4090", "-q"]) == 1
    shown_text = " ".join(capsys.readouterr().out.split())
    assert "8,030,261,248 parameters of llama in bfloat16 by formula" in shown_text
    assert "--engine vllm starts the engine itself" in shown_text
    unknown = tmp_path / "config.json"
    unknown.write_text(json.dumps({"model_type": "own", **SMALL}))
    assert main(["serve", str(unknown), "--device", "h100"]) == 2
    assert "no formula for the weights of this own" in capsys.readouterr().err
