"""What PyTorch would take for one convolution under each of cuDNN's settings, read off the list of its plans.

1. Benchmark off: the first plan that passes the settings' filter. Where its workspace finds no room, PyTorch goes on
   through the list: what it asks for next are the plans that take less than all before them.
2. Benchmark on: all plans that pass are built, and one workspace of the **largest** of them is taken for all trials. The
   first ten that run (`torch.backends.cudnn.benchmark_limit`) are timed, so the fastest is one of those.
3. TF32 off drops plans on tensor cores for float32 ("strict"), deterministic mode those that are not deterministic.

Source: `aten/src/ATen/native/cudnn/Conv_v8.cpp` (`filterEngineConfigs`, `generate_and_filter_plans`,
`get_plans_from_find`, `try_configs`, `run_single_conv`); `cudnn_frontend_find_plan.h` (`time_sorted_plan`).

Not modelled: plans that build but fail when they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analyzer.libraries.cudnn import table

TIMED_PLANS = 10


@dataclass(frozen=True, slots=True)
class CudnnPlan:
    """A plan that can be built: its engine's global index, its workspace, what cuDNN notes of the engine, and the knobs, (type, value), of
    engines whose bytes depend on who is asked (`splits.py`)."""

    engine: int
    workspace_bytes: int
    deterministic: bool = True
    tensor_core: bool = False
    knobs: tuple[tuple[int, int], ...] = ()


def figures(plans: Iterable[CudnnPlan], dtype: str, *, whole: bool = True) -> tuple[int, ...]:
    """One number of bytes for each of `table.FIGURES`, from all plans in PyTorch's order.

    whole: all plans; without, no more are built than it takes to know the first under each setting, and what only all
    plans tell is left open.

    >>> plans = [Plan(67, 300, tensor_core=True), Plan(38, 500, tensor_core=True), Plan(25, 20, deterministic=False), Plan(1, 0)]
    >>> dict(zip(table.FIGURES, figures(plans, "float32"), strict=True))  # doctest: +NORMALIZE_WHITESPACE
    {'first': 300, 'deterministic': -3, 'strict': 20, 'trial': 500, 'deterministic_trial': 500, 'strict_trial': 20,
     'after1': 20, 'after2': 0, 'after3': -1, 'timed': 500, 'winner': -2}
    >>> figures(plans, "float32", whole=False)
    (300, -3, 20, -2, -2, -2, -2, -2, -2, -2, -2)
    """
    default, deterministic, strict = list[int](), list[int](), list[int]()
    for plan in plans:
        default.append(plan.workspace_bytes)
        if plan.deterministic:
            deterministic.append(plan.workspace_bytes)
        if dtype != "float32" or not plan.tensor_core:
            strict.append(plan.workspace_bytes)
        if not whole and deterministic and strict:
            break
    first = default[0] if default else table.NO_PLAN
    found = {
        table.DETERMINISTIC: deterministic[0] if deterministic else table.NO_PLAN,
        table.STRICT: strict[0] if strict else table.NO_PLAN,
    }
    if whole:
        found |= {
            table.TRIAL: max(default, default=table.NO_PLAN),
            table.DETERMINISTIC_TRIAL: max(deterministic, default=table.NO_PLAN),
            table.STRICT_TRIAL: max(strict, default=table.NO_PLAN),
            table.TIMED: max(default[:TIMED_PLANS], default=table.NO_PLAN),
        }
    sizes = {figure: table.AS_FIRST if nbytes == first else nbytes for figure, nbytes in found.items()}
    sizes[table.FIRST] = first
    if whole:
        after = [*_after(default), *[table.NO_PLAN] * len(table.AFTER)]
        sizes |= dict(zip(table.AFTER, after, strict=False))
    return tuple([sizes.get(figure, table.NOT_ASKED) for figure in table.FIGURES])


def _after(sizes: Sequence[int]) -> list[int]:
    """The sizes that are smaller than all before them, without the first; of many the last is kept."""
    found: list[int] = []
    for size in sizes:
        if size < min(found, default=sizes[0]):
            found.append(size)
    most = len(table.AFTER)
    return found if len(found) <= most else [*found[: most - 1], found[-1]]
