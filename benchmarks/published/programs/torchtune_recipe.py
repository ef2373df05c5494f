"""A recipe of torchtune's own, as `tune run` starts it: CHECKOUT RECIPE CONFIG BATCH LENGTH PACKED [KEY=VALUE ...].

The recipe runs as it is, two steps. What is not of the GPU is left out: the checkpoint's file, the tokenizer, the data, instead of which every
batch has BATCH sequences of LENGTH tokens, or is packed from samples of PACKED tokens (0: padded, not packed). It prints the most that
torchtune itself logs of a step ("peak_memory_active" and its like, GiB).
"""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch

checkout, name, config_name, batch, length, packed = sys.argv[1:7]
sys.path.insert(0, checkout)
tune_config = import_module("torchtune.config")
training = import_module("torchtune.training" if (Path(checkout) / "torchtune/training").is_dir() else "torchtune.utils")
omegaconf = import_module("omegaconf")

spec = spec_from_file_location(name, Path(checkout) / "recipes" / f"{name}.py")
recipe = module_from_spec(spec)
spec.loader.exec_module(recipe)
cfg = omegaconf.OmegaConf.merge(
    omegaconf.OmegaConf.load(Path(checkout) / "recipes" / "configs" / f"{config_name}.yaml"),
    omegaconf.OmegaConf.from_dotlist([f"batch_size={batch}", "epochs=1", "max_steps_per_epoch=2", *sys.argv[7:]]),
)


def sample(packed_of):
    """One sample, on the CPU, as torchtune's data sets give it: alone, or packed of samples of so many tokens."""
    tokens = torch.arange(int(length)) % 1000
    if not packed_of:
        return {"tokens": tokens.tolist(), "labels": tokens.tolist()}
    lengths = [packed_of] * (int(length) // packed_of)
    lengths += [int(length) - sum(lengths)] if sum(lengths) < int(length) else []
    return {"tokens": tokens, "labels": tokens, "input_pos": torch.cat([torch.arange(n) for n in lengths]), "seq_lens": torch.tensor(lengths)}


class Batches(list):
    """What stands for the loader."""

    sampler = None


def setup_data(self, *_, **__):
    """The sampler and the loader, from as many batches as there are steps."""
    collate = import_module("torchtune.data")
    samples = [sample(int(packed)) for _ in range(int(batch))]
    if int(packed):
        made = collate.padded_collate_packed(samples)
    else:
        made = collate.padded_collate_sft(samples, padding_idx=0, ignore_idx=-100)
    steps = 2 * int(cfg.gradient_accumulation_steps)
    copies = [{key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in made.items()} for _ in range(steps)]

    class Sampler:
        def set_epoch(self, _):
            pass

    return Sampler(), Batches(copies)


class Logger:
    """Prints what is logged of memory."""

    def log_config(self, _):
        pass

    def log_dict(self, payload, step):
        print("LOGGED", step, *(f"{key}={payload[key]:.4f}" for key in sorted(payload) if "memory" in key), flush=True)

    def log(self, *_):
        pass

    def close(self):
        pass


class Nothing(dict):
    """A checkpoint nobody reads."""


made = tune_config.instantiate
replaced = {"metric_logger": Logger, "tokenizer": type("Tokenizer", (), {"pad_id": 0})}


def instantiate(part, *arguments, **named):
    """As torchtune's, apart from the logger and the tokenizer."""
    for key, stand_in in replaced.items():
        if part is cfg.get(key) or part == cfg.get(key):
            return stand_in()
    return made(part, *arguments, **named)


recipe.config.instantiate = instantiate
recipe_class = next(
    value for key, value in vars(recipe).items() if isinstance(value, type) and key.endswith(("RecipeSingleDevice", "RecipeDistributed"))
    and value.__module__ == name
)
recipe_class.load_checkpoint = lambda self, *_, **__: {"model": {}}
recipe_class._setup_data = setup_data
recipe_class.save_checkpoint = lambda self, *_, **__: None
torch.nn.Module.load_state_dict = lambda self, *_, **__: ([], [])
for check in ("validate_missing_and_unexpected_for_lora",):
    if hasattr(recipe, check):
        setattr(recipe, check, lambda **__: None)
run = recipe_class(cfg=cfg)
run.setup(cfg=cfg)
run.train()
run.cleanup()
