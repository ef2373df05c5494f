"""The files in `models/` as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.paths import MODELS

NAMES = sorted(
    path.stem for path in MODELS.glob("*.py") if path.stem != "export_onnx"
)  # a script, not a model


def load(name: str) -> ModuleType:
    """The module `models/NAME.py`, imported once."""
    qualified = f"model_files.{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, MODELS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        spec.loader.exec_module(module)
    return sys.modules[qualified]
