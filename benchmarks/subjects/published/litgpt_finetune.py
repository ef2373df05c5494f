"""LitGPT's own recipe on its longest sample: CHECKOUT (lora|generate) MODEL LENGTH MICROBATCH QUANTIZE.

The recipe trains as it is, its first iteration, which it gives the longest sample of the data; "generate" makes 50 tokens. What is not of
the GPU is left out: the checkpoint's file, the tokenizer, the data. It prints LitGPT's own figure ("Memory used"). QUANTIZE: none,
bnb.nf4 or bnb.nf4-dq.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path

import torch

checkout, name, model, length, micro, quantize = sys.argv[1:]
sys.path.insert(0, checkout)
recipe = import_module("generate.base" if name == "generate" else f"finetune.{name}")


class Tokenizer:
    """A prompt of 40 tokens, as the recipe's own has or so."""

    def __init__(self, folder):
        pass

    def encode(self, _, device):
        return torch.randint(0, 1000, (40,), dtype=torch.int, device=device)

    def decode(self, _):
        return ""


def nothing(*_, **__):
    """Instead of what reads or writes a checkpoint."""


quantized = None if quantize == "none" else quantize
if quantized:
    # bitsandbytes 0.41.1, with which the table was measured, kept the input of every product with a weight of 4 bits until its backward
    # pass (`MatMul4Bit.forward`: ctx.tensors = (A, B)); later releases keep the weight alone.
    product = import_module("bitsandbytes.autograd._functions").MatMul4Bit
    multiplied = product.forward

    def forward(ctx, a, b, *more):
        out = multiplied(ctx, a, b, *more)
        if ctx.tensors[1] is not None:
            ctx.tensors = (a, ctx.tensors[1])
        return out

    product.forward = staticmethod(forward)
recipe.Tokenizer = Tokenizer
recipe.check_valid_checkpoint_dir = recipe.load_checkpoint = nothing
data = Path(tempfile.mkdtemp())
if name == "generate":
    (data / model).mkdir()
    config = recipe.Config.from_name(model)
    recipe.Config.from_json = staticmethod(lambda _: config)
    recipe.main(checkpoint_dir=data / model, quantize=quantized, precision="bf16-true")
    sys.exit()
sample = torch.zeros(int(length), dtype=torch.int)
for part in ("train", "test"):
    torch.save([{"input_ids": sample, "labels": sample}], data / f"{part}.pt")
recipe.save_lora_checkpoint = nothing
recipe.micro_batch_size = int(micro)
recipe.gradient_accumulation_iters = recipe.batch_size // recipe.micro_batch_size
recipe.max_iters = recipe.eval_iters = 1
recipe.eval_max_new_tokens = 2  # the cache they are written to is as long as the longest sample anyway
recipe.hparams, recipe.devices, recipe.warmup_steps = {}, 1, 100
recipe.setup(data, Path(model), data / "out", "bf16-true", quantized)
