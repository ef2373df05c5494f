"""What closed formulas say of the measured configurations: python benchmarks/language_models/peers.py

Of each case of `tests/data/h200/configurations.json`: accelerate's `estimate-memory` (the model, and training it with Adam, by its
own functions; it knows no batch, no length, no adapters), and for what does not train hf-mem's answer (weights, and a cache of keys
and values). Writes docs/evidence/CONFIGURATIONS_PEERS.md. Needs accelerate, transformers and hf-mem; nothing is asked of the Hub.
"""

from __future__ import annotations

import datetime
import json
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size
from transformers import AutoConfig

from analyzer.options import Options
from analyzer.pipeline.config import recipe_of
from analyzer.recipes.source import auto_class

ROOT = Path(__file__).resolve().parents[2]
MEASURED = ROOT / "tests/data/h200/configurations.json"
PAGE = ROOT / "docs/evidence/CONFIGURATIONS_PEERS.md"
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def answers(case: dict[str, Any], document: dict[str, Any], folder: Path) -> tuple[int, int | None]:
    """accelerate's bytes and hf-mem's (None where it has no word for it)."""
    file = folder / "config.json"
    file.write_text(json.dumps(document))
    recipe = recipe_of(str(file), Options.of(case["options"]))
    with init_empty_weights():
        model = getattr(transformers, auto_class(recipe)).from_config(AutoConfig.from_pretrained(file))
    full, _ = calculate_maximum_sizes(model.to(torch.float32))
    bits = recipe.bits or 8 * _BYTES[recipe.dtype]
    if recipe.mode == "train":
        precision = "float32" if recipe.amp is None and recipe.dtype == "float32" else "bfloat16"
        return max(estimate_training_usage(full, precision).values()), None
    if "num_hidden_layers" not in document:
        return full * bits // 32, None
    length = recipe.length + recipe.new_tokens
    cache = compute_safetensors_kv_cache_size(document, _NAMES[recipe.dtype], length, recipe.batch)
    # Of a checkpoint hf-mem reads the sizes of what it holds: what is tied once.
    held = sum(parameter.numel() for parameter in model.parameters()) * bits // 8
    return full * bits // 32, held + cache


def main() -> None:
    """Every case, then the page."""
    cases = json.loads(MEASURED.read_text())
    rows = []
    errors: dict[str, list[float]] = {"accelerate": [], "hf-mem": []}
    for case in cases["rows"]:
        with tempfile.TemporaryDirectory() as folder:
            said = answers(case, cases["configs"][case["config"]], Path(folder))
        cells = []
        for name, nbytes in zip(errors, said, strict=True):
            if nbytes is None:
                cells.append("-")
                continue
            off = 100 * (nbytes / case["peak_allocated"] - 1)
            errors[name].append(abs(off))
            cells.append(f"{off:+.1f} %")
        rows.append(f"| {case['name']} | {case['peak_allocated'] / 2**20:,.1f} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    medians = "; ".join(
        f"{name} {version(name)}: median {statistics.median(found):.0f} %, worst {max(found):.0f} %, {len(found)} cases"
        for name, found in errors.items()
    )
    PAGE.write_text(
        "\n".join(
            [
                "# Configurations, by closed formulas",
                "",
                "The cases of [CONFIGURATIONS.md](CONFIGURATIONS.md), where `analyze` is right to the byte in most, as two tools see them that "
                "compute from a configuration alone: the error against the peak allocated on an H200. Neither has a word for reserved "
                f"memory or for NVML. {datetime.datetime.now(datetime.UTC):%d %B %Y}.",
                "",
                f"{medians}.",
                "",
                "| case | allocated, MiB | accelerate | hf-mem |",
                "|---|--:|--:|--:|",
                *rows,
                "",
                "Made by `python benchmarks/language_models/peers.py`.",
                "",
            ]
        )
    )


if __name__ == "__main__":
    main()
