"""Small programs to time, and the H100 they run on."""

from __future__ import annotations

from typing import Any

from analyzer.devices import load
from analyzer.graph import Category, Graph, Operator, Phase, Run, Storage, TensorMeta
from analyzer_timing.rates import Rates, rates_of

H100 = load("h100")


def h100() -> Rates:
    """What an H100 can do."""
    rates = rates_of(H100)
    assert rates is not None
    return rates


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a contiguous tensor."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return tuple(reversed(found))


def tensor(
    storage: int, *shape: int, dtype: str = "float32", stride: tuple[int, ...] | None = None
) -> TensorMeta:
    """A tensor of a storage, contiguous unless its strides are said."""
    return TensorMeta(storage, shape, strides(shape) if stride is None else stride, dtype)


def storage(index: int, nbytes: int, on_device: bool = True) -> Storage:
    """Memory on the GPU, or on the host."""
    return Storage(index, nbytes, Category.ACTIVATION, on_device=on_device)


def call(
    index: int, name: str, inputs: Any, outputs: Any, names: tuple[str, ...] = (), **more: Any
) -> Operator:
    """One call of an operator."""
    return Operator(index, name, tuple(inputs), tuple(outputs), names=names, **more)


def products(count: int, size: int, dtype: str = "float32", phase: Phase = Phase.FORWARD) -> Graph:
    """`count` products of square matrices, one after the other."""
    nbytes = size * size * (2 if dtype != "float32" else 4)
    storages = tuple(storage(number, nbytes) for number in range(count + 2))
    operators = tuple(
        call(number, "aten::mm.default", (tensor(number, size, size, dtype=dtype), tensor(count + 1, size, size, dtype=dtype)),
             (tensor(number + 1, size, size, dtype=dtype),), ("self", "mat2"), phase=phase)
        for number in range(count)
    )  # fmt: skip
    return Graph("pytorch", storages, operators, tuple(Run(number) for number in range(count)))
