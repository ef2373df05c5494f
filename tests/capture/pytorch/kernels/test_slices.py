"""Slices of whole dimensions, as PyTorch's own older and newer releases run them.

Expected is what a recording mode saw of torch 2.6.0 and 2.8.0 (the same), and of 2.9.1 and 2.13.0: which slices a tuple runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from analyzer.capture.pytorch.kernels.slices import sliced_whole
from analyzer.releases import Release
from tests.capture.pytorch.captures import H200, Model, inference, names, step

END = 9223372036854775807


class Slices(TorchDispatchMode):
    """The dimension and the end of every slice."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.slice.Tensor:
            self.seen.append((args[1], args[3]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("index", "older"),
    [
        ((slice(None), 0), [(0, END)]),
        ((slice(None), slice(None), 1), [(0, END), (1, END)]),
        ((..., 0), []),
        ((..., slice(None)), [(2, END)]),
        ((slice(None), slice(3)), [(0, END), (1, 3)]),
        ((slice(0, 4), 0), []),  # its end is the dimension's size
        ((slice(0, 9), 0), [(0, 9)]),
        ((slice(None), None, slice(0, 5)), [(0, END)]),
        ((None, slice(None), 0), [(1, END)]),
        ((slice(-4, None), 0), [(0, END)]),
        ((slice(None), [0, 1]), [(0, END)]),
        ((torch.ones(4, 5, dtype=torch.bool), slice(None)), [(2, END)]),
    ],
)
def test_the_slices_that_torch_2_8_runs(index: tuple[Any, ...], older: list[tuple[int, int]]) -> None:
    tensor = torch.arange(120.0).view(4, 5, 6)
    with Slices() as slices:
        found = tensor[sliced_whole(tensor, index)]
    assert slices.seen == older
    assert torch.equal(found, tensor[index])


@pytest.mark.parametrize(("release", "slices"), [((2, 8), 1), ((2, 9), 0)])
def test_its_gradient_is_a_tensor_of_its_own(release: Release, slices: int) -> None:
    device = replace(H200, releases={**H200.releases, "torch": release})
    model = Model(lambda self, x: self.linear(x)[:, 0], linear=nn.Linear(64, 64))
    assert names(step(model, torch.randn(2, 4, 64), device=device)).count("slice_backward") == slices


@pytest.mark.parametrize(("release", "slices"), [((2, 8), 1), ((2, 9), 0)])
def test_assigned_to_a_slice(release: Release, slices: int) -> None:
    device = replace(H200, releases={**H200.releases, "torch": release})

    def assign(_: Any, x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        x[:] = 2.0
        return x

    graph = inference(Model(assign), torch.randn(2, 4), device=device)
    assert names(graph, views=True).count("slice.Tensor") == slices
