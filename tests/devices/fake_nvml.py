"""pynvml of a machine that is made up: its GPUs, who runs on them, and what is broken."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from analyzer.devices import nvml


@dataclass
class Card:
    """A GPU, or an instance of one: names, memory in bytes (total, free, used), and the processes on it."""

    uuid: str
    name: str | bytes = b"NVIDIA H200"
    memory: tuple[int, int, int] = (100, 30, 70)
    processes: dict[int, int | None] = field(default_factory=lambda: {1: 70})


class FakeNvml(types.ModuleType):
    """Handles are the `Card`s themselves. broken: what opening raises. opened: how often it is open."""

    class NVMLError(Exception):
        pass

    class NVMLError_LibraryNotFound(NVMLError):
        pass

    def __init__(self, *cards: Card, instances: tuple[Card, ...] = ()) -> None:
        super().__init__("pynvml")
        self.cards, self.instances = cards, instances
        self.broken: Exception | None = None
        self.opened = 0

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.broken
        self.opened += 1

    def nvmlShutdown(self) -> None:
        assert self.opened > 0
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:
        assert self.opened
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        for card in (*self.cards, *self.instances):
            if card.uuid == uuid:
                return card
        raise self.NVMLError("Not Found")

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return card.uuid

    def nvmlDeviceGetName(self, card: Card) -> str | bytes:
        assert self.opened
        return card.name

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> Any:
        total, free, used = card.memory
        return types.SimpleNamespace(total=total, free=free, used=used)

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return [types.SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.processes.items()]


def install(monkeypatch: pytest.MonkeyPatch, fake: FakeNvml) -> FakeNvml:
    """The machine has a driver, and this is its pynvml; every GPU is visible."""
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(nvml, "_DRIVER_FILES", (Path("/"),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake
