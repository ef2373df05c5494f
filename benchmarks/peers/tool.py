"""What all tools have in common: a name, the figure they speak of, and an answer in bytes or why there is none.

1. A tool is asked in the way its own documentation shows, with what its interface can be told, and nothing is added to
   its answer.
2. **cannot**: its interface has no word for what the case does (several inputs, autocast, an optimizer). That is said
   before it is asked, and scores nothing. **failed**: it was asked and raised.
3. An answer is compared with the measured figure the tool says it predicts: `allocated` (what tensors take), `reserved`
   (what the allocator holds) or `device` (what NVML shows).
4. Seconds are CPU time of the answer alone: imports and the construction of the model are the same for all and not in it.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import analyzer

FIGURES = ("allocated", "reserved", "device")


class CannotSayError(Exception):
    """The tool's interface has no word for this case; the message says for what."""


@dataclass(frozen=True, slots=True)
class Case:
    """kind: "step" (a PyTorch model), "file" (ONNX) or "rank" (a program). measured: bytes by figure. given: what to analyse."""

    kind: str
    tag: str
    measured: dict[str, int]
    given: Any


@dataclass(frozen=True, slots=True)
class Tool:
    """package: where it comes from. figures: what it says it predicts. answer: bytes of each, of a case of `kind`."""

    name: str
    package: str
    kind: str
    figures: tuple[str, ...]
    answer: Callable[[Any], Callable[[], tuple[int, ...]]]

    @property
    def version(self) -> str | None:
        """Of its package; None where that is not installed."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return analyzer.__version__ if self.package == "analyzer" else None  # a checkout nobody installed


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool said of a case. figures: bytes, empty when it did not say; `outcome` is then "cannot" or "failed"."""

    tool: str
    kind: str
    tag: str
    outcome: str
    figures: tuple[int, ...] = ()
    said: str = ""
    seconds: float = 0.0


def ask(tool: Tool, case: Case) -> Answer:
    """The tool's answer. `Tool.answer` prepares (builds the model), what it returns is timed."""
    try:
        question = tool.answer(case.given)
        start = time.process_time()
        figures = question()
        return Answer(tool.name, case.kind, case.tag, "said", figures, seconds=time.process_time() - start)
    except CannotSayError as error:
        return Answer(tool.name, case.kind, case.tag, "cannot", said=str(error))
    except Exception as error:  # a tool's failure is a result
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return Answer(tool.name, case.kind, case.tag, "failed", said=said)
