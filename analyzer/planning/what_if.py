"""Strategies for a job side by side: the memory and time of each, analysed, not guessed.

1. Every strategy is the same target with other options, captured and simulated as any analysis is; one that
   the target does not support is kept with its error.
2. The list of strategies, and the cost of each: `changes.py`. Changes of a model's numbers (precision, 8
   bits, another optimizer) are offered beside those that keep them.
3. The price of computing a forward pass again: `extra_compute` is the share of floating-point operations a
   sample added (`flops.py`).
4. A step's time is that of each strategy's own analysis (`Estimate.step_seconds`), of all micro-batches.

Not modelled: the time of several GPUs, and of compiled programs; offloading; what a change does to a model's
quality.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from analyzer.analysis import Analysis
from analyzer.errors import AnalyzerError
from analyzer.options import Keywords, Options, takes_options
from analyzer.planning.changes import Change, variants
from analyzer.planning.checkpoints import recomputable_bytes
from analyzer.planning.countdown import Countdown
from analyzer.planning.fit import largest_batch
from analyzer.planning.flops import flops_a_sample
from analyzer.planning.programs import Programs
from analyzer.protection import apart
from analyzer.report.command_line import changed
from analyzer.results.estimate import Estimate
from analyzer.results.strategy import Strategy

if TYPE_CHECKING:
    import torch


@takes_options
def what_if(
    target: str | os.PathLike[str] | torch.nn.Module,
    inputs: Any = None,
    *,
    largest: bool = False,
    progress: Callable[[str], None] | None = None,
    **options: Unpack[Keywords],
) -> list[Strategy]:
    """The base first, then every strategy in the order of what it saves. Options as for `analyzer.analyze`.

    largest: also the largest batch of each on the device; takes a search each. Raises AnalyzerError when the
    base fails.
    """
    chosen = Options.of({"inputs": inputs, **options})
    # Files that the target writes when it is opened are noted for every strategy.
    with apart() if isinstance(target, (str, os.PathLike)) else nullcontext():
        try:
            return _side_by_side(target, chosen, largest, progress)
        finally:
            if largest:
                gc.unfreeze()


def _side_by_side(
    target: Any, options: Options, largest: bool, progress: Callable[[str], None] | None
) -> list[Strategy]:
    """Return the target as it is, then its variants: those that fail last, the most saved first."""
    programs = Programs(target, options)
    base = programs.analysis(options, {}, progress)
    trained = options.mode == "train" and base.graph.framework == "pytorch"
    cheap = recomputable_bytes(base.graph) if trained else 0
    strategies = [Strategy("as it is", {}, base.estimate, recomputable=cheap)]
    work = flops_a_sample(base, options)
    offered = variants(base, options, target)
    steps = Countdown(len(offered) + largest, progress)
    if largest:
        steps.begin("as it is")
        strategies = [_with_largest(programs, strategies[0], options, base, steps.tell)]
    for place, change in enumerate(offered):
        programs.keep([later.options for later in offered[place:]])
        if largest:
            # A search leaves its captures in cycles, some hundred MiB, and a command line collects none by
            # itself. Kept objects are frozen, so that they are not searched each time.
            gc.collect()
            gc.freeze()
        steps.begin(change.name)
        variant = _strategy(programs, options, base.estimate, work, change, steps.tell, largest=largest)
        strategies.append(variant)
    first, *others = strategies
    return [first, *sorted(others, key=lambda s: (s.estimate is None, -s.saved, s.cost, s.name))]


def _with_largest(
    programs: Programs,
    strategy: Strategy,
    options: Options,
    analysis: Analysis,
    progress: Callable[[str], None] | None,
) -> Strategy:
    """Return `strategy`, analysed as `found`, with its largest batch, or the error."""
    try:
        largest = largest_batch(programs.under(options, strategy.changes), analysis, progress)
    except AnalyzerError as error:
        return replace(strategy, error=error.message)
    return replace(strategy, largest=largest)


def cheapest(strategies: list[Strategy]) -> Strategy | None:
    """Return the fitting strategy of least cost, operations, then memory; None if none fits."""
    fitting = [s for s in strategies if s.estimate is not None and s.estimate.verdict() == "fits"]
    return min(fitting, key=lambda s: (s.cost, s.extra_compute, len(s.changes), -s.saved), default=None)


def first_that_fits(
    target: Any, options: Options, base: Analysis, progress: Callable[[str], None] | None = None
) -> Strategy | None:
    """Return the cheapest change that makes `base`, an analysis of the target, fit its device and budget: the
    first that does in the order of `cheapest`, none after it is tried; where none does for certain, the first
    that may and takes less. None when none does, or an operator's own memory is what lacks. Raises
    AnalyzerError when the target cannot be opened again."""
    if base.estimate.at_least and base.estimate.within(base.estimate.allowed_bytes):
        return None
    programs, work, perhaps = Programs(target, options), flops_a_sample(base, options), None
    ordered = sorted(variants(base, options, target), key=lambda c: (c.cost, len(c.options)))
    steps = Countdown(len(ordered), progress)
    for change in ordered:
        steps.begin(change.name)
        programs.keep([])
        tried = _strategy(programs, options, base.estimate, work, change, steps.tell, needs=False)
        verdict = "" if tried.estimate is None else tried.estimate.verdict()
        if verdict == "fits":
            return tried
        if verdict == "may not fit" and perhaps is None and tried.saved > 0:
            perhaps = tried
    return perhaps


def _strategy(
    programs: Programs,
    options: Options,
    base: Estimate,
    work: float,
    change: Change,
    progress: Callable[[str], None] | None,
    needs: bool = True,
    largest: bool = False,
) -> Strategy:
    """Return a variant beside `base`: bytes saved, and the share of operations more than `work`."""
    name, cost, changes = change
    typed = changed(options, changes)
    try:
        other = replace(options, **changes)
        analysis = programs.analysis(other, changes, progress, needs)
    except AnalyzerError as error:
        return Strategy(name, changes, None, cost, error=error.message, typed=typed)
    extra = flops_a_sample(analysis, other) / work - 1 if work else 0.0
    strategy = Strategy(
        name,
        changes,
        analysis.estimate,
        cost,
        max(round(extra, 4), 0.0),
        base.needed.device_used - analysis.estimate.needed.device_used,
        typed=typed,
    )
    return _with_largest(programs, strategy, other, analysis, progress) if largest else strategy
