"""Changes of settings, arguments or text that make a program fit that runs out of memory, all followed.

1. Settings of the allocator come first: they are the recorded requests served again (`Fragmentation`).
2. Then the changes of `script_edits.py` and `batch_edits.py`, one by one: first those that change no number,
   then the batch, other numbers, and pairs where no single one fits. Where an evaluation finds no memory, its
   own batch comes first. Each is followed on the same device as the program was (`trial.py`).
3. It ends after `_WANTED` that fit, `_MOST` that were followed, `_SECONDS`, or Ctrl-C; what is known stays,
   and sentences name the rest: what may not fit, was not enough, took too long, could not be written.
4. Before the first step of an optimizer, its settings change nothing: they are not tried.
5. Where nothing fits, the smallest known GPU that holds the program as it is, followed there (`cards.py`).

Not modelled: what a change does to a model's quality.
"""

from __future__ import annotations

import difflib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.analysis import Analysis
from analyzer.graph import Phase
from analyzer.options import Options
from analyzer.report.verdicts import verdicts
from analyzer.report.words import size
from analyzer.results.diagnosis import Remedy
from analyzer.runtimes.under_settings import SETTINGS, setting_name, under_setting
from analyzer_programs.ways.batch_edits import accumulated, smaller
from analyzer_programs.ways.cards import larger
from analyzer_programs.ways.script_edits import Edit, Symptoms, edits
from analyzer_programs.ways.trial import Outcome, Program

_WANTED, _MOST, _SECONDS, _PARTS = 3, 14, 240.0, (2, 4, 8, 16)
_BEFORE_A_STEP = ("setup", "input", "forward", "loss", "backward")
_HALF = ("float16", "bfloat16")


@dataclass(slots=True)
class Ways:
    """remedies: changes with which it fits. attempts: sentences on the others. interrupted: by Ctrl-C."""

    remedies: list[Remedy] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    interrupted: bool = False


def ways_out(
    script: str,
    arguments: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    until: str | int,
    analysis: Analysis,
    progress: Callable[[str], None] | None = None,
) -> Ways:
    """Return what makes the program fit, and where nothing does, the card that is large enough."""
    program = Program(script, tuple(arguments), options, environment, until, analysis)
    ways = Ways([*_settings(analysis)])
    tell = progress or (lambda _: None)
    path = Path(script)
    if path.suffix == ".py" and path.is_file():
        _Search(program, path.read_text(encoding="utf-8"), ways, tell).run()
    if not ways.remedies and not ways.interrupted:
        ways.remedies += larger(program, tell)
    if (scores := _math_attention(analysis)) and ways.remedies:
        ways.attempts.append(scores)
    return ways


class _Search:
    """One search over the changes of a script's text and arguments."""

    def __init__(self, program: Program, text: str, ways: Ways, tell: Callable[[str], None]) -> None:
        self._program, self._text, self._ways, self._tell = program, text, ways, tell
        self._tried, self._begun = 0, time.monotonic()
        self._known: set[tuple[str, tuple[str, ...] | None]] = set()
        self._short: list[str] = []  # names of changes that are not enough
        self._left: list[str] = []  # names of changes that were not tried
        self._stopped = ""

    def run(self) -> None:
        """Follow the changes, and say what became of each."""
        ways, analysis = self._ways, self._program.analysis
        self._tell(f"{verdicts(analysis.estimate)[0][1]}; changes that make it run are looked for")
        wanted = 1 if analysis.estimate.growth else _WANTED  # what ends a leak is the answer
        every = chain(_in_order(self._text, self._program.arguments, analysis), _pairs(self._text, analysis))
        for edit in every:
            if len(ways.remedies) >= wanted or (ways.remedies and " + " in edit.name):
                break
            if not self._is_new(edit):
                continue
            if self._tried >= _MOST or time.monotonic() - self._begun > _SECONDS:
                self._stopped = self._stopped or f"the search ended after {self._seconds()}"
            if self._stopped:
                if " + " in edit.name:
                    break
                self._left.append(edit.name)
            else:
                self._try(edit)
        self._ways.attempts += self._sentences()

    def _is_new(self, edit: Edit) -> bool:
        """Return whether a change is to be tried; one that cannot be is named."""
        if edit.why:
            self._ways.attempts.append(f"{edit.name}: not tried, {edit.why}")
            return False
        if (edit.text, edit.arguments) in self._known:
            return False
        self._known.add((edit.text, edit.arguments))
        return "batch" not in edit.name or not any("batch" in one.name for one in self._ways.remedies)

    def _try(self, edit: Edit) -> None:
        self._tried += 1
        self._tell(f"advice after {self._seconds()}: change {self._tried}, {edit.name}")
        outcome = self._program.outcome(edit)
        if outcome.interrupted:
            self._stopped = f"the search was interrupted after {self._seconds()}"
            self._left.append(edit.name)
            self._ways.interrupted = True
        elif outcome.estimate is not None and outcome.verdict == "fits":
            self._ways.remedies.append(_remedy(edit, self._text, self._program, outcome))
        elif outcome.why and not (outcome.failed and " of line " in edit.name):
            self._ways.attempts.append(f"{edit.name}: {outcome.why}")
        elif not outcome.failed:
            self._short.append(edit.name)

    def _sentences(self) -> Iterator[str]:
        # Of changes of one name, in two places, the one that is enough is named.
        enough = {one.name for one in self._ways.remedies}
        if short := [name for name in self._short if name not in enough]:
            yield f"not enough: {'; '.join(short)}"
        if self._left:
            named = "; ".join(self._left[:4]) + (f" and {len(self._left) - 4} more" * (len(self._left) > 4))
            command = self._program.command(self._program.least + 1)
            yield f"{self._stopped}; not tried: {named}; with fewer steps it gets further:\n{command}"

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._begun:.0f} s"


def _in_order(text: str, arguments: Sequence[str], analysis: Analysis) -> Iterator[Edit]:
    """Yield the changes in the order they are tried, without pairs of them."""
    models, known = analysis.graph.models, _symptoms(analysis)
    single = [edit for edit in edits(text, models, known) if _may_help(edit, analysis)]
    evaluates = _fails_in_evaluation(analysis)
    if evaluates:  # what changes the training is no answer
        yield from (edit for edit in single if edit.cuts)
        for by in _PARTS:
            yield from (edit for edit in smaller(text, arguments, models, by) if "of line" in edit.name)
    yield from (edit for edit in single if not edit.numbers)
    if analysis.estimate.growth:  # a smaller step is full later
        return
    if known.trains and not evaluates:
        for by in _PARTS[:2]:
            yield from (edit for edit in accumulated(text, arguments, models, by) if not edit.why or by == 2)
    for by in _PARTS:
        yield from smaller(text, arguments, models, by)
    yield from (edit for edit in single if edit.numbers)


def _may_help(edit: Edit, analysis: Analysis) -> bool:
    """Return whether a change can matter where memory ran out."""
    failed = analysis.estimate.out_of_memory
    is_before_a_step = failed is not None and not analysis.steps and failed.phase in _BEFORE_A_STEP
    return not (is_before_a_step and edit.name.startswith(("optimizer ", "eval_")))


def _pairs(text: str, analysis: Analysis) -> Iterator[Edit]:
    """Yield pairs of changes, the first of which changes no numbers, those of an optimizer last."""
    models, known = analysis.graph.models, _symptoms(analysis)
    first = [edit for edit in edits(text, models, known) if not edit.numbers and not edit.why]
    for one in sorted(first, key=_is_of_optimizer):
        for other in edits(one.text, models, Symptoms(known.trains, half=known.half)):
            if other.name != one.name and not other.why and not _is_of_optimizer(one, other):
                yield Edit(f"{one.name} + {other.name}", other.text, None, other.numbers, one.cuts)


def _is_of_optimizer(*changes: Edit) -> bool:
    """Return whether all of the changes are of an optimizer, which takes one of them at a time."""
    return all(edit.name.startswith("optimizer ") for edit in changes)


def _fails_in_evaluation(analysis: Analysis) -> bool:
    """Return whether the request without memory was one of an evaluation."""
    failed = analysis.estimate.out_of_memory
    phases = {
        operator.phase
        for operator in analysis.graph.operators
        if failed is not None and (operator.name, operator.source) == (failed.operator, failed.source)
    }
    return bool(phases) and phases <= {Phase.EVALUATION, Phase.GENERATION}


def _symptoms(analysis: Analysis) -> Symptoms:
    estimate = analysis.estimate
    growth, failed = estimate.growth, estimate.out_of_memory
    return Symptoms(
        estimate.mode == "train",
        "" if growth is None else growth.source.rpartition(":")[2],
        "" if growth is None else growth.held_by,
        failed is not None and failed.exception_bytes > 0,
        failed is not None and failed.cycle_bytes > 0,
        any(
            output is not None and output.dtype in _HALF
            for operator in analysis.graph.operators
            if operator.phase is Phase.FORWARD
            for output in operator.outputs
        ),
    )


def _math_attention(analysis: Analysis) -> str:
    """Return a sentence on attention that runs without a fused kernel; "" where none does."""
    graph = analysis.graph
    scores = {
        output.storage: operator.source
        for operator in graph.operators
        if operator.name.startswith("aten::_safe_softmax") and operator.step == 0
        for output in operator.outputs
        if output is not None
    }
    if not scores:
        return ""
    kept = sum(graph.storages[index].nbytes for index in scores if graph.storages[index].saved)
    most = max(graph.storages[index].nbytes for index in scores)
    takes = f"keeps {size(kept)} of scores for the backward pass" if kept else f"takes {size(most)} of scores"
    return (
        f"attention at {next(iter(scores.values()))} runs as the math kernel on {analysis.profile.name}, not"
        f" as flash or efficient attention: it {takes}"
    )


def _remedy(edit: Edit, text: str, program: Program, outcome: Outcome) -> Remedy:
    estimate = outcome.estimate
    assert estimate is not None
    kind = "patch" if edit.text else "arguments"
    typed = _patch(text, edit.text, program.script) if edit.text else " ".join(edit.arguments or ())
    time = estimate.step_seconds
    return Remedy(
        edit.name,
        kind,
        typed,
        estimate.peak_allocated,
        estimate.peak_reserved,
        estimate.device_used,
        edit.numbers,
        outcome.host_bytes if "host" in edit.name else 0,
        None if time is None else time.seconds,
        outcome.state,
    )


def _patch(before: str, after: str, script: str) -> str:
    """Return a diff that `git apply` and `patch -p1` take in the folder the script's path is relative to."""
    path = Path(script)
    here = Path(os.path.relpath(path)) if path.is_absolute() else path
    name = path.name if ".." in here.parts else here.as_posix()
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=1
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _settings(analysis: Analysis) -> Iterator[Remedy]:
    """Yield the setting of the allocator under which the program runs and takes least."""
    estimate = analysis.estimate
    rows = () if estimate.fragmentation is None else estimate.fragmentation.settings
    row = next((row for row in rows if row.fits), None)
    if row is None:
        return
    allocated, reserved = row.peak_allocated, row.peak_reserved
    beside = row.device_used - reserved
    if row.device_used > estimate.usable_bytes:  # it fits since what is cached is given back
        change = next(change for change in SETTINGS if setting_name(change) == row.setting)
        allocator = analysis.prediction.allocator()
        assert isinstance(allocator, PyTorchAllocator)
        limit = estimate.usable_bytes - beside
        held = under_setting(analysis.events, allocator.settings, change, limit)
        allocated, reserved = held.peak_allocated, held.peak_reserved
    typed = f"PYTORCH_ALLOC_CONF={row.setting}"
    yield Remedy(row.setting, "environment", typed, allocated, reserved, reserved + beside)
