"""What the tests of the PyTorch capture share: a step captured in one line, and short ways to look at its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from analyzer.capture.pytorch.capture import capture_pytorch
from analyzer.capture.pytorch.environment import cuda_environment, watching
from analyzer.devices import load
from analyzer.graph import Birth, Death, Graph, Mark, Operator, Phase, Run, Storage

H200 = load("h200")
VIEWS = {
    "view", "_unsafe_view", "t", "transpose.int", "detach", "expand", "unsqueeze", "squeeze.dim", "slice.Tensor",
    "select.int", "permute", "as_strided", "split.Tensor", "_reshape_alias", "alias", "unbind.int",
}  # fmt: skip


def sgd(parameters: Any) -> torch.optim.Optimizer:
    """The plainest optimizer: no state."""
    return torch.optim.SGD(parameters, lr=0.1)


def total(output: Any, *_: Any) -> Any:
    """A loss for whatever comes out."""
    return output.float().sum()


class Model(nn.Module):
    """A model whose forward pass is the function given; `parts` become its attributes."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any) -> Any:
        """`function(model, *args)`."""
        return self.function(self, *args)


def step(module: nn.Module, *inputs: torch.Tensor, **options: Any) -> Graph:
    """One captured training iteration; SGD and the sum as the loss unless told otherwise."""
    options = {"train": True, "loss": total, "optimizer": sgd, "steps": 1, "device": H200, **options}
    return capture_pytorch(module, inputs, **options).graph


def inference(module: nn.Module, *inputs: torch.Tensor, **options: Any) -> Graph:
    """One captured inference."""
    return capture_pytorch(module, inputs, **{"steps": 1, "device": H200, **options}).graph


def traced(function: Callable[[], Any], device: Any = H200, phase: Phase = Phase.FORWARD) -> Graph:
    """The graph of a function that makes its own tensors on "cuda"; its result lives to the end."""
    with cuda_environment(device) as recorder:
        with watching(recorder):
            recorder.phase = phase
            result = function()
        graph = recorder.finish(None)
    del result
    return graph


def short(operator: Operator) -> str:
    """The operator's name without namespace and default overload."""
    return operator.name.removeprefix("aten::").removesuffix(".default")


def names(graph: Graph, phase: str | None = None, views: bool = False) -> list[str]:
    """Short names of the operators, of one phase or all, without views unless asked for."""
    found = map(short, operators(graph, phase))
    return [name for name in found if views or name not in VIEWS]


def operators(graph: Graph, phase: str | None = None) -> list[Operator]:
    """The operators of one phase, or all."""
    return [o for o in graph.operators if phase is None or o.phase.value == phase]


def the(graph: Graph, name: str, phase: str | None = None) -> Operator:
    """The only operator of that short name."""
    (found,) = (
        o for o in operators(graph, phase) if o.name.removeprefix("aten::").removesuffix(".default") == name
    )
    return found


def storage(graph: Graph, name: str) -> Storage:
    """The only storage of that name on the device."""
    (found,) = (s for s in graph.storages if s.name == name and s.on_device)
    return found


def deaths(graph: Graph) -> dict[int, str]:
    """Storage → the operator (views do not count) or mark after which it died."""
    last, found = "", {}
    for moment in graph.program:
        if isinstance(moment, Run):
            name = short(graph.operators[moment.operator])
            last = last if name in VIEWS else name
        elif isinstance(moment, Mark):
            last = moment.name
        elif isinstance(moment, Death):
            found[moment.storage] = last
    return found


def live_bytes(graph: Graph) -> dict[str, int]:
    """Requested bytes alive on the device when each mark is reached."""
    alive: set[int] = set()
    found = {}
    for moment in graph.program:
        if isinstance(moment, Birth):
            alive.add(moment.storage)
        elif isinstance(moment, Death):
            alive.discard(moment.storage)
        elif isinstance(moment, Run):
            alive.update(o.storage for o in graph.operators[moment.operator].outputs if o is not None)
        else:
            found[moment.name] = sum(graph.storages[i].nbytes for i in alive if graph.storages[i].on_device)
    return found


def saved(graph: Graph) -> Iterator[Storage]:
    """Storages autograd keeps for the backward pass."""
    return (s for s in graph.storages if s.saved)
