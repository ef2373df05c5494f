"""TRL's trainers as tasks of a configuration: the scripts, and what they take where TRL is installed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.errors import OptionError
from analyzer.options import TASKS, Options
from analyzer.pipeline.config import script_of
from analyzer.recipes.trainers import TRAINERS

TINY = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "dtype": "bfloat16", "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
needs_trl = pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name) for name in ("trl", "datasets", "transformers", "peft", "accelerate")
    ),
    reason="the user's own packages are not here",
)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    return str(path)


def told(config: str, **said: Any) -> str:
    text = script_of(config, Options.of({"mode": "train", "length": 64, **said}))
    compile(text, "program.py", "exec")
    return text


def test_every_trainer_is_a_task_that_can_be_said() -> None:
    assert set(TRAINERS) < set(TASKS)


def test_sequences_padded_and_packed(config: str) -> None:
    padded = told(config, task="sft", batch=2, steps=3, optimizer="adamw_8bit", amp="bf16")
    for words in (
        "[[2] * 64] * count", "count = 8", "per_device_train_batch_size=2", "optim='adamw_8bit'", "bf16=True", "max_length=64",
        "SFTTrainer(", "gradient_checkpointing=False",
    ):  # fmt: skip
        assert padded.count(words) == 1, words
    assert "packing" not in padded and "loss.backward" not in padded
    packed = told(config, task="sft", batch=2, steps=3, packed=True)
    assert "[[2] * 16] * count" in packed and "count = 32" in packed and "packing=True" in packed


def test_a_reference(config: str) -> None:
    """A second model, loaded as the first; none beside adapters, which are switched off for it, and none where it has spoken before."""
    assert told(config, task="dpo").count("from_pretrained(") == 2 + 1  # and the configuration's
    assert "ref_model=reference" in told(config, task="dpo", load="gpu")
    for said in ({"lora": "r=4"}, {"precompute_reference": True}):
        text = told(config, task="dpo", **said)
        assert "reference = " not in text and "ref_model" not in text
    assert "peft_config=LoraConfig(r=4" in told(config, task="dpo", lora="r=4")
    assert "precompute_ref_log_probs=True" in told(config, task="dpo", precompute_reference=True)


def test_a_reward_model_has_one_score(config: str) -> None:
    text = told(config, task="reward")
    assert (
        "AutoModelForSequenceClassification" in text
        and "config.num_labels, config.pad_token_id = 1, 0" in text
    )


def test_completions_of_one_prompt(config: str) -> None:
    text = told(config, task="grpo", batch=4, new_tokens=10)
    assert "num_generations=4" in text and "max_completion_length=10" in text and "[[2] * 10 for _" in text


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"task": "dpo", "mode": "infer"}, "a way to train"),
        ({"task": "grpo", "batch": 1}, "is their number"),
        ({"task": "sft", "parallel": "ddp:2"}, "one GPU"),
        ({"task": "dpo", "packed": True}, "packed means nothing with task='dpo'"),
        ({"task": "sft", "precompute_reference": True}, "precompute_reference means nothing with task='sft'"),
    ],
)
def test_what_no_trainer_does(config: str, said: dict[str, Any], wrong: str) -> None:
    with pytest.raises(OptionError, match=wrong):
        told(config, **said)


@needs_trl
@pytest.mark.parametrize(
    "said",
    [
        {"task": "sft"},
        {"task": "sft", "packed": True, "lora": "r=4"},
        {"task": "dpo"},
        {"task": "reward"},
        {"task": "grpo", "new_tokens": 5},
    ],
    ids=lambda said: said["task"] + "-packed" * said.get("packed", False),
)
def test_the_same_bytes_as_the_script(config: str, tmp_path: Path, said: dict[str, Any], capsys: Any) -> None:
    said = {"mode": "train", "length": 32, "batch": 2, **said}
    estimate = analyzer.analyze(config, device="h200", **said)
    assert not capsys.readouterr().out
    assert estimate.incomplete is None and "followed through 3 optimizer steps" in estimate.notes[0]
    script = tmp_path / "script.py"
    script.write_text(script_of(config, Options.of(said)))
    ran = analyzer.run(script, device="h200")
    for figure in ("peak_allocated", "peak_reserved", "device_used"):
        assert getattr(estimate, figure) == getattr(ran, figure), figure
