"""The list of plans cuDNN would give for a convolution, as far as it decides memory: what the tables and votes say, as a list.

The tables keep figures of a list (`answers.figures`), not the list. This is the shortest one that has the same figures, so that
PyTorch's own code, which filters, builds, times and retries plans, comes to the same bytes under each of its settings:

1. The steps of the ladder (`ladders.py`), in their order: the first runs by default, the next are for want of room.
2. The first deterministic plan, and the first without tensor cores (float32), where they are not among the steps: behind a step
   that takes no more, so that the ladder stays as it is.
3. The plans whose workspaces are the largest, which benchmark mode takes for its trials, last.
4. The one that wins benchmark mode's trials is marked. It is among the first ten, which are all that are timed.

`tests/libraries/cudnn/test_listing.py` reads the figures off the lists again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from analyzer.libraries.cudnn.answers import TIMED_PLANS, CudnnPlan
from analyzer.libraries.cudnn.convolutions import ConvolutionSettings, Workspace, trial, workspace
from analyzer.libraries.cudnn.ladders import steps
from analyzer.libraries.cudnn.table import Convolution

# Under which settings of the program a workspace is taken: PyTorch's defaults, each that is not, and benchmark mode's trials.
DEFAULT, DETERMINISTIC, NO_TF32, BENCHMARK, TRIALS = "", "deterministic", "no_tf32", "benchmark", "trials"


@dataclass(frozen=True, slots=True)
class Listing:
    """plans: in cuDNN's order. fastest: which of them wins benchmark mode's trials.

    known: how the workspace is known that is taken under each setting.
    """

    plans: tuple[CudnnPlan, ...]
    fastest: int
    known: Mapping[str, Workspace]


@lru_cache(maxsize=4096)
def listing(call: Convolution, device: str) -> Listing:
    """The plans of a convolution on a device, by the rules of the module docstring."""
    default, deterministic, strict = (
        ConvolutionSettings(),
        ConvolutionSettings(deterministic=True),
        ConvolutionSettings(allow_tf32=False),
    )
    first, ladder = steps(call, device, default)
    known = {DEFAULT: first}
    plans = [CudnnPlan(0, nbytes, deterministic=False, tensor_core=True) for nbytes in ladder]
    known[DETERMINISTIC], (nbytes, *_) = steps(call, device, deterministic)
    plans = _marked(plans, nbytes, "deterministic", True)
    if call.dtype == "float32":
        known[NO_TF32], (nbytes, *_) = steps(call, device, strict)
        plans = _marked(plans, nbytes, "tensor_core", False)
    known[TRIALS] = trial(call, device, default)
    for settings, mark in (
        (default, {}),
        (deterministic, {"deterministic": True}),
        (strict, {"tensor_core": False}),
    ):
        nbytes = trial(call, device, settings).nbytes
        among = [plan for plan in plans if all(getattr(plan, name) is value for name, value in mark.items())]
        if among and nbytes > max(plan.workspace_bytes for plan in among):
            plans.append(replace(CudnnPlan(0, nbytes, deterministic=False, tensor_core=True), **mark))  # type: ignore[arg-type]
    winner = workspace(call, device, ConvolutionSettings(benchmark=True))
    if not winner.source.startswith("measured"):  # any of those that are tried may win
        winner = replace(winner, high_bytes=max(winner.high_bytes, known[TRIALS].high_bytes))
    known[BENCHMARK] = winner
    if not any(plan.workspace_bytes == winner.nbytes for plan in plans[:TIMED_PLANS]):
        place = min(_behind(plans, winner.nbytes), TIMED_PLANS - 1)
        plans.insert(place, CudnnPlan(0, winner.nbytes, deterministic=False, tensor_core=True))
    numbered = tuple(replace(plan, engine=place) for place, plan in enumerate(plans))
    fastest = next(plan.engine for plan in numbered if plan.workspace_bytes == winner.nbytes)
    return Listing(numbered, fastest, known)


def _marked(plans: list[CudnnPlan], nbytes: int, mark: str, value: bool) -> list[CudnnPlan]:
    """The list with a plan of `nbytes` as the first that has the mark; those behind it that take no more have it too."""
    sizes = [plan.workspace_bytes for plan in plans]
    if nbytes in sizes:
        place = sizes.index(nbytes)
        before, after = plans[:place], plans[place:]
    else:
        place = _behind(plans, nbytes)
        before, after = (
            plans[:place],
            [CudnnPlan(0, nbytes, deterministic=False, tensor_core=True), *plans[place:]],
        )
    return [
        *before,
        *(replace(plan, **{mark: value}) if plan.workspace_bytes <= nbytes else plan for plan in after),  # type: ignore[arg-type]
    ]


def _behind(plans: list[CudnnPlan], nbytes: int) -> int:
    """The place behind the first plan that takes no more."""
    return next((place + 1 for place, plan in enumerate(plans) if plan.workspace_bytes <= nbytes), len(plans))
