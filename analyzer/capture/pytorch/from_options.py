"""What the options mean to PyTorch: inputs and targets, dtype and layout, loss and optimizer. Each said once, here.

The capture and a real run (`runs/program.py`) both build their step from these.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from analyzer.capture.pytorch import by_name
from analyzer.capture.pytorch.checkpointing import apply_checkpointing
from analyzer.errors import InputError, OptionError
from analyzer.options import Options
from analyzer.spec import TensorSpec
from analyzer.targets import Program, load_function


def batch_for(
    program: Program, options: Options, make: Callable[[torch.Tensor | TensorSpec], torch.Tensor]
) -> tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]:
    """Inputs and targets: those given, else the target's own `make_batch`. Raises InputError when there are none.

    make: the tensor for what was given; `--dtype` and `--channels-last` are applied to it here.
    """
    inputs, targets = options.inputs, options.targets
    if isinstance(inputs, Mapping):
        inputs = _in_order(program.model, inputs)
    if inputs is None:
        if program.make_batch is None:
            raise InputError(
                f"{type(program.model).__name__} does not say what its inputs are",
                "give --input NAME=3x224x224:float32 with --batch, or define make_batch(batch) in the target's file",
            )
        inputs, made = program.make_batch(program.own_batch if options.batch is None else options.batch)
        targets = made if targets is None else targets
    targets = tuple(_converted(make(y), options, layout=False) for y in targets or ())
    return tuple(_converted(make(x), options) for x in inputs), targets


def _in_order(model: torch.nn.Module, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Inputs in the order of `forward`'s parameters, if all are called as those are; else as given."""
    order = list(inspect.signature(model.forward).parameters)
    known = set(inputs) <= set(order)
    return tuple(inputs[name] for name in (sorted(inputs, key=order.index) if known else inputs))


def _converted(tensor: torch.Tensor, options: Options, layout: bool = True) -> torch.Tensor:
    """`--dtype` and `--channels-last` applied to a tensor of the batch."""
    if options.dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(dtype_named(options.dtype))
    if layout and options.channels_last and tensor.dim() == 4:
        tensor = tensor.to(memory_format=torch.channels_last)
    return tensor


def dtype_named(name: str) -> torch.dtype:
    """The floating-point type of that name. Raises OptionError."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"unknown dtype {name!r}", "float32, float16 or bfloat16")
    return dtype


def preparation(options: Options) -> Callable[[torch.nn.Module], None]:
    """What `--dtype`, `--channels-last` and `--checkpoint` do to the model, in that order."""

    def prepare(model: torch.nn.Module) -> None:
        if options.dtype is not None:
            model.to(dtype_named(options.dtype))
        if options.channels_last:
            if any(parameter.dim() == 5 for parameter in model.parameters()):
                raise OptionError(
                    "channels_last: PyTorch knows no such order for weights of five dimensions, which this model has",
                    "leave --channels-last out",
                )
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if options.checkpoint is not None:
            apply_checkpointing(model, options.checkpoint)

    return prepare


def loss_for(
    program: Program, options: Options, targets: tuple[Any, ...]
) -> tuple[Callable[..., Any], list[str]]:
    """The loss the options or the target name, and notes on one that had to be assumed."""
    chosen = options.loss
    if callable(chosen):
        return chosen, []
    if isinstance(chosen, str):
        return (load_function(chosen) if ":" in chosen else by_name.loss(chosen)), []
    if program.loss is not None:
        return program.loss, []
    if targets:
        return by_name.loss("cross_entropy"), ["no loss was given: cross_entropy is assumed"]
    return by_name.loss("sum"), ["no loss and no targets were given: the sum of the output is assumed"]


def optimizer_for(chosen: Any) -> Callable[..., torch.optim.Optimizer]:
    """The optimizer by name, or the function given."""
    return by_name.optimizer(chosen) if isinstance(chosen, str) else chosen


def optimizer_name(chosen: Any) -> str:
    """What a report calls it."""
    return chosen if isinstance(chosen, str) else getattr(chosen, "__name__", type(chosen).__name__)
