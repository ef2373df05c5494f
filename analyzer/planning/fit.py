"""The largest batch that runs: under a device, or under a limit of the allocator, with the allocator near it
as it is.

1. The limit is what `--limit` says the allocator may hold (`torch.cuda.set_per_process_memory_fraction`);
   else what the device has beyond what the process takes besides (context, libraries): there `cudaMalloc`
   itself has no more to give.
2. How a batch is found to run, and which is the largest: `fit_limits.py` under runtimes whose programs are
   simulated under any limit (`Runtime.takes_limits`: PyTorch), `fit_analyses.py` under all others.

Not modelled: other processes on the device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from analyzer.analysis import Analysis
from analyzer.devices import parse_size, resolve
from analyzer.errors import AnalyzerError, InputError
from analyzer.options import Options, takes_options
from analyzer.pipeline.workload import Progress, Workload
from analyzer.planning.fit_analyses import by_analyses
from analyzer.planning.fit_limits import Search
from analyzer.planning.intervals import uncollected
from analyzer.results.fit import Fit
from analyzer.runtimes.bounded import convolves

if TYPE_CHECKING:
    import torch

__all__ = ["Fit", "fit", "fits", "largest", "largest_batch"]


@takes_options
def fit(
    target: str | os.PathLike[str] | torch.nn.Module,
    inputs: Any = None,
    *,
    device: str | int | None = None,
    limit: str | int | None = None,
    longest: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Fit:
    """Return the largest batch of `target` on `device`, or under an allocator's `limit` ("8GiB" or bytes).

    longest: the greatest length instead that `batch` samples may have; `make_batch`, or `inputs`, is a
        function of (batch, length).
    Other options as for `analyzer.analyze`; `inputs` as for `sweep`. Raises AnalyzerError.
    """
    devices = (device,)
    ((_, found),) = fits(
        target, devices, limit=limit, longest=longest, progress=progress, inputs=inputs, **options
    )
    if isinstance(found, AnalyzerError):
        raise found
    return found


def fits(
    target: str | os.PathLike[str] | torch.nn.Module,
    devices: Sequence[str | int | None],
    *,
    limit: str | int | None = None,
    longest: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Iterator[tuple[str | int | None, Fit | AnalyzerError]]:
    """Yield (device, answer or error) for each device, as `fit` does: the target is opened once, and a
    capture for one device serves others with the same program (`Graph.alike`), as does its range of batches:
    the device with most memory is searched first. Raises AnalyzerError."""
    batch = options.pop("batch", None)
    if batch is not None and not longest:
        raise InputError("the largest batch is what is asked for", "leave batch out")
    workload = Workload(target, Options.of({"device": devices[0], **options}), progress)
    samples = (1 if batch is None else batch) if longest else None
    if samples is not None:
        workload = workload.fixed(batch=samples)

    def answer(device: str | int | None) -> Fit | AnalyzerError:
        with uncollected():
            try:
                return replace(largest(workload.on(device), limit, progress), samples=samples)
            except AnalyzerError as error:
                return error

    most = max(devices, key=_memory)
    first = answer(most)
    for device in devices:
        yield device, first if device == most else answer(device)


def largest(workload: Workload, limit: str | int | None = None, progress: Progress | None = None) -> Fit:
    """Return the largest batch of an open target, as `fit` does."""
    nbytes = None if limit is None else _bytes(limit)
    if nbytes is None:
        workload = _on_device(workload)
    if workload.runtime is not None and workload.runtime.takes_limits:
        return Search(workload, nbytes, progress).answer()
    return by_analyses(workload, nbytes, progress)


def largest_batch(workload: Workload, known: Analysis, progress: Progress | None = None) -> int:
    """Return the batch of `largest` alone. known: the target's analysis at some batch.

    Where no request in it is a convolution's workspace, which another batch may decide otherwise, batches are
    only evaluated: the answer itself is not captured once more.
    """
    workload = _on_device(workload)
    if workload.runtime is None or not workload.runtime.takes_limits:
        return by_analyses(workload, None, progress).batch
    if not convolves(known.events):
        found = Search(workload, None, progress, known).by_figures()
        if found is not None:
            return found
    return Search(workload, None, progress).largest()[0]


def _on_device(workload: Workload) -> Workload:
    """Return the workload on its device, or on the default one if none was named."""
    return workload.on(resolve(None)[0].name) if workload.options.device is None else workload


def _memory(device: str | int | None) -> int:
    """Return the bytes a process may hold there, 0 for a device that cannot be told."""
    try:
        return resolve(device)[0].usable_bytes
    except AnalyzerError:
        return 0


def _bytes(limit: str | int) -> int:
    nbytes = limit if isinstance(limit, int) else parse_size(limit)
    if nbytes < 1:
        raise InputError(f"a limit of {nbytes} bytes holds nothing", 'write a size such as "8GiB"')
    return nbytes
