"""`--checkpoint PATTERN`: activation checkpointing for a model that has none.

Modules whose dotted path matches the pattern, or one of several with commas between (`blocks.py`), run under
`torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`.
"""

from __future__ import annotations

import functools

import torch
from torch.utils.checkpoint import checkpoint

from analyzer.capture.pytorch.module.blocks import matching_any


def apply_checkpointing(model: torch.nn.Module, pattern: str) -> None:
    """Change `model` so that matching modules are checkpointed. Raises OptionError when nothing matches."""
    for part in matching_any(model, pattern, "checkpoint").values():
        part.forward = functools.partial(checkpoint, part.forward, use_reentrant=False)
