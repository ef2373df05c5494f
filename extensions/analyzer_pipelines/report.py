"""A pipeline's memory as text (the verdict, the stages of one run or a line for each of several) and JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from analyzer.report.formats import PLAIN, View
from analyzer.report.words import clean, size

if TYPE_CHECKING:
    from analyzer_pipelines.results import PipelineMemory, Run


def text(memory: PipelineMemory, _: View = PLAIN) -> str:
    """Return the result as text of 80 columns."""
    lines = [*textwrap.wrap(_verdict(memory), 80), "", f"{clean(memory.name)} · {clean(memory.pipeline)}", ""]
    if len(memory.runs) == 1:
        lines += _stages(memory.runs[0])
    else:
        lines += _table(memory)
    notes = dict.fromkeys(note for run in memory.runs for note in run.notes)
    if notes:
        lines += ["", "Notes"]
        for note in notes:
            lines += textwrap.wrap(clean(note), 80, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _verdict(memory: PipelineMemory) -> str:
    if len(memory.runs) == 1:
        run = memory.runs[0]
        if run.ended:
            return f"not known: {clean(run.ended)}"
        stage = run.largest
        where = f", most of it in {clean(stage.name)}" if stage else ""
        return f"{run.verdict}: {size(run.device_used)} of {size(memory.capacity)} on {memory.device}{where}"
    fitting = [run for run in memory.runs if run.verdict == "fits"]
    if not fitting:
        return f"none of {len(memory.runs)} runs fits {size(memory.capacity)} on {memory.device}"
    return f"{len(fitting)} of {len(memory.runs)} runs fit {size(memory.capacity)} on {memory.device}"


def _stages(run: Run) -> Iterator[str]:
    """Yield one run's figures and stages."""
    yield f"{clean(run.title):<32}{'allocated':>13}{'reserved':>13}{'device':>13}"
    yield "─" * 71
    figures = (run.peak_allocated, run.peak_reserved, run.device_used)
    yield f"{'peak':<32}" + "".join(f"{size(one):>13}" for one in figures)
    for stage in run.stages:
        name = clean(stage.name) + (f" ({stage.calls} times)" if stage.calls > 1 else "")
        peak = "  ← the peak" if stage is run.largest else ""
        yield f"{name:<32}{size(stage.peak_allocated):>13}{size(stage.peak_reserved):>13}{peak}"


def _table(memory: PipelineMemory) -> Iterator[str]:
    """Yield a line for each run."""
    yield f"{'run':<30}{'allocated':>11}{'reserved':>11}{'device':>11}  verdict"
    yield "─" * 80
    for run in memory.runs:
        stage = run.largest
        figures = (run.peak_allocated, run.peak_reserved, run.device_used)
        yield f"{clean(run.title):<30}" + "".join(f"{size(one):>11}" for one in figures) + f"  {run.verdict}"
        if run.ended:
            yield from textwrap.wrap(clean(run.ended), 76, initial_indent="  ", subsequent_indent="  ")
        elif stage is not None:
            yield f"  most in {clean(stage.name)}"


def to_json(memory: PipelineMemory, _: View = PLAIN) -> str:
    """Return the result as JSON, all sizes in bytes."""
    return json.dumps(asdict(memory), indent=2) + "\n"
