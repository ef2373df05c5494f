"""PyTorch's choice among cuDNN's list of plans for one convolution.

1. Benchmark off: the first plan that passes the settings' filter runs. Where its workspace finds no room,
   PyTorch catches the allocator's error and goes on to the plans that take less than all before them.
2. Benchmark on: all plans that pass are built, and one workspace of the **largest** of them is taken for all
   trials. The first ten that run (`torch.backends.cudnn.benchmark_limit`) are timed; the fastest is of those.
3. TF32 off drops plans on tensor cores for float32, deterministic mode those that are not deterministic.

Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`filterEngineConfigs`, `generate_and_filter_plans`,
`get_plans_from_find`, `try_configs`, `run_single_conv`); `cudnn_frontend_find_plan.h` (`time_sorted_plan`).
Not modelled: plans that fail when they run; fewer trials where even the largest workspace finds no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.libraries.cudnn import recorded
from analyzer.libraries.cudnn.convolution import Plan

TIMED_PLANS = 10


@dataclass(frozen=True, slots=True)
class ConvolutionSettings:
    """`torch.backends.cudnn`'s, at the time of the call; float32 alone knows TF32."""

    benchmark: bool = False
    deterministic: bool = False
    allow_tf32: bool = True

    def figure(self, dtype: str, *, trial: bool = False) -> str | None:
        """Return the recorded figure for a call or benchmark trials; None: there is none."""
        strict = not self.allow_tf32 and dtype == "float32"
        if strict and self.deterministic:
            return None
        base = recorded.STRICT if strict else recorded.DETERMINISTIC if self.deterministic else recorded.FIRST
        return recorded.TRIALS[base] if trial else base


DEFAULT = ConvolutionSettings()


def passing(plans: Sequence[Plan], dtype: str, settings: ConvolutionSettings) -> list[Plan]:
    """Return the plans that pass PyTorch's filters.

    >>> plans = [Plan(67, 300, tensor_core=True), Plan(25, 20, deterministic=False), Plan(1, 0)]
    >>> [plan.engine for plan in passing(plans, "float32", ConvolutionSettings(deterministic=True,
    allow_tf32=False))] [1]
    """
    strict = not settings.allow_tf32 and dtype == "float32"
    return [
        plan
        for plan in plans
        if (plan.deterministic or not settings.deterministic) and not (strict and plan.tensor_core)
    ]


def descending(plans: Sequence[Plan], dtype: str, settings: ConvolutionSettings) -> tuple[int, ...]:
    """Return workspaces each smaller than all before, in the order they are tried.

    >>> descending([Plan(67, 300), Plan(38, 500), Plan(25, 20), Plan(1, 0)], "float32", DEFAULT)
    (300, 20, 0)
    """
    sizes: list[int] = []
    for plan in passing(plans, dtype, settings):
        if not sizes or plan.workspace_bytes < sizes[-1]:
            sizes.append(plan.workspace_bytes)
    return tuple(sizes)
