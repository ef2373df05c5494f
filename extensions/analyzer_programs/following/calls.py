"""How a program calls its models, for those who propose changes of its text."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from analyzer.capture.pytorch.module.blocks import repeated
from analyzer.capture.pytorch.module.modules import named_tensors
from analyzer.graph.calls import ModelCall
from analyzer.values.frames import variables_of


def called_as(module: torch.nn.Module, frame: FrameType | None, args: Any, kwargs: Any) -> ModelCall:
    """Return how a model is called. frame: the user's, None if no line of the user's calls it."""
    name = ""
    if frame is not None:
        name = _variable(frame, module)
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    return ModelCall(
        name=name,
        file="" if frame is None else frame.f_code.co_filename,
        line=0 if frame is None else frame.f_lineno,
        blocks=tuple(repeated(module)),
        batch=int(tensors[0].shape[0]) if tensors and tensors[0].dim() else None,
        gradients=torch.is_grad_enabled(),
        own_checkpointing=bool(getattr(module, "supports_gradient_checkpointing", False)),
        parameters=next(named_tensors(module, "parameters"), None) is not None,
    )


def _variable(frame: FrameType, module: torch.nn.Module) -> str:
    """Return the name of the frame's variable, or its module's, that holds the model; "" for none."""
    every = (*variables_of(frame).items(), *frame.f_globals.items())
    return next((name for name, value in every if value is module), "")
