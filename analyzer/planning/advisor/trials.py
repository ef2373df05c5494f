"""Ways to run one target, each analysed: the only place where the search learns what a way takes.

1. A **change** is a name and the options it sets; a way is several of them, the later ones on top. Settings
   of the runtime are added to those the job has.
2. A target is opened once. Ways that differ in the allocator's settings alone are one captured program.
3. No way is analysed twice for its figures. Graphs are large: the last one is kept.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.pipeline.workload import Workload
from analyzer.report.command_line import changed
from analyzer.results.advice import Way

if TYPE_CHECKING:
    import torch

AS_IT_IS = "as it is"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the options. numbers: it changes the numbers a model computes."""

    name: str
    options: Mapping[str, Any]
    numbers: bool = False


class Trials:
    """Analyses one target under changed options. Raises AnalyzerError if the target cannot be opened."""

    def __init__(self, target: Any, options: Options, progress: Callable[[str], None] | None = None) -> None:
        self.options, self.count = options, 0
        self._target, self._progress = target, progress
        self._subject = Workload(target, options)
        self._programs: dict[str, Workload] = {}
        self._known: dict[str, Way] = {}
        self._last: tuple[str, Analysis | None] = ("", None)

    @property
    def model(self) -> torch.nn.Module | None:
        """The PyTorch module, None for other targets."""
        return self._subject.model

    @property
    def config(self) -> bool:
        """Whether the target is a model's configuration."""
        return self._subject.config

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
        numbers = any(change.numbers for change in changes)
        typed = changed(self.options, merged)
        self.count += 1
        # A capture is left in cycles, some hundred MiB, and a command line collects none by itself.
        gc.collect()
        try:
            found = self._analysis(options, merged)
        except AnalyzerError as error:
            way = Way(name, merged, None, typed, error.message, numbers=numbers)
            self._known[name] = way
            return way, None
        operations = _operations(found, options) if found.estimate.step_seconds is None else 0.0
        way = Way(name, merged, found.estimate, typed, operations=operations, numbers=numbers)
        self._known[name], self._last = way, (name, found)
        return way, found

    def merged(self, changes: Sequence[Change]) -> dict[str, Any]:
        """The options of several changes together."""
        merged: dict[str, Any] = {}
        settings = dict(self.options.runtime_options)
        for change in changes:
            merged |= change.options
            settings |= change.options.get("runtime_options", {})
        return {**merged, "runtime_options": settings} if "runtime_options" in merged else merged

    def _analysis(self, options: Options, merged: Mapping[str, Any]) -> Analysis:
        """Analyse under changed options, with the captures of an earlier way that has the same program."""
        if options.batch is None or self._subject.runtime is None:
            return analysis(self._target, options)
        program = repr(
            sorted((key, repr(value)) for key, value in merged.items() if key != "runtime_options")
        )
        known = self._programs.get(program)
        if known is None:
            # Of other programs the captures are not needed again: one is kept.
            known = self._subject.under(replace(options, batch=None))
            self._programs = {program: known}
        return known.alike(runtime_options=options.runtime_options).analysis(options.batch)


def _name(changes: Sequence[Change]) -> str:
    return " + ".join(change.name for change in changes) or AS_IT_IS


def _operations(found: Analysis, options: Options) -> float:
    """Return floating-point operations per sample, 0 where they are not counted."""
    if found.graph.framework != "pytorch" or options.mode == "generate":
        return 0.0
    from analyzer.planning.flops import flops

    return flops(found.graph) / ((found.graph.batch or 1) * options.grad_accumulation)
