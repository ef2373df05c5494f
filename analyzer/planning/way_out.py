"""What makes a program fit that runs out of memory: changes of its settings, arguments or text, all followed.

1. Settings of the allocator come first: they are the recorded requests served again (`Fragmentation`).
2. Then the changes of `script_edits.py`, one by one: first those that change no number, then the batch
   divided, precision, and pairs. Each is followed on the same device as the program was. One that **fits**
   found memory for everything, to its end or until its steps repeat, after no fewer steps than the program
   itself was followed through with room.
3. It ends after `_WANTED` that fit, `_MOST` that were followed, or `_SECONDS`.
4. Where nothing fits, the smallest known GPU that holds the program as it is.

Not modelled: what a change does to a model's quality.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from analyzer.analysis import Analysis
from analyzer.devices import load, names
from analyzer.errors import AnalyzerError
from analyzer.options import Options
from analyzer.pipeline.program import concluded, watched
from analyzer.planning.script_edits import Edit, edits, smaller
from analyzer.results.diagnosis import Remedy
from analyzer.results.estimate import Estimate
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
    found = [*_settings(estimate)]
    path = Path(script)
    if path.suffix == ".py" and path.is_file():
        text, begun = path.read_text(encoding="utf-8"), time.monotonic()
        tried, steps = 0, max((operator.step for operator in analysis.graph.operators), default=0)
        for edit in _in_order(text, arguments, analysis):
            if len(found) >= _WANTED or tried >= _MOST or time.monotonic() - begun > _SECONDS:
                break
            if any(remedy.name.startswith("batch") for remedy in found) and edit.name.startswith("batch"):
                continue
            tried += 1
            if progress is not None:
                progress(f"following it with {edit.name}")
            with contextlib.suppress(AnalyzerError):
                changed = _followed(path, arguments, options, environment, until, steps, edit)
                if changed is not None:
                    found.append(_remedy(edit, text, path, changed))
    return tuple(found) or _larger(estimate)


def _in_order(text: str, arguments: Sequence[str], analysis: Analysis) -> Iterator[Edit]:
    """Yield the changes in the order they are tried."""
    estimate, models = analysis.estimate, analysis.graph.models
    trains = estimate.mode == "train"
    line = "" if estimate.growth is None else estimate.growth.source.rpartition(":")[2]
    single = edits(text, models, trains, line)
    yield from (edit for edit in single if not edit.numbers)
    for by in _PARTS:
        yield from smaller(text, arguments, models, by)
    yield from (edit for edit in single if edit.numbers)
    for one in (edit for edit in single if not edit.numbers and edit.text):
        for other in edits(one.text, models, trains, ""):
            if other.name != one.name:
                yield Edit(f"{one.name} + {other.name}", other.text, numbers=other.numbers)


def _followed(
    path: Path,
    arguments: Sequence[str],
    options: Options,
    environment: Mapping[str, str],
    until: str | int,
    steps: int,
    edit: Edit,
) -> Estimate | None:
    """Return the estimate of the changed program, None where it does not run or fit."""
    with apart(), contextlib.redirect_stdout(io.StringIO()):
        program = watched(
            str(path),
            arguments if edit.arguments is None else edit.arguments,
            options,
            environment,
            until="steady" if until == "end" else until,
            least_steps=steps,
            seconds=_SECONDS / 2,
            text=edit.text or None,
        )
    if program.ran.error is not None or program.ran.unreached or program.ran.cut:
        return None
    estimate = concluded(program, options, str(path)).estimate
    return estimate if estimate.verdict() == "fits" else None


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


def _settings(estimate: Estimate) -> Iterator[Remedy]:
    """Yield the settings of the allocator under which the program runs."""
    if estimate.fragmentation is not None:
        for row in estimate.fragmentation.settings:
            if row.fits:
                typed = f"PYTORCH_ALLOC_CONF={row.setting}"
                yield Remedy(
                    row.setting, "environment", typed, row.peak_allocated, row.peak_reserved, row.device_used
                )
                return


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
