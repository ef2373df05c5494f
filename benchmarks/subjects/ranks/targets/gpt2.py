"""transformers' GPT-2 from its configuration, of 8 blocks, on sequences of 256 tokens."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def make_model() -> torch.nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_layer=8, n_embd=768, n_head=12, n_positions=512, use_cache=False))


def make_batch(batch: int) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    tokens = torch.randint(0, 50_257, (batch, 256))
    return (tokens,), (tokens,)
