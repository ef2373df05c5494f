"""Small programs run on a GPU to learn what a profile must know; each in a process of its own (`jobs`).

1. **device**: what CUDA, NVML and cuDNN say of the GPU, and the process's bytes after a first kernel, cache
   empty.
2. **library FAMILY**: what the process grows by, outside the allocator, when the main thread uses the
   family's usual kernels, and again when another thread does; and by how much the allocator's peak grows
   meanwhile (a matrix product's operands, its result and its workspace, kept or given back). "kernels" is a
   small training step, which uses common kernels of all kinds.
3. **checks**: operators whose own memory the scratch rules predict (reductions, attention, normalisation,
   embedding, sorting): the allocator's bytes and peak after each. `checks.CASES` runs under capture too, so
   that both are the same program.
4. **communicators**: what NCCL takes for one rank of several (`communicators.py`).
5. **host**: seconds of the host to hand over common calls, whose tensors are so small that the device is
   never behind.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from analyzer_verify.runs import communicators, machine


def run(probe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the probe's result, plain values."""
    kinds: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        "device": _device,
        "library": _library,
        "checks": _checks,
        "communicators": communicators.run,
        "host": _host,
    }
    return kinds[probe["name"]](probe)


def _start() -> None:
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _outside() -> int:
    """Return the bytes of the process that the caching allocator has not reserved."""
    import torch

    torch.cuda.synchronize()
    total = machine.process_bytes()
    if total is None:
        raise RuntimeError(
            "NVML does not show this process (a container hides it), so nothing can be measured"
        )
    return total - int(torch.cuda.memory_reserved())


def _device(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the device and its driver say of themselves, and what the context takes of memory."""
    import torch

    from analyzer.libraries.cudnn.backend import Cudnn
    from analyzer_verify.runs.program import versions

    free, total = torch.cuda.mem_get_info()
    fresh = _outside()
    _start()
    context = _outside()
    gpu = machine.gpu("the profile")
    properties = torch.cuda.get_device_properties(0)
    return {
        "nvml_name": gpu.name,
        "driver": gpu.driver,
        "capacity_bytes": properties.total_memory,
        "listed_bytes": gpu.total_bytes,
        "driver_bytes": max(total - free - fresh, 0),
        "first_kernel_bytes": context - fresh,
        "compute_capability": [properties.major, properties.minor],
        "sm_count": properties.multi_processor_count,
        "max_threads_per_sm": properties.max_threads_per_multi_processor,
        "context_bytes": context,
        "cudnn_device": Cudnn().device_json(),
        "versions": versions(),
    }


_SIDE = 1024
PRODUCT_BYTES = 2 * 4 * _SIDE**2  # the operand, which is both, and the result of a matrix product here


def _matrix_product() -> None:
    import torch

    a = torch.zeros(_SIDE, _SIDE, device="cuda")
    torch.mm(a, a)


def _matrix_product_with_bias() -> None:
    import torch

    a = torch.zeros(_SIDE, _SIDE, device="cuda")
    torch.addmm(a[0], a, a)


def _convolution() -> None:
    import torch
    from torch.nn import functional

    functional.conv2d(torch.zeros(8, 64, 56, 56, device="cuda"), torch.zeros(64, 64, 3, 3, device="cuda"))


def _solver() -> None:
    import torch

    torch.linalg.inv(torch.eye(64, device="cuda"))


def _transform() -> None:
    import torch

    torch.fft.fft(torch.zeros(1024, device="cuda"))


def _training_step() -> None:
    """Run two steps of a small network of common layers, so that every usual library is loaded."""
    import torch
    from torch import nn

    model = nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(128),
        nn.LayerNorm(128),
        nn.GELU(),
        nn.Dropout(),
        nn.Linear(128, 10),
    ).cuda()
    images, labels = (
        torch.rand(32, 3, 32, 32, device="cuda"),
        torch.zeros(32, dtype=torch.int64, device="cuda"),
    )
    model(images)  # gives the lazy layer its size
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


FAMILIES: dict[str, Callable[[], None]] = {
    "cublas": _matrix_product,
    "cublaslt": _matrix_product_with_bias,
    "cudnn": _convolution,
    "cusolver": _solver,
    "cufft": _transform,
    "kernels": _training_step,
}
# cuSOLVER's routines call cuBLAS themselves, which then is not theirs.
NEEDS: dict[str, Callable[[], None]] = {"cusolver": _matrix_product}


def _library(probe: Mapping[str, Any]) -> dict[str, Any]:
    """Measure what a library family adds.

    outside_bytes: growth at the first use in the main thread, then in another thread. peak_bytes: of the
    allocator's peak.
    """
    import torch

    use, first = FAMILIES[probe["family"]], NEEDS.get(probe["family"])
    _start()
    outside: list[int] = []
    peaks: list[int] = []

    def measure() -> None:
        if first is not None:
            first()
        before = _outside(), torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        use()
        outside.append(_outside() - before[0])
        peaks.append(torch.cuda.max_memory_allocated() - before[1])

    measure()
    with ThreadPoolExecutor(1) as other:
        other.submit(measure).result()
    return {"outside_bytes": outside, "peak_bytes": peaks}


def _checks(_: Mapping[str, Any]) -> dict[str, Any]:
    """Return the allocator's bytes and peak after each operator with a scratch rule."""
    from analyzer_verify.runs import checks
    from analyzer_verify.runs.observer import CudaMeter, Observer

    _start()
    observer = Observer(CudaMeter())
    checks.script(observer)
    observer.finish()
    return {
        "marks": [[event, counters.allocated, counters.peak_allocated] for event, counters in observer.marks]
    }


_CALLS, _ROUNDS = 200, 15


def _host(probe: Mapping[str, Any]) -> dict[str, Any]:
    """Return seconds of a call by name, the median round's; `analyzer_timing/host.py` has those of the H100's
    host."""
    del probe
    import torch
    from torch import nn

    x, layer = torch.randn(4, 64, device="cuda"), nn.Linear(64, 64, device="cuda")
    parameters = [nn.Parameter(torch.randn(64, device="cuda")) for _ in range(100)]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.AdamW(parameters)

    def without_gradients() -> None:
        with torch.no_grad():
            layer(x)

    calls: dict[str, tuple[Callable[[], Any], int]] = {
        "relu": (lambda: torch.relu(x), _CALLS),
        "add": (lambda: x + x, _CALLS),
        "linear, no gradient": (without_gradients, _CALLS),
        "adamw 100": (optimizer.step, 5),
    }
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):  # all of them each time: the processor is slow at first
        for name, (call, count) in calls.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(count):
                call()
            rounds[name].append((time.perf_counter() - begin) / count)
    return {"seconds": {name: statistics.median(seconds) for name, seconds in rounds.items()}}
