"""Which of a program's models an optimizer trains: of the others gradients may be computed in vain."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from analyzer.capture.pytorch.module.modules import named_tensors
from analyzer.graph.calls import ModelCall


class OptimizedModels:
    """Models that optimizers had parameters of when they made their steps."""

    def __init__(self) -> None:
        self._optimized: set[int] = set()  # places among the models
        self._looked_at = (0, 0)

    def look(
        self,
        roots: Collection[weakref.ref[torch.nn.Module]],
        optimizers: Collection[torch.optim.Optimizer],
    ) -> None:
        """Note which models (in the order of their first calls) the program's optimizers have parameters of;
        one that is gone may have been trained."""
        if self._looked_at == (looked := (len(roots), len(optimizers))):
            return
        self._looked_at = looked
        given = {
            id(parameter)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for place, root in enumerate(roots):
            module = root()
            if module is None or any(
                id(parameter) in given for _, parameter in named_tensors(module, "parameters")
            ):
                self._optimized.add(place)

    def said_of(self, models: Sequence[ModelCall]) -> tuple[ModelCall, ...]:
        """Return the models with what is known of each."""
        return tuple(
            replace(model, optimized=place in self._optimized) if self._looked_at[0] == len(models) else model
            for place, model in enumerate(models)
        )
