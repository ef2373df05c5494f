"""What a process group of a program was used for: it decides what the library that connects its ranks
takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Communicator:
    """size: ranks. collective: whether one ran. sent_to, received_from: ranks exchanged with."""

    size: int
    collective: bool = False
    sent_to: frozenset[int] = frozenset()
    received_from: frozenset[int] = frozenset()
