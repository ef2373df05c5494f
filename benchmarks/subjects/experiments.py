"""Documents 000, 001 and 004 as programs: each takes a watcher, marks its events, and runs on a GPU or under capture.

Under capture the watcher is the recorder (`analyzer.capture`), on a GPU the observer (`analyzer_verify`): the same
lines give the prediction and the measurement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from analyzer.graph import Category, Phase

if TYPE_CHECKING:
    from analyzer.capture.pytorch.module.step import Watcher

DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.int8,
    torch.uint16, torch.bool,
)  # fmt: skip
SIZES = tuple(range(1, 1051))


def variable(watcher: Watcher) -> None:
    """000: a tensor of 1 GiB is copied to the GPU and deleted."""
    on_host = torch.zeros(2**30 // 4)
    watcher.mark("Initial")
    on_gpu = on_host.to("cuda")
    watcher.mark("Define")
    del on_gpu
    watcher.mark("Delete")


def variable_nvml(watcher: Watcher) -> list[tuple[str, int, int, int]]:
    """000 on a GPU: (event, allocated, reserved, NVML's bytes for the process), empty_cache too."""
    from analyzer_verify.runs import machine

    rows = []

    def note(event: str) -> None:
        torch.cuda.synchronize()
        rows.append(
            (event, torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), machine.process_bytes() or 0)
        )
        watcher.mark(event)

    on_host = torch.zeros(2**30 // 4)
    note("Initial")
    on_gpu = on_host.to("cuda")
    note("Define")
    del on_gpu
    note("Delete")
    torch.cuda.empty_cache()
    note("Release")
    return rows


def reservation(watcher: Watcher) -> None:
    """001: 1,024 elements are made and deleted."""
    watcher.mark("base")
    x = torch.randn((1024,), dtype=torch.float32, device="cuda")
    watcher.mark("allocation")
    del x
    watcher.mark("cleanup")


def reservation_released(watcher: Watcher) -> None:
    """001 on a GPU: the same, then empty_cache."""
    reservation(watcher)
    torch.cuda.empty_cache()
    watcher.mark("empty_cache")


def dtypes(watcher: Watcher) -> None:
    """001: 1,024 elements of each type."""
    for dtype in DTYPES:
        x = torch.ones((1024,), dtype=dtype, device="cuda")
        watcher.mark(str(dtype)[6:])
        del x


def sizes(watcher: Watcher) -> None:
    """001: float32 tensors of 1 to 1,050 elements."""
    for size in SIZES:
        x = torch.randn((size,), dtype=torch.float32, device="cuda")
        watcher.mark(str(size))
        del x


def linear(watcher: Watcher) -> None:
    """001: one linear layer, forward and backward."""
    model = nn.Linear(256, 250, device="cuda", dtype=torch.float32)
    watcher.mark("model")
    x = torch.randn((1, 256), dtype=torch.float32, device="cuda")
    watcher.mark("input")
    watcher.phase = Phase.FORWARD
    y = model(x)
    watcher.mark("forward")
    watcher.phase = Phase.BACKWARD
    y.sum().backward()
    watcher.mark("backward")


def _blocks(watcher: Watcher, inference: bool) -> None:
    block = nn.Sequential(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 200), nn.Sigmoid()).to("cuda")
    watcher.mark("model")
    x = torch.randn((5, 200), device="cuda")
    watcher.phase = Phase.FORWARD
    with torch.inference_mode(inference):
        y = block(x)
    watcher.mark("forward")
    if not inference:
        watcher.phase = Phase.BACKWARD
        y.sum().backward()
        watcher.mark("backward")


def blocks_inference(watcher: Watcher) -> None:
    """001: Linear, ReLU, Linear, Sigmoid without gradients."""
    _blocks(watcher, inference=True)


def blocks_training(watcher: Watcher) -> None:
    """001: the same with gradients."""
    _blocks(watcher, inference=False)


def normalisation(watcher: Watcher) -> None:
    """001: a normalisation written out keeps an intermediate."""
    watcher.phase = Phase.FORWARD
    x = torch.rand((10,), device="cuda")
    w = torch.rand((10,), requires_grad=True, device="cuda")
    y = (x - x.mean()) / (x.std() + 1e-6) * w
    watcher.mark("forward")
    del y


def _optimizer(watcher: Watcher, kind: type[torch.optim.Optimizer]) -> None:
    watcher.mark("baseline")
    model = nn.Linear(256, 250, device="cuda", dtype=torch.float32)
    for name, parameter in model.named_parameters():
        watcher.label(parameter, name, Category.PARAMETER)
    watcher.mark("model_allocation")
    optimizer = kind(model.parameters(), lr=0.001)  # type: ignore[call-arg]
    watcher.mark("optimizer_init")
    x = torch.randn((100, 256), dtype=torch.float32, device="cuda")
    watcher.label(x, "x", Category.INPUT)
    watcher.mark("input_allocation")
    for n in range(1, 5):
        watcher.phase = Phase.ZERO_GRAD
        optimizer.zero_grad()
        watcher.mark(f"optim_zero_grad_{n}")
        watcher.phase = Phase.FORWARD
        y = model(x)
        watcher.mark(f"forward_{n}")
        # `y.sum().backward()` in the document: the sum is dropped after the backward pass here too.
        watcher.phase = Phase.LOSS
        total = y.sum()
        watcher.phase = Phase.BACKWARD
        total.backward()
        del total
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            watcher.label(parameter.grad, f"{name}.grad", Category.GRADIENT)
        watcher.mark(f"backward_{n}")
        watcher.phase = Phase.OPTIMIZER
        optimizer.step()
        for state in optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.device.type == "cuda":
                    watcher.label(value, key, Category.OPTIMIZER_STATE)
        del y
        watcher.mark(f"optim_step_{n}")


def sgd(watcher: Watcher) -> None:
    """001: four steps of SGD."""
    _optimizer(watcher, torch.optim.SGD)


def adam(watcher: Watcher) -> None:
    """001: four steps of Adam."""
    _optimizer(watcher, torch.optim.Adam)


BATCHES = tuple(range(20_000, 200_001, 20_000))


def batches_nvml(watcher: Watcher) -> list[tuple[int, int, int]]:
    """004 on a GPU: (batch, NVML's bytes for the process, reserved) after a step of SGD, cache emptied in between."""
    from analyzer_verify.runs import machine

    rows = []
    for batch in BATCHES:
        model = nn.Linear(784, 10).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        inputs, labels = torch.randn(batch, 784).to("cuda"), torch.zeros(batch, dtype=torch.int64).to("cuda")
        optimizer.zero_grad()
        output = model(inputs)
        loss = functional.cross_entropy(output, labels)
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        rows.append((batch, machine.process_bytes() or 0, torch.cuda.memory_reserved()))
        watcher.mark(str(batch))
        del model, optimizer, inputs, labels, output, loss
        torch.cuda.empty_cache()
    return rows
