"""The programs of `benchmarks/subjects/paddlepaddle.py`, as PyTorch writes them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.capture.pytorch.captures import Model

SIDE = 512


def chain(_: Model, x: Tensor) -> Tensor:
    for _step in range(6):
        x = torch.relu(x) @ x
    return x.sum()


def unary(_: Model, x: Tensor) -> Tensor:
    x = x @ x
    for _step in range(4):
        x = torch.tanh(x)
    return x.sum()


def reshape(_: Model, x: Tensor) -> Tensor:
    x = torch.tanh((x @ x).view(SIDE * SIDE))
    return torch.tanh(x.view(SIDE // 2, SIDE * 2)).sum()


def transpose(_: Model, x: Tensor) -> Tensor:
    x = torch.tanh((x @ x).t())
    return torch.tanh(x.t()).sum()


def residual(_: Model, x: Tensor) -> Tensor:
    a = x @ x
    c = a + torch.tanh(a)
    return (c + a).sum()


def layers(model: Model, x: Tensor) -> Tensor:
    return model.second(model.first(x)).sum()


def perceptron(model: Model, x: Tensor) -> Tensor:
    return model.second(torch.relu(model.first(x))).sum()


def shared(model: Model, x: Tensor) -> Tensor:
    h = torch.tanh(model.first(x))
    return (model.second(h) + torch.sigmoid(h) + torch.tanh(h)).sum()


def linears(function: Callable[[Model, Tensor], Tensor], bias: bool) -> Model:
    return Model(function, first=nn.Linear(SIDE, SIDE, bias=bias), second=nn.Linear(SIDE, SIDE, bias=bias))


# name -> (model, optimizer or "").
TWINS: dict[str, tuple[Callable[[], Model], str]] = {
    "chain": (lambda: Model(chain), ""),
    "unary": (lambda: Model(unary), ""),
    "reshape": (lambda: Model(reshape), ""),
    "transpose": (lambda: Model(transpose), ""),
    "residual": (lambda: Model(residual), ""),
    "biased": (lambda: linears(layers, True), ""),
    "perceptron_sgd": (lambda: linears(perceptron, False), "sgd"),
    "perceptron_adam": (lambda: linears(perceptron, False), "adam"),
    "shared_sgd": (lambda: linears(shared, False), "sgd"),
}
