"""Modules of `analyzer_serving/engines/inside`, which run in an engine's process, and packages made for a test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from tests.paths import ROOT

INSIDE = ROOT / "extensions/analyzer_serving/engines/inside"


@contextmanager
def inside(name: str) -> Iterator[Any]:
    """A module of the folder, newly imported, as are those beside it that it imports."""
    names = [file.stem for file in INSIDE.glob("*.py")]
    sys.path.insert(0, str(INSIDE))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(INSIDE))
        for one in names:
            sys.modules.pop(one, None)


def placed(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> ModuleType:
    """A module of that name, with the packages it is in."""
    parts = name.split(".")
    for count in range(1, len(parts)):
        parent = ".".join(parts[:count])
        monkeypatch.setitem(sys.modules, parent, sys.modules.get(parent, ModuleType(parent)))
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)
    return module
