"""What tests that run PyTorch's own CUDA build need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from analyzer.errors import MissingDependencyError
from analyzer_emulation import launch, library


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of `ANALYZER_CUDA_PYTHON`, or this one, where it has a CUDA build of PyTorch."""
    try:
        library.path()
        return launch.find_torch(os.environ.get("ANALYZER_CUDA_PYTHON")).python
    except MissingDependencyError as error:
        pytest.skip(error.message)
