"""The answer to "which is the fastest way that fits?" (`analyzer_timing/advise.py` looks for it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analyzer.results.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the job, analysed. name: "adamw_fused + checkpoint layers.[0-3]". changes: options that
    differ from the job's; typed: the same as the command line takes them.

    estimate: what it needs and takes, None where it does not run; error: what was said then. operations:
    counted a sample, by which ways are ordered where no time is known. numbers: whether it changes the
    numbers a model computes.
    """

    name: str
    changes: Mapping[str, Any]
    estimate: Estimate | None
    typed: str = ""
    error: str = ""
    operations: float = 0.0
    numbers: bool = False

    @property
    def seconds(self) -> float | None:
        """Time of a step with all its micro-batches; None if unknown."""
        time = None if self.estimate is None else self.estimate.step_seconds
        return None if time is None else time.seconds

    @property
    def verdict(self) -> str:
        """`Estimate.verdict`, or "does not run"."""
        return "does not run" if self.estimate is None else self.estimate.verdict()


@dataclass(frozen=True, slots=True)
class Bound:
    """Least bytes the device must have for one sample, whatever is recomputed. device_bytes: in all;
    beside_bytes: the part outside the allocator. place: where that much is alive at once."""

    device_bytes: int
    beside_bytes: int
    place: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer. base: the job as it is. ways: those that fit, fastest first, then those that may fit;
    others: what was tried besides.

    bound: looked for where nothing fits, None otherwise. missing_bytes: by how much the bound is above what
    may be used: nothing offered can fit; 0: not proven. wanted: samples a second that were asked for;
    reached: whether the best way has them, by its step's time, None where nothing was asked. patch: the
    target's file with the best way's blocks checkpointed, as a unified diff, "" where nothing is to be
    patched; patch_proven: whether the changed file was analysed and takes the same bytes. analyses: how many
    were made. notes: what a reader should know.
    """

    base: Way
    ways: tuple[Way, ...]
    others: tuple[Way, ...] = ()
    bound: Bound | None = None
    missing_bytes: int = 0
    wanted: float | None = None
    reached: bool | None = None
    patch: str = ""
    patch_proven: bool = False
    analyses: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def best(self) -> Way | None:
        """The fastest way that fits; where none is known to, the fastest that may; None without either."""
        return self.ways[0] if self.ways else None
