"""One way to run a job otherwise, analysed (`planning/what_if.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.results.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to run the job. name: "amp bf16 + checkpoint layers.*". changes: options that differ from the
    base; typed: the same as the command line takes them.

    estimate: what it needs, None where it does not run; error: what was said then.
    extra_compute: operations a sample added, as a share of the base's (0.33: a third more).
    saved: bytes of device memory less than the base, both with room. largest: batch that fits afterwards,
    None where not asked.
    recomputable: of the base in training, bytes kept for backward that can be computed again without anything
    heavy done twice.
    """

    name: str
    changes: Mapping[str, Any]
    estimate: Estimate | None
    cost: int = 0
    extra_compute: float = 0.0
    saved: int = 0
    error: str = ""
    largest: int | None = None
    typed: str = ""
    recomputable: int = 0
