"""The measured sets: rows as committed, the models they were measured with, and the allocator's recorded histories."""

from __future__ import annotations

import functools
import io
import json
import tarfile
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from analyzer_verify.runs.program import encode
from benchmarks import ROOT

DATA = ROOT / "tests" / "data" / "h200"

NAMES = ("development", "held_out", "held_out_2", "held_out_3")
_ZOOS = {"development": "development", "held_out_3": "held_out_3"}


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """One measured run. `peaks`, `device_used` in bytes; `history` as `analyzer_verify.history` takes it."""

    set_name: str
    number: int
    case: dict[str, Any]
    peak_allocated: int
    peak_reserved: int
    device_used: int
    versions: str

    @property
    def tag(self) -> str:
        """ "resnet50 32 train adam amp=bf16"."""
        plain = [str(self.case[k]) for k in ("model", "batch", "mode")]
        if self.case["mode"] == "train":
            plain.append(str(self.case["opt"]))
        more = [f"{k}={v}" for k, v in self.case.items() if k not in ("model", "batch", "mode", "opt")]
        return " ".join([*plain, *more])

    def history(self) -> list[int]:
        """Allocations as sizes, frees as -1 - (number of the allocation)."""
        if self.set_name == "development":
            return _development_history(self.number)
        return _held_out_history(self.set_name, self.number)


@functools.cache
def load(set_name: str) -> tuple[MeasuredCase, ...]:
    """The rows of a set, in the order they were measured."""
    rows = json.loads((DATA / f"{set_name}.json").read_text())
    return tuple(
        MeasuredCase(
            set_name=set_name,
            number=number,
            case=row["case"],
            peak_allocated=row["peak_allocated"],
            peak_reserved=row["peak_reserved"],
            device_used=row["nvml_process"]["end"][0],
            versions=f"{row['gpu']}, torch {row['torch']}, cuDNN {row['cudnn']}",
        )
        for number, row in enumerate(rows)
    )


def zoo(set_name: str) -> ModuleType:
    """The module with `M` (models) and `OPT` (optimizers) of a set."""
    import importlib

    from benchmarks.subjects.networks import torchvision_cpu

    torchvision_cpu.enable()
    return importlib.import_module(f"benchmarks.subjects.networks.{_ZOOS.get(set_name, 'held_out')}")


def _development_history(number: int) -> list[int]:
    with tarfile.open(DATA / "traces.tgz") as archive:
        file = archive.extractfile(f"truth/{number:03d}.npz")
        assert file is not None
        trace = np.load(io.BytesIO(file.read()))
    actions = trace["actions"][trace["act"]].tolist()
    events = zip(actions, trace["addr"].tolist(), trace["size"].tolist(), strict=True)
    return encode({"action": action, "addr": address, "size": size} for action, address, size in events)


@functools.cache
def _held_out_arrays(set_name: str) -> Any:
    return np.load(DATA / f"{set_name}_histories.npz")


def _held_out_history(set_name: str, number: int) -> list[int]:
    arrays, prefix = _held_out_arrays(set_name), f"{number:03d}_"
    act, size, ids = (arrays[prefix + name] for name in ("act", "size", "id"))
    return [int(s) if a > 0 else -1 - int(i) for a, s, i in zip(act, size, ids, strict=True)]
