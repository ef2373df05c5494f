"""Recipes of TRL's trainers, as the end of a script: generated samples of one length, and the unchanged
trainer.

1. Samples are of the task's own form: `sft` tokens; `dpo` and `grpo` words, of which a tokenizer made on the
   spot makes a token each; `reward` pairs of tokens. A pair's prompt and its two answers share `--length` by
   halves.
2. Types, checkpointing and the optimizer are those of the options, not TRL's own defaults (bfloat16 under
   autocast, checkpointing on).
3. `grpo` makes `--batch` completions of one prompt, each of `--new-tokens` tokens: none ends early. Without
   `beta` TRL has no reference.
4. `dpo` without adapters has a second model for reference, unless its answers are computed beforehand
   (`--precompute-reference`).
5. `--packed` packs documents of a quarter of `--length` (`packing_strategy` "bfd"), which TRL then lays in
   one row.

Source: trl 1.16 (`trl/trainer/sft_trainer.py`, `trl/trainer/dpo_trainer.py`, `trl/trainer/reward_trainer.py`,
`trl/trainer/grpo_trainer.py` and their configs).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzer.recipes.recipe import Recipe

# The task, and how its trainer and its configuration are called.
TRAINERS = {"sft": "SFT", "dpo": "DPO", "reward": "Reward", "grpo": "GRPO"}
_DOCUMENTS = 4  # that are packed into one sequence


def imports(recipe: Recipe) -> Iterator[str]:
    """Yield the script's import lines."""
    kind = TRAINERS[recipe.task]
    yield "import tempfile"
    yield "from datasets import Dataset"
    yield "from tokenizers import Tokenizer"
    yield "from tokenizers.models import WordLevel"
    yield "from tokenizers.pre_tokenizers import Whitespace"
    yield "from transformers import PreTrainedTokenizerFast"
    yield f"from trl import {kind}Config, {kind}Trainer"


def trained(recipe: Recipe, adapter: str | None) -> Iterator[str]:
    """Yield the lines of tokenizer, samples and trainer. adapter: source of peft's configuration."""
    kind = TRAINERS[recipe.task]
    yield 'words = Tokenizer(WordLevel({"pad": 0, "end": 1, "word": 2}, unk_token="pad"))'
    yield "words.pre_tokenizer = Whitespace()"
    yield 'tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="pad", eos_token="end")'
    count = recipe.batch * recipe.grad_accumulation * (recipe.steps + 1)
    yield f"count = {count * (_DOCUMENTS if recipe.packed else 1)}"
    yield f"samples = Dataset.from_dict({_samples_source(recipe)})"
    if recipe.task == "grpo":
        yield from _rollouts(recipe)
    yield "folder = tempfile.TemporaryDirectory()"
    yield f"arguments = {kind}Config("
    for name, value in _settings(recipe):
        yield f"    {name}={value},"
    yield ")"
    settings = {
        "model": "model",
        "ref_model": "reference" if recipe.has_reference else None,
        "reward_funcs": "reward" if recipe.task == "grpo" else None,
        "args": "arguments",
        "train_dataset": "samples",
        "processing_class": "tokenizer",
        "peft_config": adapter,
    }
    trainer = "Whole" if recipe.task == "grpo" else f"{kind}Trainer"
    yield f"trainer = {trainer}("
    for name, what in settings.items():
        if what is not None:
            yield f"    {name}={what},"
    yield ")"
    yield "trainer.train()"


def _samples_source(recipe: Recipe) -> str:
    """Return the expression for `count` samples with the columns that the task's trainer reads."""
    half = recipe.length // 2
    if recipe.task == "sft":
        length = max(recipe.length // _DOCUMENTS, 1) if recipe.packed else recipe.length
        return f'{{"input_ids": [[2] * {length}] * count}}'
    if recipe.task == "reward":
        return (
            f'{{"chosen_ids": [[2] * {recipe.length}] * count, "rejected_ids": [[2] * {recipe.length}] *'
            " count}"
        )
    if recipe.task == "grpo":
        return f'{{"prompt": ["word " * {recipe.length}] * count}}'
    answer = f'["word " * {recipe.length - half - 1}] * count'  # TRL adds the token that ends it
    return f'{{"prompt": ["word " * {half}] * count, "chosen": {answer}, "rejected": {answer}}}'


def _rollouts(recipe: Recipe) -> Iterator[str]:
    """Yield the lines of a reward, and of a trainer whose completions all have full length."""
    yield "def reward(completions, **_):"
    yield "    return [float(len(completion)) for completion in completions]"
    yield "class Whole(GRPOTrainer):"
    yield "    def _generate_single_turn(self, prompt_ids, *args, **kwargs):"
    yield "        super()._generate_single_turn(prompt_ids, *args, **kwargs)"
    yield f"        return [[2] * {recipe.new_tokens} for _ in prompt_ids], None"


def _settings(recipe: Recipe) -> Iterator[tuple[str, object]]:
    """Yield the trainer's settings: (name, source code of the value)."""
    yield "output_dir", "folder.name"
    yield "per_device_train_batch_size", recipe.batch
    yield "gradient_accumulation_steps", recipe.grad_accumulation
    yield "max_steps", recipe.steps
    yield "optim", repr(recipe.optimizer)
    yield "bf16", recipe.amp == "bf16"
    yield "fp16", recipe.amp == "fp16"
    yield "gradient_checkpointing", recipe.gradient_checkpointing
    if recipe.task == "grpo":
        yield "num_generations", recipe.batch
        yield "max_completion_length", recipe.new_tokens
        yield "generation_kwargs", {"min_new_tokens": recipe.new_tokens}
    else:
        yield "max_length", recipe.length
    if recipe.packed:
        yield "packing", True
    if recipe.precompute_reference:
        yield "precompute_ref_log_probs", True
    yield "report_to", repr("none")
    yield "save_strategy", repr("no")
    yield "disable_tqdm", True
