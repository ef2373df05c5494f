"""A pipeline followed with each choice of its options: `program.py` under the tracer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from analyzer.engines.choice import EngineChoice
from analyzer.options import Options
from analyzer_pipelines.configurations import PROGRAM
from analyzer_pipelines.results import PipelineMemory, Run
from analyzer_pipelines.stages import stages


def pipeline_memory(
    name: str,
    kind: str,
    folder: Path,
    choices: Iterable[tuple[str, Sequence[str]]],
    options: Options,
    tell: Callable[[str], None],
    unprotected: bool = False,
) -> PipelineMemory:
    """Return the memory of a pipeline's runs. kind: the pipeline's class. choices: a run's title, and its
    arguments of `program.py`. Raises AnalyzerError where nothing ran."""
    choice = EngineChoice("trace", None, None, True, tell, unprotected)
    runs: list[Run] = []
    for title, arguments in choices:
        tell(f"following {title}")
        answer = choice.analyze_program(PROGRAM, [str(folder), *arguments], options, {})
        estimate = answer.estimate
        if answer.error is not None and not estimate.marks:
            raise answer.error
        runs.append(
            Run(
                title,
                estimate.peak_allocated,
                estimate.peak_reserved,
                estimate.device_used,
                estimate.reserved_range,
                "not known" if estimate.incomplete else estimate.verdict(),
                stages(estimate),
                (*estimate.caveats, *estimate.notes),
                estimate.incomplete or "",
            )
        )
    return PipelineMemory(name, kind, estimate.device, estimate.allowed_bytes, tuple(runs))
