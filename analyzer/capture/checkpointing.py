"""`--checkpoint PATTERN`: activation checkpointing for a model that has none.

Modules whose dotted path matches the pattern (`layer*`, `blocks.?`; `fnmatch` rules) run under
`torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`; a match inside a match is left alone.
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
    for path, part in model.named_modules():
        inside = any(path.startswith(f"{outer}.") for outer in matched)
        if path and not inside and fnmatch.fnmatchcase(path, pattern):
            matched.append(path)
            part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)
    if not matched:
        known = ", ".join(name for name, _ in model.named_children())
        raise OptionError(
            f"no module matches the checkpoint pattern {pattern!r}", f"top-level modules: {known}"
        )
