"""The user's cache folder, where what lies can be had again: cuDNN's answers, environments with a CUDA build
of PyTorch."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """Return the cache folder: `ANALYZER_CACHE`, or the system's. Raises ImportError without platformdirs and
    RuntimeError for a user without a home."""
    from platformdirs import user_cache_path

    return Path(os.environ.get("ANALYZER_CACHE") or user_cache_path("gpu-memory-analyzer"))
