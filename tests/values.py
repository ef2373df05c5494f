"""What every room's values promise: dataclasses are frozen and have slots, so that a stage cannot change what another
made, nor hang anything on it (CONTRIBUTING.md, "Style")."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType


def modules_of(*names: str) -> Iterator[ModuleType]:
    """The modules of these names, and of packages all within."""
    for name in names:
        module = importlib.import_module(name)
        yield module
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            yield importlib.import_module(found.name)


def not_values(*names: str) -> set[str]:
    """Names of the dataclasses defined in these modules that can be changed, or have no slots."""
    return {
        kind.__name__
        for module in modules_of(*names)
        for kind in vars(module).values()
        if inspect.isclass(kind) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
        if not (kind.__dataclass_params__.frozen and "__slots__" in vars(kind))  # type: ignore[attr-defined]
    }
