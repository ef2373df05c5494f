"""The step that is captured: what a training or inference script does, in the order it does it.

1. The model moves to the device; the optimizer is made.
2. Each iteration, for each accumulated micro-batch: the batch moves to the device (inputs in one list, then
   targets), gradients are zeroed before the first micro-batch, forward, loss, backward; the optimizer steps
   after the last one. A loader delivers contiguous batches, before the first iteration: channels-last is made
   on the device.
3. Nothing is deleted between iterations: the previous `out`, `loss`, inputs and targets live until they are
   reassigned.
4. AMP: forward and loss under `torch.autocast("cuda")`; float16 training scales the loss with a `GradScaler`.
5. Inference runs under `torch.no_grad()`.

These are the semantics of the recorded measurements (`tests/data`), so that predicted and measured are one
program. Local variables are what keeps tensors alive, so their names and reassignments matter here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from analyzer.capture.pytorch.kernels.layouts import channels_last_like
from analyzer.capture.pytorch.module.modules import named_tensors
from analyzer.graph import Category, Phase

AMP_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Watcher(Protocol):
    """Receives the phases and events of a step: a capture's recorder, or a real run's observer."""

    phase: Phase
    step: int

    def mark(self, name: str) -> None:
        """End the named event."""

    def label(self, tensor: torch.Tensor, name: str, category: Category) -> None:
        """Give a tensor its name and category."""


class OneGpu:
    """A model on one GPU; `world/wrapping.py` spreads it over several. model: what is called."""

    def __init__(self, model: torch.nn.Module) -> None:
        """Move the model to the GPU."""
        self.model = model.to("cuda")

    def optimizer(self, make: Callable[..., torch.optim.Optimizer]) -> torch.optim.Optimizer:
        """Return the optimizer of its parameters."""
        return make(self.model.parameters())

    def micro_batch(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Return the context a micro-batch runs under. last: the step's gradients are complete after it."""
        del last
        return contextlib.nullcontext()


@dataclass(frozen=True, slots=True)
class Step:
    """A step to run: `model`, `inputs` and `targets` are meta tensors in host memory. place: moves the model
    to the GPU. call: calls the model, where the inputs are not simply its arguments."""

    model: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    targets: tuple[torch.Tensor, ...]
    loss: Callable[..., Any] | None
    optimizer: Callable[..., torch.optim.Optimizer] | None
    train: bool
    amp: str | None
    grad_accumulation: int
    iterations: int
    place: Callable[[torch.nn.Module], OneGpu] = OneGpu
    call: Callable[[torch.nn.Module, list[torch.Tensor]], Any] | None = None


def run(step: Step, recorder: Watcher) -> None:
    """Run `step` while `recorder` watches."""
    amp = step.amp
    recorder.mark("start")
    batch = delivered(step.inputs)
    placed = step.place(step.model)
    model = placed.model
    _label_model(step.model, recorder)
    recorder.mark("model")
    with contextlib.suppress(NotImplementedError):  # a program is exported in one mode, and stays in it
        model.train(step.train)
    optimizer = placed.optimizer(step.optimizer) if step.train and step.optimizer else None
    scaler = torch.amp.GradScaler("cuda") if amp == "fp16" and step.train else None

    def context() -> Any:
        return torch.autocast("cuda", dtype=AMP_TYPES[amp]) if amp else contextlib.nullcontext()

    for iteration in range(step.iterations):
        recorder.step = iteration
        for micro in range(step.grad_accumulation):
            recorder.phase = Phase.INPUT
            xs = [x.to("cuda") for x in batch]
            xs = [
                x.contiguous(memory_format=torch.channels_last) if channels_last_like(s) else x
                for x, s in zip(xs, step.inputs, strict=True)
            ]
            ys = [y.to("cuda") for y in step.targets]
            _label_batch(xs, ys, recorder)
            recorder.mark(f"{iteration}.input")
            if not step.train:
                recorder.phase = Phase.FORWARD
                with torch.no_grad(), context():
                    out = model(*xs) if step.call is None else step.call(model, xs)
                recorder.mark(f"{iteration}.forward")
                continue
            if micro == 0 and optimizer is not None:
                recorder.phase = Phase.ZERO_GRAD
                optimizer.zero_grad()
            recorder.mark(f"{iteration}.zero_grad")
            last = micro == step.grad_accumulation - 1
            with placed.micro_batch(last):
                with context():
                    recorder.phase = Phase.FORWARD
                    out = model(*xs) if step.call is None else step.call(model, xs)
                    if isinstance(out, tuple):
                        out = out[0]
                    recorder.mark(f"{iteration}.forward")
                    recorder.phase = Phase.LOSS
                    assert step.loss is not None
                    loss = step.loss(out, *ys)
                recorder.mark(f"{iteration}.loss")
                recorder.phase = Phase.BACKWARD
                if scaler is not None:
                    scaler.scale(loss).backward()
                else:
                    loss.backward()
            label_gradients(step.model, recorder)
            recorder.mark(f"{iteration}.backward")
            if last and optimizer is not None:
                recorder.phase = Phase.OPTIMIZER
                if scaler is not None:
                    scaler.step(optimizer)
                    scaler.update()
                else:
                    optimizer.step()
                label_state(optimizer, recorder)
                recorder.mark(f"{iteration}.step")


def delivered(inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return the inputs as a loader delivers them: contiguous. In every step that would take the host time of
    its own (`tests/data/h100/timing/channels_last.json.gz`)."""
    return [x.contiguous() if channels_last_like(x) else x for x in inputs]


def _label_model(model: torch.nn.Module, recorder: Watcher) -> None:
    for name, parameter in model.named_parameters():
        recorder.label(parameter, name, Category.PARAMETER)
    for name, buffer in model.named_buffers():
        recorder.label(buffer, name, Category.BUFFER)


def _label_batch(xs: list[torch.Tensor], ys: list[torch.Tensor], recorder: Watcher) -> None:
    for kind, tensors in (("input", xs), ("target", ys)):
        for number, tensor in enumerate(tensors):
            recorder.label(tensor, f"{kind} {number}", Category.INPUT)


def label_gradients(model: torch.nn.Module, recorder: Watcher) -> None:
    """Label every gradient with its parameter's name."""
    for name, parameter in named_tensors(model, "parameters"):
        if parameter.grad is not None:
            recorder.label(parameter.grad, f"{name}.grad", Category.GRADIENT)


def label_state(optimizer: torch.optim.Optimizer, recorder: Watcher) -> None:
    """Label the optimizer's state on the device with its own keys."""
    # `ZeroRedundancyOptimizer` keeps it in an optimizer of its own.
    for state in getattr(optimizer, "optim", optimizer).state.values():
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.device.type == "cuda":
                recorder.label(value, str(key), Category.OPTIMIZER_STATE)


def label_optimized(optimizer: torch.optim.Optimizer, recorder: Watcher) -> None:
    """Label what an optimizer trains, and its gradients, where no module has given it a name."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    for number, parameter in enumerate(parameters):
        for tensor, name, category in (
            (parameter, f"parameter {number}", Category.PARAMETER),
            (parameter.grad, f"parameter {number}.grad", Category.GRADIENT),
        ):
            if tensor is not None and tensor.is_cuda:
                recorder.label(tensor, name, category)
