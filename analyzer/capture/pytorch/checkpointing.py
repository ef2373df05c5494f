"""`--checkpoint PATTERN`: activation checkpointing for a model that has none.

Modules whose dotted path matches the pattern (`layer*`, `blocks.?`; `fnmatch` rules) run under
`torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`; a match inside a match is left alone. A container that is
never called itself (`ModuleList`, `ModuleDict`) stands for the modules in it.
"""

from __future__ import annotations

import fnmatch
import functools

import torch
from torch.utils.checkpoint import checkpoint

from analyzer.errors import OptionError


def apply_checkpointing(model: torch.nn.Module, pattern: str) -> None:
    """Change `model` so that matching modules are checkpointed. Raises OptionError when nothing matches."""
    matched: list[str] = []
    containers: set[str] = set()
    for path, part in model.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in matched)
        meant = path.rpartition(".")[0] in containers or fnmatch.fnmatchcase(path, pattern)
        if not path or inside or not meant:
            continue
        if type(part).forward is torch.nn.Module.forward:
            containers.add(path)
            continue
        matched.append(path)
        part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)
    if not matched:
        known = ", ".join(name for name, _ in model.named_children())
        raise OptionError(
            f"no module matches the checkpoint pattern {pattern!r}", f"top-level modules: {known}"
        )
