"""Ways to run one target, each analysed: the only place where the search learns what a way takes.

1. A way is several changes, the later ones on top. Settings of the runtime are added to those the job has.
2. A target is opened once. Ways that differ in the runtime's settings alone are one captured program.
3. No way is analysed twice for its figures. Graphs are large: the last one is kept.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer.planning.changes import RESULTS, Change
from analyzer.planning.flops import flops_a_sample
from analyzer.planning.programs import Programs
from analyzer.report.command_line import changed
from analyzer_timing.results import Way

if TYPE_CHECKING:
    import torch

AS_IT_IS = "as it is"


class Trials:
    """Analyses one target under changed options. Raises AnalyzerError if the target cannot be opened."""

    def __init__(self, target: Any, options: Options, progress: Callable[[str], None] | None = None) -> None:
        self.options, self.count = options, 0
        self._progress = progress
        self._programs = Programs(target, options)
        self._known: dict[str, Way] = {}
        self._last: tuple[str, Analysis | None] = ("", None)

    @property
    def model(self) -> torch.nn.Module | None:
        """The PyTorch module, None for other targets."""
        return self._programs.opened.model

    @property
    def config(self) -> bool:
        """Whether the target is a model's configuration."""
        return self._programs.opened.config

    def way(self, changes: Sequence[Change]) -> Way:
        """Return the way's analysis, or its error if it does not run."""
        known = self._known.get(_name(changes))
        return known if known is not None else self.analysed(changes)[0]

    def knows(self, changes: Sequence[Change]) -> bool:
        """Return whether these changes were analysed."""
        return _name(changes) in self._known

    def with_graph(self, changes: Sequence[Change]) -> tuple[Way, Analysis | None]:
        """The same with its analysis, None where it does not run."""
        name = _name(changes)
        if name == self._last[0]:
            return self._known[name], self._last[1]
        return self.analysed(changes)

    def analysed(self, changes: Sequence[Change]) -> tuple[Way, Analysis | None]:
        """Analyse a way anew; return it with its analysis, None if it does not run."""
        name = _name(changes)
        self._last = ("", None)
        if self._progress is not None:
            self._progress(name)
        merged = self.merged(changes)
        options = replace(self.options, **merged)
        numbers = any(change.cost == RESULTS for change in changes)
        typed = changed(self.options, merged)
        self.count += 1
        try:
            # Captures of other programs are not needed again. They are left in cycles, some hundred MiB, and
            # a command line collects none by itself.
            self._programs.keep([merged])
            gc.collect()
            analysis = self._programs.analysis(options, merged)
        except AnalyzerError as error:
            way = Way(name, merged, None, typed, error.message, numbers=numbers)
            self._known[name] = way
            return way, None
        operations = flops_a_sample(analysis, options) if analysis.estimate.step_seconds is None else 0.0
        way = Way(name, merged, analysis.estimate, typed, operations=operations, numbers=numbers)
        self._known[name], self._last = way, (name, analysis)
        return way, analysis

    def merged(self, changes: Sequence[Change]) -> dict[str, Any]:
        """The options of several changes together."""
        merged: dict[str, Any] = {}
        settings = dict(self.options.runtime_options)
        for change in changes:
            merged |= change.options
            settings |= change.options.get("runtime_options", {})
        return {**merged, "runtime_options": settings} if "runtime_options" in merged else merged


def _name(changes: Sequence[Change]) -> str:
    return " + ".join(change.name for change in changes) or AS_IT_IS
