"""A process's first kernels and what they take, against every hole the driver of an H200 had left (`driver_holes.json.gz`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analyzer.allocators.driver import MIB, ORIGIN
from analyzer.allocators.process import KernelNeeds, Process
from tests.allocators.holes import holes_in, holes_of, recorded

Step = Callable[[Process], object]


def taking(*sizes_mib: int) -> Step:
    return lambda process: [process.take(size * MIB) for size in sizes_mib]


def nothing(_: Process) -> None: ...


def running(kernel: KernelNeeds) -> Step:
    return lambda process: process.launch(kernel)


def product(process: Process) -> None:
    """What is multiplied was filled; the handle's workspace is PyTorch's."""
    process.launch(KernelNeeds.STACK)
    process.cublas()
    process.take(32 * MIB)


# The steps that `benchmarks/driver_holes.py` of commit cf817472 calls `_BASICS`.
BASICS: tuple[Step, ...] = (
    running(KernelNeeds.STACK),
    *(nothing,) * 4,
    running(KernelNeeds.ASSERTING),
    *(nothing,) * 2,
    product,
    nothing,
    Process.cudnn,
    product,
    Process.cudnn,
)
PROGRAMS: dict[str, tuple[Step, ...]] = {
    "a small tensor first": (taking(2), nothing, taking(20), nothing, *BASICS),
    "zeros first": (lambda process: (process.take(2 * MIB), process.launch(KernelNeeds.STACK)), *BASICS[:10]),
    "20 MiB first": (taking(20), taking(2), taking(70), *BASICS[:10]),
    "22 MiB first": (taking(22), taking(2), taking(70), *BASICS[:10]),
    "24 MiB first": (taking(24), taking(2), taking(70), *BASICS[:10]),
    "a product first": (
        taking(2),
        lambda process: (process.cublas(), process.take(32 * MIB)),
        running(KernelNeeds.STACK),
    ),
    "a convolution first": (taking(2), Process.cudnn, running(KernelNeeds.STACK)),
}


# The first hole is known by the small tensor in it: from the step on that makes it.
KNOWN_FROM = {"20 MiB first": 2, "22 MiB first": 2, "24 MiB first": 2}


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (name, count)
        for name, steps in PROGRAMS.items()
        for count in range(KNOWN_FROM.get(name, 1), len(steps) + 1)
    ],
)
def test_every_hole_after_every_step(program: str, count: int) -> None:
    process = Process()
    for step in PROGRAMS[program][:count]:
        step(process)
    assert holes_in(process) == holes_of(recorded()[program, count])


def test_without_anything_in_the_first_hole_its_chunk_is_given_back() -> None:
    """40 MiB do not fit; with the first kernel the page goes behind them, and libraries have the whole range."""
    process = Process()
    assert process.take(40 * MIB) == ORIGIN - (414 + 64) * MIB
    process.launch(KernelNeeds.STACK)
    assert [size // MIB for _, size in process._holes] == [6, 22, 24]
    assert process.take(300 * MIB) == ORIGIN - (414 + 64 + 32 + 320) * MIB
    assert process.page_bytes == 340 * MIB
