"""A job whose model is compiled: the fastest `activation_memory_budget` that fits, as the compiler says.

1. The budget is the share of the activations that the partitioner of a compiled model may keep for the
   backward pass; what it does not keep is computed again, as little as it must.
2. Each budget's memory is measured with PyTorch: the compiled step runs on an emulated GPU, once a budget.
   No budget says anything about another: of a model of 32 layers the smallest of six, 0.02, took most (1,668
   MiB; the others 588, 648, 788, 1,017, and 1,332 at 1.0).
3. The allocator's reserved bytes differ a little from run to run of PyTorch's compiler, on a GPU and on the
   emulated one: `RESERVED` bounds the measured share of the estimate. A budget whose range reaches above the
   device may not fit: one that fits over its whole range goes before it.
4. Of those that fit, the one with the shortest estimated step is named (`Estimate.step_seconds`); on a GPU
   of unknown speed, and of equally fast ones, the largest, which recomputes least.

Source: of 3, 22 compiled programs on an H100, twelve of them under limits
(`advise_compiled.json.gz` and `compiled.json.gz` in `tests/data/h100/timing`; `compiled_launches.json.gz`
has the predictions for the latter); of the rest, `torch/_functorch/config.py` (`activation_memory_budget`),
`torch/_functorch/partitioners.py` (`choose_saved_values_set`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from math import inf

from analyzer import extensions
from analyzer.errors import AnalyzerError, MissingDependencyError, OptionError, RunError
from analyzer.options import Options
from analyzer.pipeline.workload import Progress
from analyzer.results.estimate import Estimate
from analyzer_timing.results import Advice, Way

BUDGETS = (1.0, 0.8, 0.5, 0.3, 0.1)
RESERVED = (0.93, 1.042)
SETTING = "torch._functorch.config.activation_memory_budget"


def advise_compiled(
    target: object, options: Options, python: str | os.PathLike[str] | None, progress: Progress | None
) -> Advice:
    """Return the fastest budget with which the compiled job fits. python: the Python that compiles; None:
    this one.

    Raises AnalyzerError: MissingDependencyError where that PyTorch is not a CUDA build, OptionError where the
    target is not a module that a file or a package makes.
    """
    if not isinstance(target, (str, os.PathLike)):
        raise OptionError("a module in this process is not compiled elsewhere", "name it: net.py:make_model")
    emulator = extensions.required("engines", "emulate", "--compiled")
    try:
        emulate: Callable[[float], Estimate] = emulator.compiled_target(target, options, python)
    except MissingDependencyError as error:
        raise MissingDependencyError(
            f"what a compiled model takes its compiler says: {error.message}", error.hint
        ) from None
    return chosen(emulate, progress)


def chosen(emulate: Callable[[float], Estimate], progress: Progress | None = None) -> Advice:
    """Choose among what each budget takes. Raises the AnalyzerError of the largest budget."""
    tried: list[Way] = []
    for budget in BUDGETS:
        name = f"compiled, activation_memory_budget {budget}"
        if progress is not None:
            progress(name)
        try:
            estimate = emulate(budget)
            if estimate.incomplete is not None and estimate.out_of_memory is None:
                raise RunError(f"it ended early: {estimate.incomplete}", "see what the program printed")
        except AnalyzerError as error:
            if not tried:
                raise
            tried.append(Way(name, {}, None, error=error.message))
            continue
        tried.append(Way(name, {}, _with_range(estimate), _typed(budget)))
        if estimate.mode == "infer":
            break  # nothing is kept for a backward pass
    ways = sorted((way for way in tried if way.verdict in ("fits", "may not fit")), key=_rank)
    return Advice(
        replace(tried[0], typed=""),
        tuple(ways),
        tuple(way for way in tried if way not in ways),
        analyses=len(tried),
        notes=tuple(_notes(tried, ways)),
    )


def _with_range(estimate: Estimate) -> Estimate:
    """Return the estimate with the range of what the allocator may reserve; where it has one, both. A
    program that ran out of memory has none."""
    if estimate.incomplete is not None or estimate.stopped:
        return estimate
    low, high = estimate.reserved_range
    least, most = RESERVED
    held = min(low, int(least * estimate.peak_reserved)), max(high, int(most * estimate.peak_reserved))
    return replace(estimate, certainty=replace(estimate.certainty, reserved_range=held))


def _rank(way: Way) -> tuple[bool, float]:
    """Return a sort key: what fits first, then the fastest; in the order they came without a time."""
    return way.verdict != "fits", inf if way.seconds is None else way.seconds


def _typed(budget: float) -> str:
    """Return the line a program needs for a budget; "" for the default."""
    return "" if budget == BUDGETS[0] else f"{SETTING} = {budget}"


def _notes(tried: list[Way], ways: list[Way]) -> list[str]:
    if tried[0].estimate is not None and tried[0].estimate.mode == "infer":
        return ["without a backward pass no activations are kept: a budget for them changes nothing"]
    notes = [
        "each budget's step was compiled and run by PyTorch itself, on an emulated GPU; of those that fit "
        + (
            "the fastest step is named"
            if all(way.seconds is not None for way in ways)
            else "the largest budget computes least again: no time is known of this GPU"
        )
    ]
    sizes = [way.estimate.needed.device_used for way in tried if way.estimate is not None]
    if sizes != sorted(sizes, reverse=True):
        notes.append("a smaller budget does not always take less")
    if ways and ways[0].verdict != "fits":
        least, most = (round(100 * share) for share in RESERVED)
        notes.append(f"allocators of compiled programs reserved {least} to {most} % of what is said here")
    if not ways:
        notes.append("without torch.compile other ways are looked at: leave --compiled out")
    return notes
