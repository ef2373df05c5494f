"""Document 001: one linear layer, 256 to 250, with the sum of its output as the loss.

Batch 1 gives the document's walk through the allocator (model 257,024 B, with input 258,048 B, one cuBLAS
workspace in the forward pass and a second in the backward pass); batch 100 its optimizer timelines.
"""

import torch
from torch import Tensor, nn


def make_model() -> nn.Module:
    return nn.Linear(256, 250)


def make_batch(batch: int) -> tuple[tuple[Tensor], tuple[()]]:
    return (torch.randn(batch, 256),), ()


def loss(output: Tensor) -> Tensor:
    return output.sum()
