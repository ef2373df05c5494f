"""What a configuration's job may be changed to: each line is an analysis of its own; what is said already is not offered."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.devices import load
from analyzer.options import Options
from analyzer.planning.changes import of_configuration as variants
from analyzer.planning.what_if import what_if
from analyzer.report import formats

TINY = {
    "model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "dtype": "bfloat16", "architectures": ["LlamaForCausalLM"],
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    return str(path)


def offered(config: str, **said: Any) -> dict[str, dict[str, Any]]:
    return {name: changes for name, _, changes in variants(Options.of(said), config)}


def test_what_training_may_be_changed_to(config: str) -> None:
    found = offered(config, mode="train", batch=2, length=128, device="rtx4090")
    assert found["QLoRA"] == {"load_in_4bit": True, "lora": "r=16,targets=all-linear"}
    assert found["accumulation x2"] == {"batch": 1, "grad_accumulation": 2}
    assert found["length 64"] == {"length": 64}
    assert found["two GPUs (fsdp2:2)"] == {"parallel": "fsdp2:2"}
    device = next(changes["device"] for name, changes in found.items() if name.startswith("on "))
    assert 1.1 < load(device).capacity_bytes / load("rtx4090").capacity_bytes < 2
    said = offered(
        config, mode="train", batch=1, length=1, lora="r=4", load_in_4bit=True, gradient_checkpointing=True,
        optimizer="paged_adamw_8bit", device="b200",
    )  # fmt: skip
    assert list(said) == ["expandable segments"] or set(said) - {"expandable segments"} <= {
        name for name in said if name.startswith("on ")
    }


def test_what_generating_may_be_changed_to(config: str) -> None:
    found = offered(config, mode="generate", length=1024)
    assert {"8 bits", "4 bits", "cache offloaded", "prompt in pieces of 512", "length 512"} == found.keys()
    assert not any(name.startswith("on ") for name in found), "nobody named a GPU"
    assert "cache offloaded" not in offered(config, mode="generate", cache="static")


@pytest.mark.parametrize("task", ["sft", "dpo", "reward", "grpo", "causal-lm"])
@pytest.mark.parametrize("mode", ["train", "infer", "generate"])
def test_every_strategy_is_one_the_configuration_takes(config: str, task: str, mode: str) -> None:
    from analyzer.errors import OptionError
    from analyzer.pipeline.config import script_of

    said: dict[str, Any] = {"mode": mode, "task": task, "batch": 4, "length": 1024, "device": "h100"}
    try:
        found = offered(config, **said)
    except OptionError:
        assert task != "causal-lm" and mode != "train"
        return
    for changes in found.values():
        script_of(config, Options.of({**said, **changes}))


@pytest.mark.skipif(
    not all(
        importlib.util.find_spec(name) for name in ("transformers", "accelerate", "peft", "bitsandbytes")
    ),
    reason="the user's own packages are not here",
)
def test_side_by_side(config: str) -> None:
    said: dict[str, Any] = {"batch": 2, "length": 64, "device": "h100"}
    found = what_if(config, **said)
    by_name = {strategy.name: strategy for strategy in found}
    assert found[0].name == "as it is" and not any(strategy.error for strategy in found)
    base, shorter = found[0].estimate, by_name["length 32"].estimate
    assert base is not None and shorter is not None
    same = analyzer.analyze(config, batch=2, length=32, device="h100")
    assert (shorter.peak_allocated, shorter.device_used) == (same.peak_allocated, same.device_used)
    assert by_name["length 32"].saved == base.device_used - shorter.device_used
    larger = next(strategy for strategy in found if strategy.name.startswith("on "))
    assert larger.estimate is not None and larger.estimate.capacity_bytes > base.capacity_bytes
    document = json.loads(formats.render("strategies", "json", found))
    costs = {row["name"]: row["cost"] for row in document["strategies"]}
    assert costs["4 bits"] == "changes results" and costs[larger.name] == "a larger GPU"
    assert "length 32" in formats.render("strategies", "text", found)
