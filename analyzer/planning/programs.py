"""One target under changed options. It is opened once; ways that differ in the runtime's settings alone are
one captured program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from analyzer.analysis import Analysis
from analyzer.options import Options
from analyzer.pipeline import analysis
from analyzer.pipeline.workload import Workload


class Programs:
    """One target under changed options. opened: as the job is."""

    def __init__(self, target: Any, options: Options) -> None:
        """Opens the target. Raises AnalyzerError."""
        self._target, self.opened = target, Workload(target, options)
        self._kept: dict[str, Workload] = {}

    def under(self, options: Options, changes: Mapping[str, Any]) -> Workload:
        """Return the target under changed options, any batch. Raises AnalyzerError."""
        program = _program_of(changes)
        if program not in self._kept:
            self._kept[program] = self.opened.under(replace(options, batch=None))
        return self._kept[program].alike(runtime_options=options.runtime_options)

    def analysis(
        self,
        options: Options,
        changes: Mapping[str, Any],
        progress: Callable[[str], None] | None = None,
        needs: bool = True,
    ) -> Analysis:
        """Return the analysis under changed options. needs: as `analysis` takes it. Raises AnalyzerError."""
        if options.batch is None:
            return analysis(self._target, options, progress, needs)
        workload = self.under(options, changes)
        workload.progress = progress
        if workload.runtime is None:
            return analysis(self._target, workload.at(options.batch), progress, needs)
        return workload.analysis(options.batch)

    def keep(self, every: Iterable[Mapping[str, Any]]) -> None:
        """Drop the captures of all programs but those under these changes."""
        needed = set(map(_program_of, every))
        self._kept = {program: known for program, known in self._kept.items() if program in needed}


def _program_of(changes: Mapping[str, Any]) -> str:
    """Return a key of the changes that affect the program itself, without runtime options."""
    return repr(sorted((name, repr(value)) for name, value in changes.items() if name != "runtime_options"))
