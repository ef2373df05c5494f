"""Random programs of requests to an allocator, the same for every one that is asked: nothing but a seed decides.

Each program is a list of settings and a side that carries the requests out; `differential.py` carries it out on our simulator,
`request_states.py` on PyTorch's own allocator. What a request came to (memory, or none left) decides how the program goes on,
so that two sides part where they differ, and stay apart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

KIB, MIB = 1 << 10, 1 << 20
STREAMS = 4  # the default stream, and three others
POINT = 50  # requests between two states


class Side(Protocol):
    """An allocator that programs are carried out on."""

    def take(self, nbytes: int, stream: int, tensor: bool) -> Any:
        """Memory for a stream, None where there is none left. tensor: for one that other streams may use."""

    def give(self, memory: Any) -> None:
        """It is not needed any more."""

    def use(self, memory: Any, stream: int) -> None:
        """Another stream uses a tensor's memory."""

    def synchronize(self) -> None:
        """The host waits for the device."""

    def empty_cache(self) -> None:
        """Cached blocks go back to the driver."""

    def fraction(self, value: float) -> None:
        """So much of the device may be reserved."""

    def state(self) -> Any:
        """What it holds."""


@dataclass(frozen=True, slots=True)
class Program:
    """conf: PYTORCH_ALLOC_CONF. live: what it holds about at most, in bytes. room: what the device has for it, None: as much as an H200.
    fractions: what of the device it may have, one of them at a time, drawn anew now and then; none: no fraction is set. since: the first
    release that knows the setting."""

    conf: str = ""
    live: int = 4 << 30
    room: int | None = None
    fractions: tuple[float, ...] = ()
    since: tuple[int, int] = (2, 6)


PROGRAMS: dict[str, Program] = {
    "default": Program(),
    "the device is full": Program(room=3 << 30),
    "a fraction": Program(fractions=(0.02, 0.03, 1.0)),
    "rounded up": Program("roundup_power2_divisions:4"),
    "rounded up by size": Program("roundup_power2_divisions:[1:2,64:8,256:1,>:4]"),
    "kept apart": Program("max_split_size_mb:64", room=3 << 30),
    "kept apart, rounded": Program(
        "max_split_size_mb:32,max_non_split_rounding_mb:64", fractions=(0.02, 0.03)
    ),
    "collected": Program("garbage_collection_threshold:0.6", fractions=(0.02, 0.03, 0.05)),
    "collected, kept apart": Program(
        "garbage_collection_threshold:0.3,max_split_size_mb:40", fractions=(0.025, 0.035)
    ),
    "collected, no fraction": Program("garbage_collection_threshold:0.5", room=3 << 30),
    "large segments": Program("large_segment_size_mb:48", room=3 << 30, since=(2, 11)),
    "expandable": Program("expandable_segments:True"),
    "expandable, the device is full": Program("expandable_segments:True", room=3 << 30),
    "expandable, a fraction": Program("expandable_segments:True", fractions=(0.02, 0.03, 1.0)),
    "expandable, kept apart": Program("expandable_segments:True,max_split_size_mb:64", room=3 << 30),
    "expandable, collected": Program(
        "expandable_segments:True,garbage_collection_threshold:0.4", fractions=(0.02, 0.03)
    ),
    "expandable, large segments": Program(
        "expandable_segments:True,large_segment_size_mb:48", room=3 << 30, since=(2, 11)
    ),
}


def carry_out(program: Program, seed: str, count: int, side: Side) -> Iterator[Any]:
    """Make `count` requests for memory, and whatever comes between them; the side's state after every `POINT`th."""
    drawn = random.Random(seed)
    held: list[tuple[Any, int]] = []
    live, wanted = 0, program.live
    often = [_size(drawn) for _ in range(24)]
    if program.fractions:
        side.fraction(program.fractions[0])
    for number in range(1, count + 1):
        if drawn.random() < 0.004:  # a program grows and shrinks
            wanted = int(program.live * drawn.random())
        while held and (live > wanted or len(held) > 400 or drawn.random() < 0.3):
            at = len(held) - 1 if drawn.random() < 0.3 else int(len(held) * drawn.random())
            memory, nbytes = held.pop(at)
            live -= nbytes
            side.give(memory)
        nbytes = often[int(24 * drawn.random())] if drawn.random() < 0.5 else _size(drawn)
        stream = 0 if drawn.random() < 0.6 else int(STREAMS * drawn.random())
        tensor = drawn.random() < 0.3
        memory = side.take(nbytes, stream, tensor)
        if memory is None:
            wanted //= 2
        else:
            held.append((memory, nbytes))
            live += nbytes
            while tensor and drawn.random() < 0.2:
                side.use(memory, int(STREAMS * drawn.random()))
        rare = drawn.random()
        if rare < 0.002:
            side.empty_cache()
        elif rare < 0.005:
            side.synchronize()
        elif rare < 0.007 and program.fractions:
            side.fraction(program.fractions[int(len(program.fractions) * drawn.random())])
        if number % POINT == 0:
            yield side.state()


def _size(drawn: random.Random) -> int:
    """Bytes: as many small ones as large ones, and those around which an allocator decides."""
    kind = drawn.random()
    if kind < 0.15:
        edge = (512, 4 * KIB, MIB, 2 * MIB, 10 * MIB, 20 * MIB, 32 * MIB, 64 * MIB)[int(8 * drawn.random())]
        return edge + int(3 * drawn.random()) - 1
    low, high = ((0, 4 * KIB), (4 * KIB, MIB), (MIB, 10 * MIB), (10 * MIB, 200 * MIB))[
        0 if kind < 0.35 else 1 if kind < 0.65 else 2 if kind < 0.88 else 3
    ]
    return low + int((high - low) * drawn.random() ** 2)
