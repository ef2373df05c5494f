"""Why figures of a release differ from what its own binary took, where they do: `causes.json`, cell by cell.

A cause is about programs, devices and releases (all, where it names none), and says which figures differ because of it: "allocated",
"reserved" and "requested" (peaks), "requests" (how many), "bytes" (of all of them), or "refused", where there are none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from analyzer.releases import Span, parse

FIGURES = ("allocated", "reserved", "requested", "requests", "bytes")
REFUSED = frozenset({"refused"})


@dataclass(frozen=True, slots=True)
class Cause:
    """programs: patterns of names. devices: of profiles, none for all."""

    programs: tuple[str, ...]
    devices: tuple[str, ...]
    releases: Span
    figures: frozenset[str]
    cause: str

    def explains(self, release: str, device: str, program: str, differing: frozenset[str]) -> bool:
        """Whether all that differs in this cell is its doing."""
        return (
            any(fnmatch(program, pattern) for pattern in self.programs)
            and (not self.devices or device in self.devices)
            and parse(release) in self.releases
            and differing <= self.figures
        )


def differing(found: Sequence[int] | None, seen: Sequence[int]) -> frozenset[str]:
    """The figures that differ; found: None where the program was refused."""
    if found is None:
        return REFUSED
    return frozenset(name for name, mine, real in zip(FIGURES, found, seen, strict=True) if mine != real)


@cache
def causes() -> tuple[Cause, ...]:
    """All of them, in the order of the file."""
    found = json.loads((Path(__file__).parent / "causes.json").read_text("utf-8"))
    return tuple(
        Cause(
            tuple(entry["programs"]),
            tuple(entry.get("devices", ())),
            Span(*(parse(entry[end]) if end in entry else None for end in ("since", "until"))),
            frozenset(entry["figures"]),
            entry["cause"],
        )
        for entry in found
    )


def cause_of(release: str, device: str, program: str, what: frozenset[str]) -> Cause | None:
    """The first that explains what differs in a cell, None where none does."""
    return next((each for each in causes() if each.explains(release, device, program, what)), None)
