"""What is said of a configuration, and the script that says the same: read by hand, without transformers."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import OptionError, TargetError
from analyzer.options import Options
from analyzer.pipeline.config import recipe_of, script_of
from analyzer.recipes.config import opened
from analyzer.recipes.recipe import OPTIMIZERS, Lora, parse_lora, task_of

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 1000,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path, LLAMA)


def written(folder: Path, document: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return path


def told(path: Path, **options: Any) -> str:
    text = script_of(str(path), Options.of(options))
    ast.parse(text)  # it is a program
    return text


def test_a_plain_configuration_trains_as_from_pretrained_loads_it(config: Path) -> None:
    text = told(config, mode="train", batch=2)
    assert 'device_map={"": 0}' in text
    assert "dtype=torch.bfloat16" in text, "the file's own type"
    assert 'torch.randint(0, 1000, (2, 256), device="cuda")' in text, "as many tokens as it has positions"
    assert "torch.optim.AdamW(trained, lr=1e-4, fused=True)" in text, "what Trainer takes where nobody says"
    assert "for step in range(3):" in text
    assert "peft" not in text and "BitsAndBytes" not in text and "autocast" not in text


def test_everything_at_once_is_said_once(config: Path) -> None:
    text = told(
        config, mode="train", lora="r=4,targets=all-linear", load_in_4bit=True, no_double_quant=True, amp="bf16",
        optimizer="paged_adamw_8bit", gradient_checkpointing=True, grad_accumulation=2, attn="eager", length=100,
    )  # fmt: skip
    for words in (
        "load_in_4bit=True", "bnb_4bit_use_double_quant=False", "use_gradient_checkpointing=True", "r=4, lora_alpha=8",
        "target_modules='all-linear'", 'torch.autocast("cuda", torch.bfloat16)', "for _ in range(2):", "(1, 100)",
        "AdamW(trained, lr=1e-4, optim_bits=8, is_paged=True)", "attn_implementation='eager'", "import bitsandbytes",
    ):  # fmt: skip
        assert text.count(words) == 1, words
    assert "model.gradient_checkpointing_enable()" not in text, "prepare_model_for_kbit_training does it"


def test_generating(config: Path) -> None:
    text = told(config, mode="generate", new_tokens=7, cache="static", beams=3, length=5, load="gpu")
    assert "max_new_tokens=7, min_new_tokens=7" in text and "num_beams=3" in text
    assert "cache_implementation='static'" in text and "checkpoint" not in text
    assert "cache_implementation=None" in told(config, mode="generate", cache="dynamic")
    quantized = told(config, mode="generate", cache="quantized", prefill_chunk=16)
    assert """cache_implementation='quantized', cache_config={"backend": "hqq"}""" in quantized
    assert "prefill_chunk_size=16" in quantized


def test_generating_from_sound(tmp_path: Path) -> None:
    whisper = {"model_type": "w", "architectures": ["WForConditionalGeneration"], "num_mel_bins": 80}
    text = told(written(tmp_path, whisper), mode="generate", task="speech", batch=2, new_tokens=9)
    assert "sound = torch.randn(2, 80, 2 * 1500, " in text and "    sound,\n    max_new_tokens=9" in text
    ctc = written(tmp_path, {"model_type": "c", "architectures": ["WForCTC"]})
    with pytest.raises(OptionError, match="speech model does not generate"):
        told(ctc, mode="generate", task="speech")


def test_fp16_has_a_scaler(config: Path) -> None:
    text = told(config, mode="train", amp="fp16")
    assert "scaler.scale(loss).backward()" in text and "scaler.step(optimizer)" in text


@pytest.mark.parametrize(
    ("document", "task"),
    [
        (LLAMA, "causal-lm"),
        ({"model_type": "llama"}, "causal-lm"),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, "seq2seq"),
        ({"model_type": "w", "architectures": ["WForConditionalGeneration"], "num_mel_bins": 80}, "speech"),
        ({"model_type": "l", "architectures": ["LForConditionalGeneration"], "text_config": {}}, "causal-lm"),
        (
            {"model_type": "l", "architectures": ["LForConditionalGeneration"], "vision_config": {}},
            "causal-lm",
        ),
        ({"model_type": "vit", "architectures": ["ViTForImageClassification"]}, "vision"),
        ({"model_type": "bert", "architectures": ["BertForSequenceClassification"]}, "classification"),
    ],
)
def test_the_task_is_the_architecture_s(tmp_path: Path, document: dict[str, Any], task: str) -> None:
    config = opened(str(written(tmp_path, document).parent))  # its folder
    assert task_of(config) == task
    told(config.path, mode="train")
    told(config.path)


@pytest.mark.parametrize(
    ("more", "made"),
    [
        (
            {"architectures": ["XForConditionalGeneration"], "vision_config": {}},
            "AutoModelForImageTextToText",
        ),
        ({"architectures": ["XForCausalLM"], "vision_config": {}}, "AutoModelForCausalLM"),
        ({"architectures": ["XForConditionalGeneration"], "text_config": {}}, "AutoModelForCausalLM"),
        ({}, "AutoModelForCausalLM"),
    ],
)
def test_a_model_that_sees_is_made_whole(tmp_path: Path, more: dict[str, Any], made: str) -> None:
    """transformers' causal language model of such a configuration leaves the encoder out, or there is none (Qwen2.5-VL)."""
    text = told(written(tmp_path, {"model_type": "x", **more}))
    assert f"{made}.from" in text and f"from transformers import AutoConfig, {made}\n" in text


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_is_made_by_a_call(config: Path, name: str) -> None:
    assert "optimizer = " in told(config, mode="train", optimizer=name)


def test_optimizers_are_named_as_transformers_names_them() -> None:
    """`OptimizerNames` of transformers/training_args.py, read as text: importing it needs more than is asked here."""
    found = importlib.util.find_spec("transformers")
    if found is None or found.origin is None:
        pytest.skip("transformers is not here")
    text = (Path(found.origin).parent / "training_args.py").read_text()
    named = set(re.findall(r'^    [A-Z0-9_]+ = "(\w+)"', text, re.MULTILINE))
    ours = {"adamw", "adamw_fused", "paged_adamw", "ademamix_32bit"}  # torch's names, and shorter ones
    assert set(OPTIMIZERS) - ours <= named


def test_adapters() -> None:
    assert parse_lora("r=16") == Lora(16)
    assert parse_lora("r=4, alpha=8,dropout=0.1,targets=q+v") == Lora(4, 8, 0.1, ("q", "v"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lora": "r=16"}, "--lora means nothing with --mode infer"),
        ({"lora": "rank=16", "mode": "train"}, "'rank=16' says nothing"),
        ({"lora": "r=many", "mode": "train"}, "r is 'many'"),
        ({"lora": "r=0", "mode": "train"}, "is no adapter"),
        ({"load_in_4bit": True, "load": "gpu"}, "while they are loaded"),
        ({"load_in_4bit": True, "mode": "train"}, "weights of 4 bits are not trained"),
        ({"optimizer": "adamw_9bit", "mode": "train"}, "no optimizer 'adamw_9bit'"),
        ({"cache": "static"}, "--cache means nothing with --mode infer"),
        ({"mode": "generate", "task": "vision"}, "does not generate"),
        ({"channels_last": True}, "--channels-last means nothing for a configuration"),
        ({"loss": "mse"}, "--loss means nothing for a configuration"),
    ],
)
def test_what_makes_no_sense_is_said(config: Path, options: dict[str, Any], error: str) -> None:
    with pytest.raises(OptionError) as caught:
        recipe_of(str(config), Options.of(options))
    assert error in caught.value.message


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "is not JSON"),
        ("[]", "no model_type"),
        ('{"hidden_size": 3}', "no model_type"),
        ("\xff", "it is no text"),
        ('{"model_type": "gpt2", "architectures": 3}', "no list of names"),
    ],
)
def test_what_is_no_configuration_is_said(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(TargetError, match=error):
        opened(str(path))
    with pytest.raises(TargetError, match="no such file"):
        opened(str(tmp_path / "other.json"))


def test_a_configuration_s_words_run_nothing(tmp_path: Path) -> None:
    """Whatever stands in the file, the script holds it as a text or a number."""
    hostile = {**LLAMA, "architectures": ['"""\nimport os'], "vocab_size": "__import__('os').abort()"}
    path = written(tmp_path, hostile)
    with pytest.raises(TargetError, match="vocab_size"):
        told(path, mode="train")
    with pytest.raises(TargetError, match="dtype"):
        told(written(tmp_path, {**LLAMA, "torch_dtype": "float32)\nimport os"}))
