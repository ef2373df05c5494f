"""What a configuration's job may be changed to: the strategies of `what_if.py` for a model's config.json.

1. What changes no number: offloaded states of the optimizer (`paged_...`); checkpointing; accumulation; a
   cache in host memory; a prompt read in pieces.
2. What changes results: weights of 8 or 4 bits, adapters instead of all parameters, an optimizer with states
   of 8 bits, half the length.
3. More GPUs: training sharded over two by FSDP2, each with a batch of its own.
4. Another GPU: the smallest that is known with a good deal more memory than this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analyzer.devices import load, names
from analyzer.options import Options
from analyzer.pipeline.config import recipe_of
from analyzer.recipes.recipe import Recipe
from analyzer.recipes.trainers import TRAINERS

SLOWER, RESULTS, GPUS, LARGER = range(1, 5)  # as `what_if.py` numbers them
Variant = tuple[str, int, dict[str, Any]]
_LORA = "r=16,targets=all-linear"
_PIECE = 512  # tokens of a prompt that are read at a time
_LARGER = 1.1  # cards of one size on their boxes differ by some percent


def variants(options: Options, target: str) -> list[Variant]:
    """Return (name, cost, changes) of strategies the options leave open. Raises AnalyzerError."""
    recipe = recipe_of(target, options)
    found = [*(_training(recipe, options) if recipe.mode == "train" else _running(recipe))]
    if recipe.length > 1:
        found.append((f"length {recipe.length // 2:,}", RESULTS, {"length": recipe.length // 2}))
    return [*found, *_larger(options)]


def _training(recipe: Recipe, options: Options) -> Iterator[Variant]:
    """Yield (name, cost, changes) for each setting of a training that may take less."""
    if not recipe.gradient_checkpointing:
        yield "gradient checkpointing", SLOWER, {"gradient_checkpointing": True}
    if recipe.batch % 2 == 0 and recipe.parallel is None and recipe.task != "grpo":
        halves = {"batch": recipe.batch // 2, "grad_accumulation": 2 * options.grad_accumulation}
        yield "accumulation x2", SLOWER, halves
    quantizes = recipe.parallel is None and recipe.load == "device-map" and recipe.task != "seq2seq"
    quantizes = quantizes and recipe.stored is None
    four_bits = {"load_in_4bit": True, "lora": options.lora or _LORA}
    if recipe.lora is None:
        yield "LoRA, r=16", RESULTS, {"lora": _LORA}
    if quantizes and recipe.bits is None:
        name, recomputed = "QLoRA" if recipe.lora is None else "4 bits", {"gradient_checkpointing": True}
        yield name, RESULTS, four_bits
        if not recipe.gradient_checkpointing:
            yield f"{name}, checkpointing", RESULTS, {**four_bits, **recomputed}
        paged = {**four_bits, **recomputed, "optimizer": "paged_adamw_8bit"}
        yield f"{name}, checkpointing, paged_adamw_8bit", RESULTS, paged
    elif not recipe.gradient_checkpointing and recipe.optimizer != "paged_adamw_8bit":
        changes = {"gradient_checkpointing": True, "optimizer": "paged_adamw_8bit"}
        yield "checkpointing, paged_adamw_8bit", RESULTS, changes
    if "8bit" not in recipe.optimizer:
        yield "adamw_8bit", RESULTS, {"optimizer": "adamw_8bit"}
    if "paged" not in recipe.optimizer:
        yield "paged_adamw_32bit", SLOWER, {"optimizer": "paged_adamw_32bit"}
    if recipe.task == "dpo" and recipe.has_reference:
        yield "reference computed beforehand", SLOWER, {"precompute_reference": True}
    sharded = recipe.parallel is None and quantizes and not recipe.bits and recipe.task not in TRAINERS
    if sharded and recipe.grad_accumulation == 1:
        yield "two GPUs (fsdp2:2)", GPUS, {"parallel": "fsdp2:2"}


def _running(recipe: Recipe) -> Iterator[Variant]:
    quantizes = recipe.load == "device-map" and recipe.stored is None
    if quantizes and recipe.bits is None:
        yield "8 bits", RESULTS, {"load_in_8bit": True}
    if quantizes and recipe.bits != 4:
        yield "4 bits", RESULTS, {"load_in_4bit": True, "load_in_8bit": False}
    if recipe.mode == "generate" and recipe.cache in (None, "dynamic"):
        yield "cache offloaded", SLOWER, {"cache": "offloaded"}
    if recipe.mode == "generate" and recipe.prefill_chunk is None and recipe.length > _PIECE:
        yield f"prompt in pieces of {_PIECE}", SLOWER, {"prefill_chunk": _PIECE}


def _larger(options: Options) -> Iterator[Variant]:
    """Yield the next larger GPU, if one was named."""
    if options.device is None or options.device not in names():
        return
    here = load(str(options.device)).capacity_bytes
    above = [profile for profile in map(load, names()) if profile.capacity_bytes > _LARGER * here]
    if above:
        device = min(above, key=lambda profile: (profile.capacity_bytes, profile.name)).name
        yield f"on {device}", LARGER, {"device": device}
