"""The list of plans cuDNN would give for a convolution, as far as it decides memory: what the tables and votes say, as a list.

The tables keep figures of a list (`answers.figures`), not the list. This is the shortest one that has the same figures, so that
PyTorch's own code, which filters, builds, times and retries plans, comes to the same bytes under each of its settings:

1. The steps of the ladder (`ladders.py`), in their order: the first runs by default, the next are for want of room.
2. The first deterministic plan, and the first without tensor cores (float32), where they are not among the steps: behind a step
   that takes no more, so that the ladder stays as it is.
3. The plans whose workspaces are the largest, which benchmark mode takes for its trials, last.
4. The one that wins benchmark mode's trials is marked; where nobody timed them it is the first.

`tests/libraries/cudnn/test_listing.py` reads the figures off the lists again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from analyzer.libraries.cudnn.answers import Plan
from analyzer.libraries.cudnn.convolutions import Settings, Workspace, trial, workspace
from analyzer.libraries.cudnn.ladders import steps
from analyzer.libraries.cudnn.table import Convolution

_DETERMINISTIC, _STRICT = Settings(deterministic=True), Settings(allow_tf32=False)


@dataclass(frozen=True, slots=True)
class Listing:
    """plans: in cuDNN's order. fastest: which of them wins benchmark mode's trials.

    first, trials: how the workspace of the first and the largest of all are known.
    """

    plans: tuple[Plan, ...]
    fastest: int
    first: Workspace
    trials: Workspace


def listing(call: Convolution, device: str) -> Listing:
    """The plans of a convolution on a device, by the rules of the module docstring."""
    first, ladder = steps(call, device, Settings())
    plans = [Plan(0, nbytes, deterministic=False, tensor_core=True) for nbytes in ladder]
    plans = _marked(plans, steps(call, device, _DETERMINISTIC)[1][0], "deterministic", True)
    if call.dtype == "float32":
        plans = _marked(plans, steps(call, device, _STRICT)[1][0], "tensor_core", False)
    largest = trial(call, device, Settings())
    for settings, which in (
        (Settings(), {}),
        (_DETERMINISTIC, {"deterministic": True}),
        (_STRICT, {"tensor_core": False}),
    ):
        nbytes = trial(call, device, settings).nbytes
        among = [plan for plan in plans if all(getattr(plan, name) is value for name, value in which.items())]
        if among and nbytes > max(plan.workspace_bytes for plan in among):
            plans.append(replace(Plan(0, nbytes, deterministic=False, tensor_core=True), **which))
    winner = workspace(call, device, Settings(benchmark=True)).nbytes
    if not any(plan.workspace_bytes == winner for plan in plans):
        plans.insert(_behind(plans, winner), Plan(0, winner, deterministic=False, tensor_core=True))
    numbered = tuple(replace(plan, engine=place) for place, plan in enumerate(plans))
    fastest = next(plan.engine for plan in numbered if plan.workspace_bytes == winner)
    return Listing(numbered, fastest, first, largest)


def _marked(plans: list[Plan], nbytes: int, mark: str, value: bool) -> list[Plan]:
    """The list with a plan of `nbytes` as the first that has the mark; those behind it that take no more have it too."""
    sizes = [plan.workspace_bytes for plan in plans]
    if nbytes in sizes:
        place = sizes.index(nbytes)
        before, after = plans[:place], plans[place:]
    else:
        place = _behind(plans, nbytes)
        before, after = (
            plans[:place],
            [Plan(0, nbytes, deterministic=False, tensor_core=True), *plans[place:]],
        )
    return [
        *before,
        *(replace(plan, **{mark: value}) if plan.workspace_bytes <= nbytes else plan for plan in after),
    ]


def _behind(plans: list[Plan], nbytes: int) -> int:
    """The place behind the first plan that takes no more."""
    return next((place + 1 for place, plan in enumerate(plans) if plan.workspace_bytes <= nbytes), len(plans))
