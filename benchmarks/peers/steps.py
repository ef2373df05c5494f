"""PyTorch steps: the measured sets of `benchmarks/accuracy`, and the tools that take a module.

MemTracker, torchinfo and torch-kitsune are given fake tensors of the CPU (`FakeTensorMode`), so that nothing is allocated: a torch
without CUDA cannot differentiate fake tensors of CUDA. Autocast is then the CPU's, which is what they would see here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.accuracy import predict as accuracy
from benchmarks.accuracy import sets
from benchmarks.peers.tool import FIGURES, CannotSayError, Case, Tool

Question = Callable[[], tuple[int, ...]]
# A second step has the optimizer's state and the first one's leftovers; a third is like it.
_STEPS = 2
_ADAM = ("adam", "adamw", "adam_fused", "adamw_fused", "adam_l2")
# torch-kitsune's names (kitsune/predict/optimizer_state_estimator.py) of the sets' optimizers.
_KITSUNE = {
    **dict.fromkeys(_ADAM, "adam"),
    "sgd": "sgd",
    "sgd_fused": "sgd",
    "sgdm": "sgd_momentum",
    "nesterov": "sgd_momentum",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
}


def cases() -> Iterator[Case]:
    """Every measured step, in the order of the sets."""
    for name in sets.NAMES:
        for row in sets.load(name):
            measured = {
                "allocated": row.peak_allocated,
                "reserved": row.peak_reserved,
                "device": row.device_used,
            }
            yield Case("step", f"{name.replace('_', '-')}: {row.tag}", measured, row)


def _analyzer(row: sets.MeasuredCase) -> Question:
    def question() -> tuple[int, ...]:
        found = accuracy.predict(row)
        if found.error:
            raise RuntimeError(found.error)
        return found.peak_allocated, found.peak_reserved, found.device_used

    sets.zoo(row.set_name)  # imported before the clock starts
    return question


class _Parts:
    """A case's model on the meta device, its inputs and targets there, loss and optimizer."""

    def __init__(self, row: sets.MeasuredCase) -> None:
        self.case = row.case
        models = sets.zoo(row.set_name)
        make_model, make_batch, self.loss = models.M[self.case["model"]]
        self.train = self.case["mode"] == "train"
        self.model = accuracy.model_of(make_model, self.case).train(self.train)
        self.inputs = accuracy.inputs_of(make_batch, self.case)
        self.targets = accuracy.targets_of(make_batch, self.case, row.set_name) or ()
        self.optimizer = models.OPT[self.case["opt"]]
        self.amp = accuracy.TYPES[self.case["amp"]] if self.case.get("amp") else None
        self.parts = self.case.get("accum", 1)


def _fake(mode: Any, tensors: Any) -> list[torch.Tensor]:
    with mode:
        return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cpu") for t in tensors]


def _with_fakes(model: nn.Module, mode: Any) -> nn.Module:
    """The model with fake tensors of the CPU for its own; shared ones stay shared."""
    known: dict[int, torch.Tensor] = {}

    def of(tensor: torch.Tensor | None) -> torch.Tensor | None:
        if tensor is None:
            return None
        if id(tensor) not in known:
            (fake,) = _fake(mode, [tensor])
            is_parameter = isinstance(tensor, nn.Parameter)
            known[id(tensor)] = nn.Parameter(fake, tensor.requires_grad) if is_parameter else fake
        return known[id(tensor)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                tensors[name] = of(tensor)  # type: ignore[assignment]
    return model


def _mem_tracker(row: sets.MeasuredCase) -> Question:
    """`torch.distributed._tools.mem_tracker.MemTracker`, around the steps the case was measured with."""
    from torch.distributed._tools.mem_tracker import MemTracker

    p = _Parts(row)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = _with_fakes(p.model, mode)

    def autocast() -> Any:
        return torch.autocast("cpu", dtype=p.amp) if p.amp else nullcontext()

    def question() -> tuple[int, ...]:
        with mode:
            optimizer = p.optimizer(model.parameters()) if p.train else None
            tracker = MemTracker()
            tracker.track_external(model)
            with tracker:
                for number in range(_STEPS * p.parts):
                    inputs, targets = _fake(mode, p.inputs), _fake(mode, p.targets)
                    if optimizer is None:
                        with torch.no_grad(), autocast():
                            output = model(*inputs)
                    else:
                        if number % p.parts == 0:
                            optimizer.zero_grad()
                        with autocast():
                            output = model(*inputs)
                            output = output[0] if isinstance(output, tuple) else output
                            loss = p.loss(output, *targets)
                        loss.backward()
                        if number % p.parts == p.parts - 1:
                            optimizer.step()
                    # It refuses a second call of a module otherwise.
                    tracker.reset_mod_stats()
            return (sum(found["Total"] for found in tracker.get_tracker_snapshot("peak").values()),)

    return question


def _torchinfo(row: sets.MeasuredCase) -> Question:
    """`torchinfo.summary`'s "Estimated Total Size": inputs, every layer's output twice, parameters."""
    from torchinfo import summary

    p = _Parts(row)
    if p.parts > 1:
        raise CannotSayError("gradient accumulation")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = _with_fakes(p.model, mode)
    inputs = _fake(mode, p.inputs)
    model.to = lambda *_, **__: model  # type: ignore[method-assign]  # it moves the model to where it is, which fakes refuse

    def question() -> tuple[int, ...]:
        with mode, torch.autocast("cpu", dtype=p.amp) if p.amp else nullcontext():
            found = summary(
                model, input_data=inputs, device="cpu", mode="train" if p.train else "eval", verbose=0
            )
        return (found.total_input + found.total_output_bytes + found.total_param_bytes,)

    return question


def _accelerate(row: sets.MeasuredCase) -> Question:
    """What `accelerate estimate-memory` prints of a model of the hub: "Total Size", or "Training using Adam"."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    p = _Parts(row)
    if p.train and p.case["opt"] not in _ADAM:
        raise CannotSayError("an optimizer other than Adam")
    if p.case.get("amp") and not p.train:
        raise CannotSayError("autocast without training")
    word = {"bf16": "bfloat16", "fp16": "float16"}.get(p.case.get("amp", ""), "float32")

    def question() -> tuple[int, ...]:
        total, _ = calculate_maximum_sizes(p.model)
        return (max(estimate_training_usage(total, word).values()) if p.train else total,)

    return question


def _kitsune(row: sets.MeasuredCase) -> Question:
    """`kitsune.predict.predict_memory`'s total, whose 15 % are "CUDA allocator overhead, fragmentation": reserved."""
    from kitsune.predict import predict_memory

    p = _Parts(row)
    if len(p.inputs) != 1:
        raise CannotSayError("several inputs")
    if not p.inputs[0].is_floating_point():
        raise CannotSayError("inputs that are integers")
    if p.amp:
        raise CannotSayError("autocast")
    if p.train and p.case["opt"] not in _KITSUNE:
        raise CannotSayError("the optimizer")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = _with_fakes(p.model, mode)

    def question() -> tuple[int, ...]:
        with mode:
            found = predict_memory(
                model,
                tuple(p.inputs[0].shape[1:]),
                batch_size=p.inputs[0].shape[0],
                dtype=p.inputs[0].dtype,
                optimizer=_KITSUNE[p.case["opt"]] if p.train else "none",
                training=p.train,
            )
        return (found.total_bytes,)

    return question


TOOLS = (
    Tool("analyzer", "analyzer", "step", FIGURES, _analyzer),
    Tool("MemTracker", "torch", "step", ("allocated",), _mem_tracker),
    Tool("torchinfo", "torchinfo", "step", ("allocated",), _torchinfo),
    Tool("accelerate", "accelerate", "step", ("allocated",), _accelerate),
    Tool("torch-kitsune", "torch-kitsune", "step", ("reserved",), _kitsune),
)
