"""Changes of settings, arguments or text that make a program fit that runs out of memory, all followed.

1. Settings of the allocator come first: they are the recorded requests served again (`Fragmentation`).
2. Then the changes of `script_edits.py` and `batch_edits.py`, one by one: first those that change no number,
   then the batch, other numbers, and pairs where no single one fits. Where an evaluation finds no memory, its
   own batch comes first. Each is followed on the same device as the program was. One that **fits**
   found memory for everything, to its end or until its steps repeat, after no fewer steps than the program
   itself was followed through with room, and every weight that was trained still is (`_trains_as`).
3. It ends after `_WANTED` that fit, `_MOST` that were followed, or `_SECONDS`.
4. Where nothing fits, the smallest known GPU that holds the program as it is.

Not modelled: what a change does to a model's quality.
"""

from __future__ import annotations

import contextlib
import difflib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.analysis import Analysis
from analyzer.devices import load, names
from analyzer.errors import AnalyzerError
from analyzer.graph import Category, Graph, Phase
from analyzer.options import Options
from analyzer.pipeline.program import concluded, unheard, watched
from analyzer.planning.batch_edits import accumulated, smaller
from analyzer.planning.script_edits import Edit, Symptoms, edits
from analyzer.results.diagnosis import Remedy
from analyzer.results.estimate import Estimate
from analyzer.runtimes.under_settings import SETTINGS, setting_name, under_setting
from analyzer.sandbox import apart

_WANTED, _MOST, _SECONDS, _PARTS = 3, 14, 240.0, (2, 4, 8, 16)


def ways_out(
    script: str,
    arguments: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    until: str | int,
    analysis: Analysis,
    progress: Callable[[str], None] | None = None,
) -> tuple[Remedy, ...]:
    """Return what makes the program fit, and where nothing does, the card that is large enough."""
    estimate = analysis.estimate
    remedies = [*_settings(analysis)]
    path = Path(script)
    if path.suffix == ".py" and path.is_file():
        text, begun = path.read_text(encoding="utf-8"), time.monotonic()
        tried = 0
        collects = estimate.out_of_memory is None or not estimate.out_of_memory.cycle_bytes
        known: set[tuple[str, tuple[str, ...] | None]] = set()
        for edit in chain(_in_order(text, arguments, analysis), _pairs(text, analysis)):
            if remedies and " + " in edit.name:
                break
            if len(remedies) >= _WANTED or tried >= _MOST or time.monotonic() - begun > _SECONDS:
                break
            if (edit.text, edit.arguments) in known:
                continue
            known.add((edit.text, edit.arguments))
            if "batch" in edit.name and any("batch" in remedy.name for remedy in remedies):
                continue
            tried += 1
            if progress is not None:
                progress(f"following it with {edit.name}")
            with contextlib.suppress(AnalyzerError):
                changed = _followed(
                    path, arguments, options, environment, until, analysis.graph, edit, collects
                )
                if changed is not None:
                    remedies.append(_remedy(edit, text, path, changed))
    return tuple(remedies) or _larger(estimate)


def _in_order(text: str, arguments: Sequence[str], analysis: Analysis) -> Iterator[Edit]:
    """Yield the changes in the order they are tried, without pairs of them."""
    models, known = analysis.graph.models, _symptoms(analysis.estimate)
    single = edits(text, models, known)
    evaluates = _fails_in_evaluation(analysis)
    if evaluates:  # what changes the training is no answer
        yield from (edit for edit in single if edit.cuts)
        for by in _PARTS:
            yield from (edit for edit in smaller(text, arguments, models, by) if "of line" in edit.name)
    yield from (edit for edit in single if not edit.numbers)
    if known.trains and not evaluates:
        for by in _PARTS[:2]:
            yield from accumulated(text, arguments, models, by)
    for by in _PARTS:
        yield from smaller(text, arguments, models, by)
    yield from (edit for edit in single if edit.numbers)


def _pairs(text: str, analysis: Analysis) -> Iterator[Edit]:
    """Yield pairs of changes, the first of which changes no numbers."""
    models, known = analysis.graph.models, _symptoms(analysis.estimate)
    for one in (edit for edit in edits(text, models, known) if not edit.numbers):
        for other in edits(one.text, models, Symptoms(known.trains)):
            if other.name != one.name:
                yield Edit(f"{one.name} + {other.name}", other.text, None, other.numbers, one.cuts)


def _fails_in_evaluation(analysis: Analysis) -> bool:
    """Return whether the request without memory was one of an evaluation."""
    failed = analysis.estimate.out_of_memory
    phases = {
        operator.phase
        for operator in analysis.graph.operators
        if failed is not None and (operator.name, operator.source) == (failed.operator, failed.source)
    }
    return bool(phases) and phases <= {Phase.EVALUATION, Phase.GENERATION}


def _symptoms(estimate: Estimate) -> Symptoms:
    growth, failed = estimate.growth, estimate.out_of_memory
    return Symptoms(
        estimate.mode == "train",
        "" if growth is None else growth.source.rpartition(":")[2],
        "" if growth is None else growth.held_by,
        failed is not None and failed.exception_bytes > 0,
        failed is not None and failed.cycle_bytes > 0,
    )


def _followed(
    path: Path,
    arguments: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    until: str | int,
    before: Graph,
    edit: Edit,
    collects: bool,
) -> Estimate | None:
    """Return the estimate of the changed program, None where it does not run, fit, or train as before."""
    steps = max((operator.step for operator in before.operators), default=0)
    with apart(), unheard():
        program = watched(
            str(path),
            arguments if edit.arguments is None else edit.arguments,
            options,
            environment,
            until="steady" if until == "end" else until,
            least_steps=steps,
            seconds=_SECONDS / 2,
            text=edit.text or None,
            collects=collects,  # where cycles keep memory, nothing relies on when Python looks for them
        )
    if program.ran.error is not None or program.ran.unreached or program.ran.cut:
        return None
    if not _trains_as(before, program.ran.graph, edit.cuts):
        return None
    estimate = concluded(program, options, str(path)).estimate
    return estimate if _has_room(estimate) else None


def _has_room(estimate: Estimate) -> bool:
    """Return whether a followed program fits, whatever the process takes beside its allocator: one that has
    room for its workspaces as they are goes on to smaller ones where cuDNN's are larger."""
    certainty, beside = estimate.certainty, estimate.device_used - estimate.peak_reserved
    most = max((certainty.beside_range or (beside, beside))[1], beside) + certainty.kept_bytes
    within = estimate.within(estimate.allowed_bytes) and not (estimate.doubt or estimate.at_least)
    return estimate.verdict() == "fits" or (
        within and estimate.peak_reserved + most <= estimate.allowed_bytes
    )


def _trains_as(before: Graph, after: Graph, cuts: bool) -> bool:
    """Return whether every weight that an optimizer changes still is: a change that cuts a graph, or ends the
    program earlier, saves memory too. cuts: whether the backward pass does what it did is asked besides."""
    if not _trained(before) <= _trained(after):
        return False
    steps = [operator.step for operator in before.operators if operator.phase is Phase.BACKWARD]
    return not cuts or not steps or _backward(before, min(steps)) <= _backward(after, min(steps))


def _trained(graph: Graph) -> set[str]:
    """Return the names of the weights that optimizers wrote."""
    weights = {
        storage.index: storage.name for storage in graph.storages if storage.category is Category.PARAMETER
    }
    return {
        weights[index]
        for operator in graph.operators
        if operator.phase is Phase.OPTIMIZER
        for index in operator.writes
        if index in weights
    }


def _backward(graph: Graph, step: int) -> Counter[str]:
    """Return the operators of a step's backward passes."""
    return Counter(
        operator.name
        for operator in graph.operators
        if operator.phase is Phase.BACKWARD and operator.step == step
    )


def _remedy(edit: Edit, text: str, path: Path, estimate: Estimate) -> Remedy:
    if edit.arguments is not None:
        typed = " ".join(edit.arguments)
        kind = "arguments"
    else:
        kind = "patch"
        typed = "".join(
            line
            for line in difflib.unified_diff(
                text.splitlines(keepends=True), edit.text.splitlines(keepends=True), path.name, path.name, n=0
            )
        )
    return Remedy(
        edit.name,
        kind,
        typed,
        estimate.peak_allocated,
        estimate.peak_reserved,
        estimate.device_used,
        edit.numbers,
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


def _larger(estimate: Estimate) -> tuple[Remedy, ...]:
    """Return the smallest known GPU that holds the program as it is."""
    used = estimate.needed.device_used
    known = [profile for profile in map(load, names()) if profile.usable_bytes >= used]
    if not known:
        return ()
    least = min(known, key=lambda profile: (profile.capacity_bytes, profile.name))
    needed = estimate.needed
    typed = f"--device {least.name}"
    return (Remedy(f"a {least.name}", "device", typed, needed.peak_allocated, needed.peak_reserved, used),)
