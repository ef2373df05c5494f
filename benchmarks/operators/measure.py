"""Record what single ATen operators allocate on a GPU: python -m benchmarks operators measure OUT.json.gz [GROUP ...]

Runs the cases of `cases.py` under a dispatch mode, each twice (the second time without first-use
workspaces), and writes for every ATen call of the second run: the allocator's own sequence of requests and frees
during the call, its arguments, and its results with device and storage.
`tests/runtimes/pytorch/scratch/test_recorded.py` compares the scratch rules with it. Needs PyTorch with CUDA; a case that fails is recorded with its error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.harness import files
from benchmarks.operators import cases, data_sizes
from benchmarks.operators.cases import CASES


def layouts() -> None:
    """PyTorch's own list of operators, on tensors that lie otherwise; importing it needs the package expecttest."""
    from benchmarks.operators import layouts as others

    CASES.update(others.layouts(cases.D))


# What adds cases of one topic to `CASES`.
GROUPS = {
    fill.__name__: fill
    for fill in (
        cases.reductions, cases.norms, cases.attention, cases.indexing, cases.losses, cases.blas, cases.spatial,
        cases.training, data_sizes.masks, data_sizes.tiles, layouts,
    )
}  # fmt: skip


def describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [
            "T",
            list(value.shape),
            str(value.dtype)[6:],
            list(value.stride()),
            value.storage_offset(),
            value.device.type,
        ]
    if isinstance(value, (list, tuple)):
        return [describe(part) for part in value]
    if isinstance(value, (int, float, bool, str, type(None))):
        return value
    return str(value)


def trace() -> list[dict[str, Any]]:
    return torch.cuda.memory._snapshot()["device_traces"][0]


class Record(TorchDispatchMode):
    """Rows: of every call, or, where `distinct`, of each call of the same arguments once."""

    def __init__(self, distinct: bool) -> None:
        super().__init__()
        self.rows: list[Any] = []
        self.on = False
        self.seen: set[str] | None = set() if distinct else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.on:
            return func(*args, **(kwargs or {}))
        described = describe(args), {key: describe(value) for key, value in (kwargs or {}).items()}
        if self.seen is not None:
            call = json.dumps([str(func), *described])
            if call in self.seen:
                return func(*args, **(kwargs or {}))
            self.seen.add(call)
        inputs = {
            t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        start = len(trace())
        result = func(*args, **(kwargs or {}))
        events = [
            (1 if entry["action"] == "alloc" else -1) * entry["size"]
            for entry in trace()[start:]
            if entry["action"] in ("alloc", "free_completed")
        ]
        flat = result if isinstance(result, (tuple, list)) else (result,)
        outs = [
            [
                *describe(out),
                out.untyped_storage().nbytes(),
                int(out.untyped_storage().data_ptr() not in inputs),
            ]
            if isinstance(out, torch.Tensor)
            else None
            for out in flat
        ]
        self.rows.append([str(func), events, *described, outs])
        return result


@click.command("measure")
@click.argument("out", type=Path)
@click.argument("groups", nargs=-1)
def main(out: Path, groups: tuple[str, ...]) -> None:
    """Record the cases of these groups of `GROUPS`; of all but the last, where none is named."""
    for name in groups or list(GROUPS)[:-1]:
        GROUPS[name]()
    mode, results = Record("layouts" in groups), {}
    for name, run in CASES.items():
        try:
            run()
            torch.cuda.synchronize()
            torch.cuda.memory._record_memory_history(enabled=None)
            torch.cuda.memory._record_memory_history(
                enabled="all", context=None, max_entries=100000, clear_history=True
            )
            mode.rows, mode.on = [], True
            with mode:
                run()
            mode.on = False
            results[name] = mode.rows
        except Exception as error:
            mode.on = False
            results[name] = repr(error)[:200]
    about = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "gpu": torch.cuda.get_device_name(),
    }
    files.write(out, {"about": about, "cases": results})
    failed = [name for name, rows in results.items() if isinstance(rows, str)]
    print(
        len(results), "cases,", len(failed), "failed:", *(f"{n}: {results[n]}" for n in failed[:40]), sep="\n"
    )
