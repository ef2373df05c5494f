"""A recipe of torchtune's own, as `tune run` starts it: CHECKOUT RECIPE CONFIG BATCH LENGTH PACKED [KEY=VALUE ...].

The recipe runs as it is, two steps. What is not of the GPU is left out: the checkpoint's file, the tokenizer, the data, instead of which every
batch has BATCH sequences of LENGTH tokens, or is packed from samples of PACKED tokens (0: padded, not packed). Wherever torchtune takes its
peaks and begins anew (after the model is made, after a step that is logged), and at the end, they are printed:
"PEAK active allocated reserved", in bytes.
"""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import torch

checkout, name, config_name, batch, length, packed = sys.argv[1:7]
sys.path.insert(0, checkout)
# Until 0.2 torchtune imports these from torchao, which has them no more; no recipe here uses them.
for part, gone in (
    (
        "quant_api",
        {"apply_weight_only_int8_quant": object, "Int4WeightOnlyGPTQQuantizer": object, "Quantizer": object},
    ),
    ("utils", {"TORCH_VERSION_AFTER_2_3": True}),
):
    of_torchao = import_module(f"torchao.quantization.{part}")
    vars(of_torchao).update({key: value for key, value in gone.items() if not hasattr(of_torchao, key)})
tune_config = import_module("torchtune.config")
omegaconf = import_module("omegaconf")
spec = spec_from_file_location(name, Path(checkout) / "recipes" / f"{name}.py")
recipe = module_from_spec(spec)
spec.loader.exec_module(recipe)
said = [
    f"batch_size={batch}",
    "epochs=1",
    "max_steps_per_epoch=2",
    "log_every_n_steps=1",
    "log_peak_memory_stats=True",
]
cfg = omegaconf.OmegaConf.merge(
    omegaconf.OmegaConf.load(Path(checkout) / "recipes" / "configs" / f"{config_name}.yaml"),
    omegaconf.OmegaConf.from_dotlist([*said, *sys.argv[7:]]),
)


def collated():
    """A batch on the CPU, as torchtune's own loader gives it."""
    tokens = torch.arange(int(length)) % 1000
    if not hasattr(import_module("torchtune"), "training"):  # until 0.2 a batch was a pair
        both = tokens.expand(int(batch), -1)
        return both.clone(), both.clone()
    data = import_module("torchtune.data")
    if not int(packed):
        one = {"tokens": tokens.tolist(), "labels": tokens.tolist()}
        return data.padded_collate_sft([one] * int(batch), padding_idx=0, ignore_idx=-100)
    lengths = [min(int(packed), int(length) - at) for at in range(0, int(length), int(packed))]
    one = {
        "tokens": tokens,
        "labels": tokens,
        "input_pos": torch.cat([torch.arange(n) for n in lengths]),
        "seq_lens": torch.tensor(lengths),
    }
    return data.padded_collate_packed([one] * int(batch))


class Sampler:
    """Of the same batch again and again."""

    def set_epoch(self, _):
        pass


def setup_data(*_, **__):
    """The sampler and the loader: as many batches as two steps take."""
    return Sampler(), [collated() for _ in range(2 * int(cfg.gradient_accumulation_steps))]


class Nothing:
    """Stands for the logger and the tokenizer."""

    pad_id = 0

    def __getattr__(self, _):
        return lambda *arguments, **named: None


def peaks():
    """What PyTorch has seen since it was last asked to begin anew."""
    seen = torch.cuda.memory_stats()
    kinds = ("active_bytes", "allocated_bytes", "reserved_bytes")
    print("\nPEAK", *(seen[f"{kind}.all.peak"] for kind in kinds), flush=True)


made, begin_anew = tune_config.instantiate, torch.cuda.reset_peak_memory_stats


def instantiate(part, *arguments, **named):
    """As torchtune's, apart from the logger and the tokenizer."""
    return Nothing() if part in (cfg.metric_logger, cfg.tokenizer) else made(part, *arguments, **named)


def begun_anew(*arguments):
    """After what was seen is printed."""
    peaks()
    begin_anew(*arguments)


def nothing(*_, **__):
    """Instead of what reads, writes or compares a checkpoint."""


torch.cuda.reset_peak_memory_stats = begun_anew
torch.nn.Module.load_state_dict = lambda self, *_, **__: ([], [])
recipe.config.instantiate = instantiate
recipe.validate_missing_and_unexpected_for_lora = recipe.validate_state_dict_for_lora = nothing
(recipe_class,) = (
    value
    for key, value in vars(recipe).items()
    if "Recipe" in key and getattr(value, "__module__", "") == name
)
recipe_class.load_checkpoint = lambda self, *_, **__: {"model": {}}
recipe_class._setup_data, recipe_class.save_checkpoint = setup_data, nothing
if name.endswith("_distributed"):
    torch.distributed.init_process_group("cuda:nccl,cpu:gloo")
run = recipe_class(cfg=cfg)
run.setup(cfg=cfg)
run.train()
peaks()
