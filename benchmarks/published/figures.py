"""Figures other people measured on real GPUs, and the programs that ask for the same (`programs/`).

They stand in `figures.json`, each in its source's unit (MiB where none is said). What makes a figure loose is said there, from its source alone, before anything is predicted for it: loose ones are shown and not counted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# MiB of each unit that sources give figures in.
_UNITS = {"MB": 1e6 / (1 << 20), "GB": 1000 * (1e6 / (1 << 20)), "GiB": 1024}


@dataclass(frozen=True)
class Figure:
    """One run that was published. Sizes in MiB; None: not said.

    torch: the release it ran with. allocated, reserved: of PyTorch's allocator. device: what NVML shows, of the process or of a GPU
    with nothing else on it. others: what other processes hold of the GPU's memory, where that is said. loose: why this figure ("allocated", "reserved", "device") is not of the program alone, or not wholly said.
    """

    name: str
    program: tuple[str, ...]
    gpu: str
    torch: str
    source: str
    allocated: float | None = None
    reserved: float | None = None
    device: float | None = None
    loose: tuple[tuple[str, str], ...] = ()
    others: float = 0.0


def _mib(said: float | str | None) -> float | None:
    """MiB of a figure as it is published: "26.26 GiB", "32019456 B", or a number of MiB."""
    if not isinstance(said, str):
        return said
    number, unit = said.split()
    return int(number) / (1 << 20) if unit == "B" else float(number) * _UNITS[unit]


def _figures() -> tuple[Figure, ...]:
    said: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    found = []
    for row in said["figures"]:
        sizes = {kind: _mib(row.pop(kind, None)) for kind in ("allocated", "reserved", "device")}
        read = {"program": tuple(row.pop("program").split()), "source": said["sources"][row.pop("source")]}
        found.append(Figure(**row | read | sizes | {"loose": tuple(row.pop("loose", {}).items())}))
    return tuple(found)


FIGURES = _figures()
