"""A configuration whose model never ends costs little time and memory."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands import refuses


def layers(folder: Path) -> Path:
    path = folder / "config.json"
    small = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 64}
    path.write_text(json.dumps({"model_type": "llama", **small, "num_hidden_layers": 10**9}))
    return path


def test_layers_without_end(tmp_path: Path) -> None:
    refuses(layers(tmp_path), "num_hidden_layers is 1,000,000,000: more than 4,096 are not built")
