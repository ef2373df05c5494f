"""Operators' own temporary memory, one topic a file; importing this package registers every rule."""

import pkgutil
from importlib import import_module

from analyzer.runtimes.pytorch.scratch.script import (
    BY_NAME,
    OF_OPERATOR,
    Basis,
    Give,
    KernelAllocations,
    Output,
    ScratchRule,
    Script,
    Step,
    Take,
    is_known,
    kernel_allocations,
    rule,
)

__all__ = [
    "BY_NAME",
    "OF_OPERATOR",
    "Basis",
    "Give",
    "KernelAllocations",
    "Output",
    "ScratchRule",
    "Script",
    "Step",
    "Take",
    "is_known",
    "kernel_allocations",
    "rule",
]

for _topic in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_topic.name}")
