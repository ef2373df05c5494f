"""A model as a program calls it: what a change of the program's text goes by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelCall:
    """The first call of a model from outside any. name: the variable it is in, "" where it is in none; file,
    line: where it is called. blocks: paths of the modules it repeats. batch: first dimension of its first
    input, None without a tensor. gradients: whether they were on. own_checkpointing: it has a method that
    switches checkpointing on (`gradient_checkpointing_enable`). optimized: an optimizer has parameters of it,
    None where no optimizer made a step. parameters: it has some (a loss has none)."""

    name: str
    file: str
    line: int
    blocks: tuple[str, ...] = ()
    batch: int | None = None
    gradients: bool = True
    own_checkpointing: bool = False
    optimized: bool | None = None
    parameters: bool = True
