"""The ways of a target that is no module: a model's configuration, whose job has options of its own, and an
ONNX session, which has settings.

1. The changes that `what-if` offers (`planning/changes.py`) are tried one by one, without more or larger
   GPUs, shorter samples or adapters, which are other jobs.
2. Then together: all that change no number and save memory, and those with each requested one. A change that
   contradicts an earlier one is left out.
3. A way that fits is no part of another.
"""

from __future__ import annotations

from typing import Any

from analyzer.analysis import Analysis
from analyzer.planning.changes import RESULTS, SLOWER, Change, variants
from analyzer_timing.advisor.trials import Trials
from analyzer_timing.results import Way

_OTHER_JOBS = ("length", "lora", "parallel", "device")
MOST = 12


class Settings:
    """Search over settings. base: the job as it is. numbers: may change computed numbers."""

    def __init__(self, trials: Trials, base: tuple[Way, Analysis], numbers: bool, target: Any) -> None:
        self._trials, self._base, self._target = trials, base, target
        self._most = RESULTS if numbers else SLOWER
        self.tried: list[Way] = [base[0]]

    def run(self) -> list[Way]:
        """Return every way that was tried."""
        if self._base[0].verdict == "fits":
            return self.tried
        singles = [
            change
            for change in variants(self._base[1], self._trials.options, self._target)
            if change.cost <= self._most and not any(key in change.options for key in _OTHER_JOBS)
        ]
        helping = [change for change in singles if self._helps(self._try([change]))]
        if self._base[1].graph.framework == "onnx":
            return self.tried  # `variants` has them together
        exact = [change for change in helping if change.cost != RESULTS]
        together: list[Change] = []
        for change in exact:
            if _agrees(together, change):
                together = [*together, change]
                if len(together) > 1:
                    self._try(together)
        for change in (part for part in helping if part.cost == RESULTS):
            if _agrees(together, change):
                self._try([*together, change])
        return self.tried

    def _try(self, changes: list[Change]) -> Way | None:
        if self._trials.count >= MOST:
            return None
        way = self._trials.way(changes)
        if all(other.name != way.name for other in self.tried):
            self.tried.append(way)
        return way

    def _helps(self, way: Way | None) -> bool:
        """Return whether a way takes less than the job as it is, but does not fit."""
        before = self._base[0].estimate
        if way is None or way.estimate is None or before is None or way.verdict == "fits":
            return False
        return way.estimate.needed.device_used < before.needed.device_used


def _agrees(changes: list[Change], more: Change) -> bool:
    """Whether it sets nothing else than these do; settings of a runtime are added up."""
    options = {key for change in changes for key in change.options}
    return not any(key in options and key != "runtime_options" for key in more.options)
