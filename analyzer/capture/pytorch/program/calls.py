"""How a program calls its models, for those who propose changes of its text."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from analyzer.capture.pytorch.module.blocks import repeated
from analyzer.graph.calls import ModelCall


def called_as(module: torch.nn.Module, frame: FrameType | None, args: Any, kwargs: Any) -> ModelCall:
    """Return how a model is called. frame: the user's, None if no line of the user's calls it."""
    name = ""
    if frame is not None:
        variables = {**frame.f_globals, **frame.f_locals}
        name = next((name for name, value in variables.items() if value is module), "")
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    return ModelCall(
        name=name,
        file="" if frame is None else frame.f_code.co_filename,
        line=0 if frame is None else frame.f_lineno,
        blocks=tuple(repeated(module)),
        batch=int(tensors[0].shape[0]) if tensors and tensors[0].dim() else None,
        gradients=torch.is_grad_enabled(),
        own_checkpointing=bool(getattr(module, "supports_gradient_checkpointing", False)),
    )
