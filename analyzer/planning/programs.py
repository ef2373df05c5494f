"""One target under changed options: opened once; what differs in the runtime's settings alone is one captured
program."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from analyzer.options import Options
from analyzer.pipeline.workload import Workload


class Programs:
    """The workloads of one target. opened: as the job is."""

    def __init__(self, target: Any, options: Options) -> None:
        """Opens the target. Raises AnalyzerError."""
        self.opened = Workload(target, options)
        self._kept: dict[str, Workload] = {}

    def under(self, options: Options, changes: Mapping[str, Any]) -> Workload:
        """Return the target under changed options, any batch. Raises AnalyzerError."""
        program = _program_of(changes)
        if program not in self._kept:
            self._kept[program] = self.opened.under(replace(options, batch=None))
        return self._kept[program].alike(runtime_options=options.runtime_options)

    def keep(self, every: Iterable[Mapping[str, Any]]) -> None:
        """Drop captures of all programs but those under these changes. They are left in cycles, some hundred
        MiB, and a command line collects none by itself."""
        needed = set(map(_program_of, every))
        self._kept = {program: known for program, known in self._kept.items() if program in needed}
        gc.collect()


def _program_of(changes: Mapping[str, Any]) -> str:
    """Return a key of the changes that affect the program itself, without runtime options."""
    return repr(sorted((name, repr(value)) for name, value in changes.items() if name != "runtime_options"))
