"""Document 003: operators that can run in place, reshape first, on tensors of 64 MiB a sample."""

import torch
from torch import Tensor, nn


class Reshape(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(x)
        x = x.view(-1, 2**20)
        return torch.tanh(torch.relu(x))


def make_model() -> nn.Module:
    return Reshape()


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[()]]:
    return (torch.empty(batch, 2**24),), ()
