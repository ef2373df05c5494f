"""The user's cache folder, where what lies can be had again: cuDNN's answers, environments with a CUDA build
of PyTorch."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """What `ANALYZER_CACHE` names, else where the system keeps caches. Raises ImportError in an environment
    that is not this package's own, and RuntimeError for a user without a home."""
    from platformdirs import user_cache_path

    return Path(os.environ.get("ANALYZER_CACHE") or user_cache_path("gpu-memory-analyzer"))
