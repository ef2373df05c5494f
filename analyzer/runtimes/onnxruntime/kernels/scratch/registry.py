"""Where scratch rules are registered: by provider and operator.

A rule is a function (node, graph, settings) -> [(bytes, basis), ...]: memory a kernel takes after its
outputs, or before them where it says so, in order, given back when the kernel returns.

A dimension may stand for many batches at once (`parametric/lanes.py`): it computes and compares as a whole
number does, and a rule that needs more of it is asked batch by batch (`lanes.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from analyzer.devices import DeviceProfile
from analyzer.graph import dtype_bits
from analyzer.libraries.cudnn.choices import Choices, choices_of
from analyzer.runtimes.onnxruntime.graph import Node, RuntimeGraph

Takes = list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """Settings that decide scratch: provider, convolution search mode, device, CPU provider's threads."""

    provider: str
    search: str
    device: DeviceProfile
    threads: int = 1
    _choices: list[Choices] = field(default_factory=list, compare=False, repr=False)

    @property
    def choices(self) -> Choices:
        """cuDNN's choices on the device, found once: a profile has too many figures to look them up by."""
        if not self._choices:
            self._choices.append(choices_of(self.device))
        return self._choices[0]


Estimate = Callable[[Node, RuntimeGraph, KernelSettings], Takes]


@dataclass(frozen=True, slots=True)
class KernelRule:
    """takes: what a kernel asks for. before_outputs: it does so before its outputs are allocated."""

    takes: Estimate
    before_outputs: bool = False


RULES: dict[str, dict[str, KernelRule]] = {"cuda": {}, "cpu": {}}


def rule(provider: str, *operators: str, before_outputs: bool = False) -> Callable[[Estimate], Estimate]:
    """Register a provider's rule for these operators, with their domain unless it is ONNX's."""

    def register(takes: Estimate) -> Estimate:
        for operator in operators:
            RULES[provider][operator] = KernelRule(takes, before_outputs)
        return takes

    return register


def shape_of(graph: RuntimeGraph, name: str) -> tuple[int, ...]:
    """Return the value's shape; () for an absent input and for a shape that is not known."""
    return graph.values[name].shape or () if name else ()


def element_bytes(graph: RuntimeGraph, name: str) -> int:
    """Return the bytes of one element, at least 1."""
    return max(1, dtype_bits(graph.values[name].dtype or "float32") // 8)
