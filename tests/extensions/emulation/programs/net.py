"""A model, its batch, and a line that reads a value of the device."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1000, 3000), nn.Linear(3000, 10)

    def forward(self, x):
        return self.last(self.first(x).relu())


class Asking(Net):
    def forward(self, x):
        kept = int(torch.empty_like(x).sum())  # which nobody knows
        return super().forward(x[:kept])


def make_batch(batch):
    return torch.randn(batch, 1000), torch.randint(0, 10, (batch,))
