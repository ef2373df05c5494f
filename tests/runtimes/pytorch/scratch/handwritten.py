"""Tensors and calls written by hand, and an operator's allocations in words."""

from __future__ import annotations

from typing import Any

from analyzer.devices import DeviceProfile, load
from analyzer.graph import Operator, TensorMeta, contiguous_strides
from analyzer.runtimes.pytorch.scratch import Output, Take, kernel_allocations
from tests.schemas import called

H200 = load("h200")


def tensor(*shape: int, stride: tuple[int, ...] = (), dtype: str = "float32", offset: int = 0) -> TensorMeta:
    """Contiguous unless `stride` says otherwise."""
    return TensorMeta(0, shape, stride or contiguous_strides(shape), dtype, offset)


def channels_last(*shape: int, dtype: str = "float32") -> TensorMeta:
    """(N, C, *spatial) with C innermost."""
    strides, step = [0] * len(shape), 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[dim] = step
        step *= shape[dim]
    return TensorMeta(0, shape, tuple(strides), dtype)


def spread(of: TensorMeta) -> TensorMeta:
    """The same tensor with a gap behind every element: neither contiguous nor dense in any order."""
    return TensorMeta(0, of.shape, tuple(2 * step for step in of.stride), of.dtype)


def call(
    name: str, arguments: tuple[Any, ...], outputs: tuple[TensorMeta | None, ...], **keywords: Any
) -> Operator:
    """One call of `name`."""
    return called(0, name, arguments, outputs, keywords)


def words(operator: Operator, device: DeviceProfile = H200) -> str:
    """Allocations in words: "+N" takes N bytes, "-N" gives them back, "=I" allocates result I ("=I:N": of N bytes),
    "name+N" is a workspace kept for good; "?" behind a figure that is no exact one."""
    sizes: dict[int, str] = {}
    told = []
    for step in kernel_allocations(operator, device).steps:
        if isinstance(step, Take):
            sizes[step.token] = f"{step.nbytes}" + ("" if step.basis.value == "exact" else "?")
            told.append(f"{step.workspace}+{sizes[step.token]}")
        elif isinstance(step, Output):
            told.append(f"={step.index}" + (f":{step.nbytes}" if step.nbytes is not None else ""))
        else:
            told.append(f"-{sizes[step.token]}")
    return " ".join(told)
