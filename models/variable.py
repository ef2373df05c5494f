"""Document 000, first row: one variable of 2^28 float32 elements, 1 GiB.

The document copies a tensor to the GPU and looks at the counters; as a model, it is a parameter of which the
forward pass returns a view of one element, so inference needs exactly the variable. There is no input: the
batch changes nothing.
"""

import torch
from torch import Tensor, nn

ELEMENT_COUNT = 2**30 // 4


class Variable(nn.Module):
    """Holds `element_count` float32 elements and returns the first, in place."""

    def __init__(self, element_count: int = ELEMENT_COUNT) -> None:
        super().__init__()
        self.variable = nn.Parameter(torch.zeros(element_count))

    def forward(self) -> Tensor:
        return self.variable[:1]


def make_model(element_count: int = ELEMENT_COUNT) -> nn.Module:
    return Variable(element_count)


def make_batch(batch: int) -> tuple[tuple[()], tuple[()]]:  # noqa: ARG001 - the variable does not depend on it
    return (), ()


def loss(output: Tensor) -> Tensor:
    return output.sum()
