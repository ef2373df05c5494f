"""Tokens that are told give what the same tokens give when every one of them is run; what cannot be told is run."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import analyzer
from analyzer.estimate import Estimate
from analyzer.pipeline import generation

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("transformers", "accelerate")),
    reason="the user's own packages are not here",
)
LLAMA = {
    "model_type": "llama", "vocab_size": 4096, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
WINDOW = {**LLAMA, "model_type": "mistral", "sliding_window": 320}


def generated(folder: Path, document: dict[str, Any], **said: Any) -> Estimate:
    path = folder / "config.json"
    path.write_text(json.dumps(document))
    return analyzer.analyze(path, mode="generate", release={"torch": "2.11"}, **said)


def told(estimate: Estimate) -> bool:
    return "told from them" in estimate.notes[0]


@pytest.mark.parametrize(
    "said",
    [
        {"length": 300, "new_tokens": 40, "batch": 8},
        {"length": 130, "new_tokens": 45, "batch": 64, "sample": True},
        {"length": 60, "new_tokens": 30, "batch": 16, "cache": "static"},
    ],
    ids=lambda said: str(said.get("cache", said["batch"])),
)
def test_as_when_every_token_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    short = generated(tmp_path, LLAMA, **said)
    monkeypatch.setattr(generation, "WORTH_TELLING", 10**9)
    full = generated(tmp_path, LLAMA, **said)
    assert told(short) and not told(full)
    assert short.peak_allocated == full.peak_allocated
    assert short.peak_reserved == full.peak_reserved
    assert short.peak_requested == full.peak_requested
    assert short.device_used == full.device_used
    assert short.breakdown == full.breakdown
    assert sum(short.breakdown.values()) == short.peak_allocated
    rows = [[(row.name, row.nbytes, row.shape) for row in one.top(5)] for one in (short, full)]
    assert rows[0] == rows[1]


def test_a_window_that_fills_on_the_way_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"length": 300, "new_tokens": 40, "batch": 8}
    estimate = generated(tmp_path, WINDOW, **said)
    assert not told(estimate)
    monkeypatch.setattr(generation, "WORTH_TELLING", 10**9)
    assert estimate.peak_reserved == generated(tmp_path, WINDOW, **said).peak_reserved


def test_what_does_not_fit_ends_where_it_ends(tmp_path: Path) -> None:
    """With a device too small for the last tokens every token is run: the request that fails is named."""
    said = {"length": 300, "new_tokens": 40, "batch": 512}
    room = generated(tmp_path, LLAMA, **said)
    tight = generated(tmp_path, LLAMA, device=room.device_used - 200 * 2**20, **said)
    assert told(room) and tight.out_of_memory is not None and not tight.fits()


def test_the_graph_that_is_put_together_is_one(tmp_path: Path) -> None:
    from analyzer.options import Options
    from analyzer.pipeline.config import followed

    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    found = followed(str(path), Options(mode="generate", new_tokens=30, length=20))
    found.graph.check()
    assert len(found.graph.operators) == found.graph.operators[-1].index + 1
