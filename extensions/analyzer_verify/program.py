"""A whole program: its prediction (`analyze run`) beside the program really run, as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer_programs.program import follow, place_of
from analyzer_verify import pytorch
from analyzer_verify.results import Verification
from analyzer_verify.runs import jobs, machine

TIMEOUT_SECONDS = 24 * 3600


def verify_program(
    script: str | os.PathLike[str],
    arguments: Sequence[str],
    options: Options,
    force: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Verification:
    """Predict a program, run it, compare. script: as in `analyzer.run`.

    Every step is predicted and recorded, also those that repeat. Raises MissingDependencyError without a GPU,
    DoesNotFit, RunError, and what `analyzer.run` raises.
    """
    tell = progress or (lambda _: None)
    name, place = place_of(script)
    gpu = machine.require_cuda(name)
    words = [str(argument) for argument in arguments]
    predicted, error = follow(script, words, options, {}, progress=progress, whole=True)
    if isinstance(error, AnalyzerError):
        raise error
    notes = machine.check_room(predicted.estimate.device_used, gpu, force)
    tell("running the program")
    job = {
        "kind": "whole_program",
        "script": str(place),
        "module": isinstance(place, str),
        "arguments": words,
        "timeout_seconds": TIMEOUT_SECONDS,
    }
    measured = jobs.result_of(jobs.run(job, jobs.environment_of(options)), name)
    tell("comparing")
    return compared(predicted, measured, machine.fingerprint(gpu), notes)


def compared(
    predicted: Analysis,
    measured: Mapping[str, Any],
    environment: Mapping[str, str],
    notes: Sequence[str] = (),
) -> Verification:
    """Compare an analysis with a result of `whole_program.run`, new or recorded.

    A real run marks the ends of optimizer steps alone; other named events of the prediction are not compared.
    """
    measured_events = {mark["event"] for mark in measured["marks"]}
    marks = tuple(mark for mark in predicted.estimate.marks if mark.event in measured_events)
    shown = replace(predicted, estimate=replace(predicted.estimate, marks=marks))
    return pytorch.compared(shown, measured, None, environment, notes)
