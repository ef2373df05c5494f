"""The fastest way to run a job on its device, among the known alternatives; or the proof that none can fit.

1. A way **fits** by the same rule as any estimate (`Estimate.verdict`): each named way was analysed as by
   `analyze`, with its options. Nothing is proposed on a forecast.
2. Ways are in the order of a step's time (`Estimate.step_seconds`, of all micro-batches: the total batch
   stays); of a device without known speed, of counted operations.
3. A PyTorch module: `advisor/search.py`. A configuration: the strategies `changes.py` has for it, each
   and together. An ONNX session: its settings, of which no time is known.
4. Changes of the numbers a model computes are offered only on request.
5. **Samples a second**: the batch is free. It is doubled from one sample as long as a step as it is fits and
   more are done in a second; where what was asked for is not reached, the ways that fit twice that batch are
   looked at too.
6. Where nothing fits, one sample is analysed: what one operator, or the beginning of the optimizer's step,
   needs at least (`advisor/floor.py`). Above the device, that is a proof.
7. The patch of a file whose blocks are to be checkpointed is analysed as well, one micro-batch of it beside
   one of the way.

8. Of a model that is compiled the ways are the budgets of its activations (`advisor/compiled.py`).

Not modelled: several GPUs, what a way does to a model's quality.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from analyzer.devices import load, names
from analyzer.errors import AnalyzerError, OptionError
from analyzer.options import Keywords, Options, takes_options
from analyzer.pipeline.workload import Progress
from analyzer.planning.changes import FREE, PURE, Change
from analyzer.results.estimate import Estimate
from analyzer.targets import Target
from analyzer.targets import parse as parse_target
from analyzer_timing.advisor import patch
from analyzer_timing.advisor.compiled import advise_compiled
from analyzer_timing.advisor.floor import floor_of
from analyzer_timing.advisor.search import Search, order
from analyzer_timing.advisor.settings import Settings
from analyzer_timing.advisor.trials import Trials
from analyzer_timing.results import Advice, Bound, Way

if TYPE_CHECKING:
    import torch

_MOST_BATCH = 1 << 16


@takes_options
def advise(
    target: str | os.PathLike[str] | torch.nn.Module,
    inputs: Any = None,
    *,
    samples_per_second: float | None = None,
    change_numbers: bool = False,
    compiled: bool = False,
    python: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[Keywords],
) -> Advice:
    """The fastest way to run `target` that fits `device`. Options as for `analyzer.analyze`.

    samples_per_second: at least so many, at whatever batch; without it the batch is what is said, or the
    target's own. change_numbers: also what changes the numbers a model computes. compiled: under
    `torch.compile`, by the CUDA build of PyTorch that `python` (None: this one) has. Raises AnalyzerError
    when the job as it is cannot be analysed, or has no device.
    """
    chosen = Options.of({"inputs": inputs, **options})
    if chosen.device is None and chosen.budget is None:
        raise OptionError("nothing says what it shall fit", "give --device NAME, such as --device rtx4090")
    if compiled:
        if samples_per_second is not None or change_numbers:
            raise OptionError(
                "a compiled step is looked at for one batch, and its numbers stay",
                "leave --samples-per-second and --change-numbers out",
            )
        return advise_compiled(target, chosen, python, progress)
    if samples_per_second is None:
        return _advice(target, Trials(target, chosen, progress), change_numbers)
    if samples_per_second <= 0 or chosen.batch is not None:
        raise OptionError(
            "samples a second are asked for at whatever batch", "give a number above 0, and leave --batch out"
        )
    return _at_a_rate(target, chosen, samples_per_second, change_numbers, progress)


def _advice(target: Any, trials: Trials, numbers: bool) -> Advice:
    """Analyse the job, search its ways, and return the advice."""
    options = trials.options
    base, analysis = trials.with_graph([])
    if analysis is None or base.estimate is None:
        raise OptionError(f"the job as it is cannot be analysed: {base.error}", "see: analyze TARGET")
    if options.batch is None and analysis.graph.batch is not None and not trials.config:
        trials.options = replace(options, batch=analysis.graph.batch)
    if trials.config or analysis.graph.framework == "onnx":
        tried = Settings(trials, (base, analysis), numbers, target).run()
    else:
        tried = Search(trials, (base, analysis), numbers).run()
    del analysis
    try:
        return _answer(target, trials, base, tried, numbers)
    finally:
        gc.collect()


def _answer(target: Any, trials: Trials, base: Way, tried: Sequence[Way], numbers: bool) -> Advice:
    """Rank the ways tried: those that fit first, then by speed; with a bound if none fits."""
    assert base.estimate is not None
    rank = {"fits": 0, "may not fit": 1}
    ways = sorted(
        (way for way in tried if way.verdict in rank),
        key=lambda way: (rank[way.verdict], order(way), len(way.changes)),
    )
    others = sorted((way for way in tried if way.verdict not in rank), key=order)
    bound, missing = (None, 0) if ways else _bound(trials, base, numbers)
    changed, proven = _patch(target, trials, ways[0]) if ways else ("", False)
    return Advice(
        base,
        tuple(ways),
        tuple(others),
        bound,
        missing,
        patch=changed,
        patch_proven=proven,
        analyses=trials.count,
        notes=tuple(_notes(base, ways[0] if ways else None, others, numbers)),
    )


def _notes(base: Way, best: Way | None, others: Sequence[Way], numbers: bool) -> list[str]:
    """Return notes on the order of the ways and on the one that is named."""
    notes: list[str] = []
    estimate = base.estimate
    assert estimate is not None
    if estimate.step_seconds is None:
        why = "an ONNX session" if estimate.framework == "onnx" else f"{estimate.device} or such a job"
        notes.append(f"no time is known of {why}: ways are in the order of operations, then of memory")
    if _normalizes(estimate) and base.verdict != "fits" and not numbers:
        notes.append("accumulation is left out: batch norm would normalize over fewer samples")
    if best is None:
        notes += _larger(others)
    if best is not None and "checkpoint" in best.changes and _normalizes(estimate):
        notes.append("batch norm's running statistics are updated twice a step in blocks that run again")
    if best is not None and best.estimate is not None and best.estimate.with_room is not None:
        notes.append("the allocator gives kept blocks back to fit, which takes time that is not counted")
    if best is not None and "grad_accumulation" in best.changes:
        notes.append("micro-batches give the same gradient where the loss is a mean over samples")
    return notes


def _larger(others: Sequence[Way]) -> list[str]:
    """Return a note on the smallest known GPU that holds the way that needs least."""
    used = min((w.estimate.needed.device_used for w in others if w.estimate is not None), default=0)
    known = [profile for profile in map(load, names()) if profile.usable_bytes >= used > 0]
    if not known:
        return []
    least = min(known, key=lambda profile: (profile.capacity_bytes, profile.name))
    return [f"the smallest known GPU with as much as the most frugal way takes here: {least.name}"]


def _normalizes(estimate: Estimate) -> bool:
    return any("batch_norm" in row.operator for row in estimate.allocations.origins)


def _bound(trials: Trials, base: Way, numbers: bool) -> tuple[Bound | None, int]:
    """Return the lower bound of one sample, least of all precisions offered, and the bytes by which it
    exceeds the usable memory (0 if it does not)."""
    assert base.estimate is not None
    single = {"batch": 1, "grad_accumulation": 1}
    if trials.options.mode != "train" or trials.config:
        single = {}
    ways = [[Change("one sample", FREE, single)]]
    if numbers:
        ways += [[*ways[0], PURE]]
    floors = []
    for changes in ways:
        analysis = trials.with_graph(changes)[1]
        if analysis is not None and analysis.graph.framework == "pytorch":
            floors.append(floor_of(analysis))
    if not floors:
        return None, 0
    least = min(floors, key=lambda floor: floor.device_bytes)
    place = " ".join(filter(None, (least.operator, least.module, least.source)))
    bound = Bound(least.device_bytes, least.beside_bytes, place or "the beginning of the optimizer's step")
    spare = base.estimate.certainty.spare_bytes
    return bound, max(least.device_bytes - base.estimate.allowed_bytes - spare, 0)


def _patch(target: Any, trials: Trials, best: Way) -> tuple[str, bool]:
    """Return the diff of the target's file, and whether the changed file takes the same bytes."""
    parsed = parse_target(target) if isinstance(target, (str, os.PathLike)) else None
    if "checkpoint" not in best.changes or not isinstance(parsed, Target) or parsed.path is None:
        return "", False
    if parsed.kind != "python" or trials.model is None or best.estimate is None:
        return "", False
    from analyzer.capture.pytorch.module.blocks import matching_any

    source = patch.source_of(parsed.path)
    paths = list(matching_any(trials.model, best.changes["checkpoint"], "checkpoint"))
    changed = patch.patched(source, parsed.attr, paths)
    if not changed:
        return "", False
    options = replace(trials.options, **{**best.changes, "grad_accumulation": 1})
    # The way itself takes minutes where it has many micro-batches.
    single = best if options.grad_accumulation == best.changes.get("grad_accumulation", 1) else None
    like = (single or Trials(target, options).way([])).estimate
    proven = like is not None and _same_bytes(changed, parsed, replace(options, checkpoint=None), like)
    return patch.diff(source, changed, parsed.path.as_posix()), proven


def _same_bytes(changed: str, target: Target, options: Options, like: Estimate) -> bool:
    """Return whether the changed file, analysed in its own folder, takes another estimate's bytes. (Its
    neighbours are found: the file's folder is on Python's path.)"""
    import tempfile

    assert target.path is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / target.path.name
        path.write_text(changed, encoding="utf-8")
        try:
            way = Trials(f"{path}:{target.attr}", options).way([])
        except AnalyzerError:
            return False
    estimate = way.estimate
    return estimate is not None and all(
        getattr(estimate, name) == getattr(like, name)
        for name in ("peak_allocated", "peak_reserved", "device_used")
    )


def _at_a_rate(
    target: Any, options: Options, wanted: float, numbers: bool, progress: Progress | None
) -> Advice:
    """Double the batch until it reaches the rate; return it, else the fastest one found."""
    best: Advice | None = None
    batch, before, notes = 1, 0.0, list[str]()
    while batch <= _MOST_BATCH:
        if progress is not None:
            progress(f"batch {batch}")
        trials = Trials(target, replace(options, batch=batch), progress)
        base = trials.way([])
        rate = None if base.estimate is None else base.estimate.samples_per_second
        if base.estimate is None:
            notes.append(f"batch {batch} does not run: {base.error}")
            break
        if rate is None:
            raise OptionError(
                f"no time is known of {base.estimate.target} on {base.estimate.device}",
                "leave --samples-per-second out, or give a --device that 'analyze devices' names",
            )
        fits = base.verdict == "fits"
        if rate[0] >= wanted or not fits or rate[0] <= before:
            best = _faster(best, _advice(target, trials, numbers))
            break
        best, before = Advice(base, (base,), notes=(), analyses=trials.count), rate[0]
        batch *= 2
        gc.collect()
    if best is None:
        raise OptionError("not even one sample runs", notes[-1] if notes else "see: analyze TARGET")
    speed = _rate(best)
    return replace(best, wanted=wanted, reached=speed >= wanted, notes=(*best.notes, *notes))


def _rate(advice: Advice) -> float:
    way = advice.best
    speed = None if way is None or way.estimate is None else way.estimate.samples_per_second
    return 0.0 if speed is None else speed[0]


def _faster(one: Advice | None, other: Advice) -> Advice:
    """Return the advice whose best way has more samples a second; the first if equal."""
    return other if one is None or _rate(other) > _rate(one) else one
