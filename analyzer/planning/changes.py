"""Alternatives to a job: a module's training or inference, an ONNX session, a configuration's job.

1. A change is a name, a cost and the options it sets. Cost 0 is free, 1 slower or other kernels, 2 changes
   results, 3 takes more GPUs, 4 a larger GPU.
2. **Checkpointing** applies to the blocks a model repeats: those whose recomputation frees most, and those
   that free most per operation, by the base's graph (`checkpoints.py`).
3. **Accumulation** divides the batch by k and runs k of them a step: the effective batch stays.
4. **More GPUs**: training with FSDP2 on `_GPUS` of them, inference split over `_SPLIT` by tensor parallelism
   where the layers' names are known; a configuration's over two. The batch is that of one rank, so the job
   does as many times more.
5. Combinations are the usual ones: mixed precision with checkpointing, both with accumulation, and each free
   change on top.
6. A configuration has options of its own. No number changes by offloaded states of the optimizer
   (`paged_...`), checkpointing, accumulation, a cache in host memory, a prompt read in pieces; results change
   by weights of 8 or 4 bits, adapters instead of all parameters, an optimizer with states of 8 bits, half the
   length. The larger GPU is the smallest that is known with a good deal more memory than this one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from analyzer.analysis import Analysis
from analyzer.devices import load, names
from analyzer.graph import Graph
from analyzer.options import Options
from analyzer.parallelism import parse
from analyzer.pipeline.config import recipe_of
from analyzer.pipeline.workload import Workload
from analyzer.planning.checkpoints import patterns
from analyzer.recipes.recipe import Recipe
from analyzer.recipes.trainers import TRAINERS
from analyzer.targets import parse as parse_target

FREE, SLOWER, RESULTS, GPUS, LARGER = range(5)
_ACCUMULATED = (2, 4)
_GPUS, _SPLIT = 8, 2
_FUSED = ("sgd", "adam", "adamw", "adagrad")
_EIGHT_BITS = ("adam", "adamw", "adagrad", "rmsprop")
_PAIR = 2
# ONNX Runtime's settings that decide memory, and their cheaper values.
_ARENA = {
    "arena_extend_strategy": "kSameAsRequested",
    "cudnn_conv_algo_search": "HEURISTIC",
    "enable_mem_pattern": "0",
}
_LORA = "r=16,targets=all-linear"
_PIECE = 512  # tokens of a prompt that are read at a time
_LARGER = 1.1  # cards of one size on their boxes differ by some percent


class Change(NamedTuple):
    """One change of a job. options: what it sets."""

    name: str
    cost: int
    options: Mapping[str, Any]


PURE = Change("pure bf16", RESULTS, {"dtype": "bfloat16"})


def variants(base: Analysis, options: Options, target: Any) -> list[Change]:
    """Return every change, alone or with others, that the base's options leave open. Raises AnalyzerError."""
    if isinstance(target, (str, os.PathLike)) and parse_target(target).kind == "config":
        return [*expandable(options), *of_configuration(options, os.fspath(target))]
    if base.graph.framework == "onnx":
        return _of_session(base.graph, options)
    free = [
        *expandable(options),
        *implementations(options, {"fused": FREE, "forloop": SLOWER}),
        *channels_last(base.graph, options),
    ]
    precise = precisions(options)
    frugal = _frugal(base, options, target) if options.mode == "train" else []
    recomputed = next((change for change in reversed(frugal) if "checkpoint" in change.options), None)
    split = next((change for change in frugal if "grad_accumulation" in change.options), None)
    mixed = next(iter(precise), None)
    sets = [[mixed, recomputed], [mixed, split], [recomputed, split], [mixed, recomputed, split]]
    if free:
        sets.append([free[0], mixed, recomputed])
    pairs = [[part for part in parts if part is not None] for parts in sets]
    combined = {change.name: change for change in (_merged(parts) for parts in pairs if len(parts) >= _PAIR)}
    return [*free, *precise, *frugal, *combined.values(), *_more_gpus(options, target)]


def _merged(parts: Sequence[Change]) -> Change:
    options = {name: value for part in parts for name, value in part.options.items()}
    return Change(" + ".join(part.name for part in parts), max(part.cost for part in parts), options)


def _of_session(graph: Graph, options: Options) -> list[Change]:
    given, convolves = options.runtime_options, any("Conv" in op.name for op in graph.operators)
    left = {
        key: value
        for key, value in _ARENA.items()
        if str(given.get(key, "")) != value and (convolves or key != "cudnn_conv_algo_search")
    }
    singles = [
        Change(f"{key}={value}", FREE if key != "enable_mem_pattern" else SLOWER, _set(options, {key: value}))
        for key, value in left.items()
    ]
    together = f"{'both' if len(left) == _PAIR else f'all {len(left)}'} of these settings"
    return singles + ([Change(together, SLOWER, _set(options, left))] if len(left) >= _PAIR else [])


def _set(options: Options, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"runtime_options": {**options.runtime_options, **more}}


def expandable(options: Options) -> list[Change]:
    """Segments that expand, where the allocator's settings say nothing of them."""
    known = str(options.runtime_options.get("alloc_conf") or "")
    if "expandable_segments" in known:
        return []
    conf = ",".join(filter(None, (known, "expandable_segments:True")))
    return [Change("expandable segments", FREE, _set(options, {"alloc_conf": conf}))]


def implementations(options: Options, kinds: Mapping[str, int], of: Sequence[str] = _FUSED) -> list[Change]:
    """PyTorch's other ways to compute the same optimizer. kinds: with their costs; of: optimizers."""
    name = options.optimizer
    if options.mode != "train" or name not in of:
        return []
    return [Change(f"{name}_{kind}", cost, {"optimizer": f"{name}_{kind}"}) for kind, cost in kinds.items()]


def channels_last(graph: Graph, options: Options) -> list[Change]:
    """The other memory format, of a program with convolutions over two dimensions."""
    convolutions = [op for op in graph.operators if op.name.startswith("aten::convolution")]
    planar = all(len(tensor.shape) < 5 for op in convolutions for tensor in op.inputs)
    offered = convolutions and planar and not options.channels_last
    return [Change("channels last", SLOWER, {"channels_last": True})] if offered else []


def precisions(options: Options) -> list[Change]:
    """Half precision, where the job has none."""
    if options.amp is not None or options.dtype not in (None, "float32"):
        return []
    return [
        Change("amp bf16", RESULTS, {"amp": "bf16"}),
        Change("amp fp16", RESULTS, {"amp": "fp16"}),
        PURE,
    ]


def accumulation(options: Options, batch: int, k: int, cost: int = SLOWER) -> Change:
    """The batch in k micro-batches."""
    changes = {"batch": batch // k, "grad_accumulation": options.grad_accumulation * k}
    return Change(f"accumulation x{k}", cost, changes)


def checkpoint(pattern: str) -> Change:
    """The modules of a pattern computed again."""
    return Change(f"checkpoint {pattern}", SLOWER, {"checkpoint": pattern})


def eight_bits(options: Options) -> list[Change]:
    """States of the optimizer in 8 bits."""
    kind = options.optimizer.partition("_")[0] if isinstance(options.optimizer, str) else ""
    if kind not in _EIGHT_BITS or str(options.optimizer).endswith("_8bit"):
        return []
    return [Change(f"{kind}_8bit", RESULTS, {"optimizer": f"{kind}_8bit"})]


def _frugal(base: Analysis, options: Options, target: Any) -> list[Change]:
    """Return changes for training only: accumulation, checkpointing, an optimizer with 8-bit or no state."""
    batch = options.batch or base.graph.batch
    changes = [accumulation(options, batch, k) for k in _ACCUMULATED if batch and batch % k == 0]
    model = None if options.checkpoint is not None else _model(target, options)
    if model is not None:
        changes += map(checkpoint, patterns(base.graph, model))
    changes += eight_bits(options)
    if options.optimizer != "sgd":
        changes.append(Change("sgd", RESULTS, {"optimizer": "sgd"}))
    return changes


def _more_gpus(options: Options, target: Any) -> list[Change]:
    """Return changes that spread the model over several GPUs, or more thinly."""
    known = None if options.parallel is None else parse(options.parallel)
    texts = []
    if options.mode == "train" and (known is None or known.kind == "ddp"):
        texts = [f"fsdp2:{_GPUS if known is None else known.size}"]
    elif known is None:
        from analyzer.capture.pytorch.module.wrapping import linear_pairs

        model = _model(target, options)
        texts = [f"tp:{_SPLIT}"] if model is not None and linear_pairs(model) else []
    cost = GPUS if known is None else SLOWER
    return [Change(str(parse(text)), cost, {"parallel": text}) for text in texts]


def _model(target: Any, options: Options) -> Any:
    return Workload(target, replace(options, batch=None)).model


def of_configuration(options: Options, target: str) -> list[Change]:
    """Return changes that a configuration's options leave open. Raises AnalyzerError."""
    recipe = recipe_of(target, options)
    changes = [*(_training(recipe, options) if recipe.mode == "train" else _running(recipe))]
    if recipe.length > 1:
        changes.append(Change(f"length {recipe.length // 2:,}", RESULTS, {"length": recipe.length // 2}))
    return [*changes, *_larger(options)]


def _training(recipe: Recipe, options: Options) -> Iterator[Change]:
    """Yield each setting of a training that may take less."""
    if not recipe.gradient_checkpointing:
        yield Change("gradient checkpointing", SLOWER, {"gradient_checkpointing": True})
    if recipe.batch % 2 == 0 and recipe.parallel is None and recipe.task != "grpo":
        yield accumulation(options, recipe.batch, 2)
    quantizes = recipe.parallel is None and recipe.load == "device-map" and recipe.task != "seq2seq"
    quantizes = quantizes and recipe.stored is None
    four_bits = {"load_in_4bit": True, "lora": options.lora or _LORA}
    if recipe.lora is None:
        yield Change("LoRA, r=16", RESULTS, {"lora": _LORA})
    if quantizes and recipe.bits is None:
        name, recomputed = "QLoRA" if recipe.lora is None else "4 bits", {"gradient_checkpointing": True}
        yield Change(name, RESULTS, four_bits)
        if not recipe.gradient_checkpointing:
            yield Change(f"{name}, checkpointing", RESULTS, {**four_bits, **recomputed})
        paged = {**four_bits, **recomputed, "optimizer": "paged_adamw_8bit"}
        yield Change(f"{name}, checkpointing, paged_adamw_8bit", RESULTS, paged)
    elif not recipe.gradient_checkpointing and recipe.optimizer != "paged_adamw_8bit":
        changes = {"gradient_checkpointing": True, "optimizer": "paged_adamw_8bit"}
        yield Change("checkpointing, paged_adamw_8bit", RESULTS, changes)
    if "8bit" not in recipe.optimizer:
        yield Change("adamw_8bit", RESULTS, {"optimizer": "adamw_8bit"})
    if "paged" not in recipe.optimizer:
        yield Change("paged_adamw_32bit", SLOWER, {"optimizer": "paged_adamw_32bit"})
    if recipe.task == "dpo" and recipe.has_reference:
        yield Change("reference computed beforehand", SLOWER, {"precompute_reference": True})
    sharded = recipe.parallel is None and quantizes and not recipe.bits and recipe.task not in TRAINERS
    if sharded and recipe.grad_accumulation == 1:
        yield Change("two GPUs (fsdp2:2)", GPUS, {"parallel": "fsdp2:2"})


def _running(recipe: Recipe) -> Iterator[Change]:
    quantizes = recipe.load == "device-map" and recipe.stored is None
    if quantizes and recipe.bits is None:
        yield Change("8 bits", RESULTS, {"load_in_8bit": True})
    if quantizes and recipe.bits != 4:
        yield Change("4 bits", RESULTS, {"load_in_4bit": True, "load_in_8bit": False})
    if recipe.mode == "generate" and recipe.cache in (None, "dynamic"):
        yield Change("cache offloaded", SLOWER, {"cache": "offloaded"})
    if recipe.mode == "generate" and recipe.prefill_chunk is None and recipe.length > _PIECE:
        yield Change(f"prompt in pieces of {_PIECE}", SLOWER, {"prefill_chunk": _PIECE})


def _larger(options: Options) -> Iterator[Change]:
    """Yield the next larger GPU, if one was named."""
    if options.device is None or options.device not in names():
        return
    here = load(str(options.device)).capacity_bytes
    above = [profile for profile in map(load, names()) if profile.capacity_bytes > _LARGER * here]
    if above:
        device = min(above, key=lambda profile: (profile.capacity_bytes, profile.name)).name
        yield Change(f"on {device}", LARGER, {"device": device})
