"""How long a million requests and frees take on each simulator: `python -m benchmarks speed allocators [NAME ...]`.

The events are drawn once, alike for all: sizes as training has them (many small, some of some MiB, few large), frees
mostly of what was taken last. No time limit is asserted in a test; this prints the figures.
"""

from __future__ import annotations

import random
import time
from typing import Any

import click

from analyzer import allocators
from benchmarks.harness.pages import MIB

EVENT_COUNT = 1_000_000


def events(count: int = EVENT_COUNT, seed: int = 0) -> list[int]:
    """Positive: a request of so many bytes. Otherwise: -1 - which living one to free, counted in order of age."""
    draw = random.Random(seed)
    drawn: list[int] = []
    alive = 0
    while len(drawn) < count:
        if alive and (alive > 2000 or draw.random() < 0.5):
            drawn.append(-1 - (alive - 1 - min(alive - 1, int(draw.expovariate(0.1)))))
            alive -= 1
        else:
            kind = draw.random()
            most = 64 * 1024 if kind < 0.5 else 4 * MIB if kind < 0.95 else 64 * MIB
            drawn.append(draw.randrange(1, most))
            alive += 1
    return drawn


def seconds(allocator: Any, drawn: list[int]) -> float:
    """What simulating them takes."""
    malloc, free = allocator.malloc, allocator.free
    alive: list[int] = []
    start = time.process_time()
    for number in drawn:
        if number > 0:
            alive.append(malloc(number))
        else:
            free(alive.pop(-1 - number))
    return time.process_time() - start


@click.command("allocators")
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """A million requests and frees on each simulator, or those named: a line each."""
    drawn = events()
    for name in names or allocators.names():
        allocator: Any = allocators.create(name, **({"available_bytes": 2**40} if "naive" in name else {}))
        taken = seconds(allocator, drawn)
        print(
            f"{name:<24} {taken:6.2f} s of CPU for {len(drawn):,} events, {allocator.peak_reserved / MIB:,.0f} MiB reserved"
        )
