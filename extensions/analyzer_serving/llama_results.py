"""llama.cpp's memory, as it was started where no GPU is (`analyzer_serving/engines/llama_cpp.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer as the log has it. place: CUDA0, CPU_Mapped, ...; kind: model, KV, RS (states), output,
    compute; mib: two digits, its own."""

    place: str
    kind: str
    mib: float


@dataclass(frozen=True, slots=True)
class Phase:
    """used: bytes of each device in use after it."""

    name: str
    used: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A context, and the device's memory with it when every sequence is full; used is None where it did
    not start."""

    context: int
    kv_mib: float
    compute_mib: float
    used: int | None


@dataclass(frozen=True, slots=True)
class LlamaMemory:
    """llama.cpp as it started, or did not. layers: on the GPU, and all; context: tokens of all sequences;
    context_of_sequence: of each; error: its own words, None where it started; settings: its own; curve:
    contexts asked for; changes: what was found by starting it again."""

    name: str
    device: str
    device_note: str
    engine: str
    capacity: int
    buffers: tuple[Buffer, ...] = ()
    phases: tuple[Phase, ...] = ()
    layers: tuple[int, int] = (0, 0)
    context: int = 0
    context_of_sequence: int = 0
    sequences: int = 1
    trained: int = 0
    error: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it started, decoded, and filled its context."""
        return self.error is None

    @property
    def most(self) -> tuple[int, ...]:
        """Bytes of each device in use in the last phase that it came to."""
        return self.phases[-1].used if self.phases else ()

    def mib(self, kind: str, host: bool = False) -> float:
        """MiB of a kind of buffers on the devices, or on the host."""
        return sum(one.mib for one in self.buffers if one.kind == kind and is_host(one.place) == host)


def is_host(place: str) -> bool:
    """Return whether a buffer lies in the host's memory (ggml's names: CPU, CPU_Mapped, CPU_REPACK,
    CUDA_Host)."""
    return place.startswith("CPU") or place.endswith("_Host")
