"""What closed formulas say of the measured configurations: python -m benchmarks language_models peers [FAKEGPU]

Of each case of `tests/data/h200/configurations.json`: accelerate's `estimate-memory` (the model, and training it with Adam, by its
own functions; it knows no batch, no length, no adapters), FitCheck's answer (`fitcheck-llm` on the package index), and for what does not train
hf-mem's (weights, and a cache of keys and values) and FakeGPU's `estimate-llm`, from a file that has a checkpoint's header and no weights. What
this project says is taken from docs/evidence/CONFIGURATIONS.md. Writes docs/evidence/CONFIGURATIONS_PEERS.md. Needs accelerate, transformers,
hf-mem, fitcheck-llm, and a checkout of github.com/FanBB2333/FakeGPU (default .public/FakeGPU); nothing is asked of the Hub.
"""

from __future__ import annotations

import datetime
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import torch
import transformers
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from fitcheck import config_parser
from fitcheck.estimator import ServingConfig, TrainingConfig, estimate, estimate_inference
from fitcheck.gpu_db import GPU_DB
from fitcheck.memory.lora import LORA_TARGETS_FULL
from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size
from transformers import AutoConfig

from analyzer.options import Options
from analyzer.pipeline.config import recipe_of
from analyzer.recipes.source import auto_class
from benchmarks import ROOT
from benchmarks.harness.pages import table

MEASURED = ROOT / "tests/data/h200/configurations.json"
OURS = ROOT / "docs/evidence/CONFIGURATIONS.md"
PAGE = ROOT / "docs/evidence/CONFIGURATIONS_PEERS.md"
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_NAMES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
# transformers' names of optimizers to FitCheck's, and the type of their state.
_OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_8bit": "adam8bit",
    "paged_adamw_8bit": "adam8bit",
    "sgd": "sgd",
}
# Which measured figure each is put beside: FitCheck and FakeGPU's process count what the process takes of the device.
TOOLS = {"analyze": "peak_allocated", "accelerate": "peak_allocated", "hf-mem": "peak_allocated", "FakeGPU": "peak_allocated", "FitCheck": "nvml_peak"}  # fmt: skip


def _fitcheck(recipe: Any, document: dict[str, Any]) -> int | None:
    """FitCheck's bytes; None for what it has no word for."""
    raw = dict(document)
    try:
        config_parser._reject_unsupported(raw, "a model")
        fields = config_parser._parse_fields(raw)
        if recipe.task != "causal-lm" or (recipe.amp is not None and recipe.bits is None):
            return None  # decoders alone; weights and what is computed with have one type there
        model = config_parser.ModelConfig(
            name="a model",
            num_params=config_parser._count_params(fields),
            **{name: getattr(fields, name) for name in fields.__dataclass_fields__},
        )
        quantization = "nf4" if recipe.bits == 4 else "none"
        double = recipe.bits == 4 and not recipe.no_double_quant
        gpu, precision = GPU_DB["h200"], _SHORT[recipe.dtype]
        if recipe.mode != "train":
            serving = ServingConfig(
                precision, quantization, double, recipe.length + recipe.made_tokens, recipe.batch
            )
            return round(estimate_inference(model, serving, gpu).total_mib * 2**20)
        rank, targets = None, ["q_proj"]
        if recipe.adapters is not None:
            rank = recipe.adapters.r
            targets = (
                list(LORA_TARGETS_FULL)
                if recipe.adapters.targets == ("all-linear",)
                else list(recipe.adapters.targets)
            )
        training = TrainingConfig(
            precision=precision,
            quantization=quantization,
            double_quant=double,
            optimizer=_OPTIMIZERS[recipe.optimizer],
            optimizer_dtype="fp32" if recipe.lora is not None or recipe.dtype == "float32" else "bf16",
            batch_size=recipe.batch,
            seq_len=recipe.length,
            lora_rank=rank,
            lora_targets=targets,
            grad_checkpoint=recipe.gradient_checkpointing,
            flash_attn=recipe.attn != "eager",
            grad_accum_steps=recipe.grad_accumulation,
        )
        return round(estimate(model, training, gpu).total_mib * 2**20)
    except (ValueError, KeyError):
        return None


def _fakegpu(recipe: Any, folder: Path, model: torch.nn.Module, checkout: Path) -> int | None:
    """FakeGPU's tensors' peak; None for what it has no word for. The checkpoint is a header and a hole."""
    if recipe.mode == "train" or recipe.task != "causal-lm" or recipe.bits is not None:
        return None
    header, at = {}, 0
    for name, parameter in model.named_parameters():
        size = parameter.numel() * _BYTES[recipe.dtype]
        header[name] = {
            "dtype": _NAMES[recipe.dtype],
            "shape": list(parameter.shape),
            "data_offsets": [at, at + size],
        }
        at += size
    words = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(words)) + words)
        file.truncate(8 + len(words) + at)
    said = folder / "said.json"
    told = {
        "model-dir": folder, "json": said, "batch-size": recipe.batch, "prompt-tokens": recipe.length,
        "generated-tokens": max(recipe.made_tokens, 1), "dtype": recipe.dtype,
        "attention-implementation": "eager" if recipe.attn == "eager" else "sdpa",
    }  # fmt: skip
    command = [sys.executable, "-m", "fakegpu", "estimate-llm"]
    command += [word for name, value in told.items() for word in (f"--{name}", str(value))]
    ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if ran.returncode:
        return None
    return int(json.loads(said.read_text())["memory"]["estimated_tensor_peak_bytes"])


def answers(
    case: dict[str, Any], document: dict[str, Any], folder: Path, checkout: Path
) -> dict[str, int | None]:
    """What each of the others says, in bytes; None where it has no word for it."""
    file = folder / "config.json"
    file.write_text(json.dumps(document))
    recipe = recipe_of(str(file), Options.of(case["options"]))
    with init_empty_weights():
        model = getattr(transformers, auto_class(recipe)).from_config(AutoConfig.from_pretrained(file))
    full, _ = calculate_maximum_sizes(model.to(torch.float32))
    bits = recipe.bits or 8 * _BYTES[recipe.dtype]
    said: dict[str, int | None] = {"accelerate": full * bits // 32, "hf-mem": None}
    if recipe.mode == "train":
        precision = "float32" if recipe.amp is None and recipe.dtype == "float32" else "bfloat16"
        said["accelerate"] = max(estimate_training_usage(full, precision).values())
    elif "num_hidden_layers" in document:
        length = recipe.length + recipe.made_tokens
        cache = compute_safetensors_kv_cache_size(document, _NAMES[recipe.dtype], length, recipe.batch)
        # Of a checkpoint hf-mem reads the sizes of what it holds: what is tied once.
        said["hf-mem"] = sum(parameter.numel() for parameter in model.parameters()) * bits // 8 + cache
    said["FakeGPU"] = _fakegpu(recipe, folder, model, checkout)
    said["FitCheck"] = _fitcheck(recipe, document)
    return said


def _ours(text: str) -> dict[str, float]:
    """This project's errors of allocated memory, in per cent, by case, as its page has them."""
    cells = (
        line.split(" | ") for line in text.splitlines() if line.startswith("| ") and line.count(" | ") == 8
    )
    found = ((row[0].removeprefix("| "), row[5]) for row in cells)
    return {
        name: float(error.removesuffix(" %"))
        for name, error in found
        if re.fullmatch(r"[-+]?[0-9.]+( %)?", error)
    }


@click.command("peers")
@click.argument("checkout", type=Path, default=Path(".public/FakeGPU"))
def main(checkout: Path) -> None:
    """Ask about every case, then write the page. CHECKOUT: FakeGPU's."""
    checkout = checkout.resolve()
    cases, ours = json.loads(MEASURED.read_text()), _ours(OURS.read_text(encoding="utf-8"))
    rows = []
    errors: dict[str, list[float]] = {name: [] for name in TOOLS}
    for case in cases["rows"]:
        with tempfile.TemporaryDirectory() as folder:
            said = answers(case, cases["configs"][case["config"]], Path(folder), checkout)
        cells = []
        for name, figure in TOOLS.items():
            off = ours[case["name"]] if name == "analyze" else None
            if name != "analyze" and (nbytes := said[name]) is not None:
                off = 100 * (nbytes / case[figure] - 1)
            if off is None:
                cells.append("-")
                continue
            errors[name].append(abs(off))
            cells.append(f"{off:+.1f} %" if off else "0")
        rows.append((case["name"], f"{case['peak_allocated'] / 2**20:,.1f}", *cells))
        print(*rows[-1], sep=" | ", flush=True)
    told = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(told, capture_output=True, text=True, check=False)
    versions = {
        "analyze": "this project",
        "accelerate": version("accelerate"),
        "hf-mem": version("hf-mem"),
        "FakeGPU": commit.stdout.strip() or "7d5cf83",
        "FitCheck": version("fitcheck-llm"),
    }
    tools = [
        (name, versions[name], len(found), f"{statistics.median(found):.1f} %", f"{max(found):.1f} %")
        for name, found in errors.items()
    ]
    PAGE.write_text(
        "\n".join(
            [
                "# Configurations, by closed formulas",
                "",
                "The cases of [CONFIGURATIONS.md](CONFIGURATIONS.md) as four tools see them that compute from a configuration alone: the error "
                "against what was measured on an H200, of the peak allocated, and of FitCheck, which adds what the process takes besides, of "
                "NVML's peak. None tells reserved memory apart. A dash is a case it has no word for (accelerate knows no batch, no length and "
                f"no adapters; the estimate is of its model alone). {datetime.datetime.now(datetime.UTC):%d %B %Y}.",
                "",
                table(("tool", "version", "cases", "median error", "worst"), tools, "llrrr"),
                table(("case", "allocated, MiB", *TOOLS), rows, "l" + "r" * (1 + len(TOOLS))),
                "Made by `python -m benchmarks language_models peers`.",
                "",
            ]
        )
    )
