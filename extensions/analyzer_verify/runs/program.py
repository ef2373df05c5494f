"""The PyTorch program as it is, run on the GPU: the measured side of the comparison.

1. The target is built on the CPU as running it would, and `capture/pytorch/module/step.py`, the very step
   that was captured, runs with an `Observer` in the recorder's place.
2. Before it: CUDA is initialised, one kernel has run, the cache is empty. NVML's figure then is the context.
3. Weights are random. Large tensors repeat one block of random values, because nobody needs billions of
   different ones.
4. The allocator's history is recorded without stack traces and returned as one integer an event: n >= 0 for a
   request of n bytes, -(k + 1) when the k-th request is given back.
5. float16 training: the optimizer steps even where the scaled gradients are not finite. Random weights often
   make them so, trained ones hardly ever, and the prediction is for a training that goes on.
6. Out of memory is a result: the event under way, the counters, what was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from analyzer.options import Options
from analyzer_verify.runs import machine
from analyzer_verify.runs.observer import CudaMeter, Observer

HISTORY_ENTRIES = 4_000_000
_BLOCK = 1 << 20


def run(target: str, options: Options) -> dict[str, Any]:
    """Run `target` on the GPU. Returns marks, peaks of each iteration, NVML's figures and the history."""
    import torch

    from analyzer.capture.pytorch.module import step as steps

    torch.manual_seed(0)
    with fast_random():
        step = build(target, options)

    def script(observer: Observer) -> None:
        with steps_taken():
            steps.run(step, observer)

    return watched(script)


def run_script(name: str) -> dict[str, Any]:
    """Run `file.py:function` on the GPU; it takes an observer (`Watcher`) and marks its events."""
    from analyzer.targets import load_function

    return watched(load_function(name))


def watched(script: Callable[[Observer], Any]) -> dict[str, Any]:
    """Run `script` on the GPU as the module docstring says. Its result is `returned`."""
    import torch

    started = time.monotonic()
    before = machine.process_bytes(), machine.device_bytes()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    context = machine.process_bytes(), machine.device_bytes()
    observer = Observer(CudaMeter())
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=HISTORY_ENTRIES, context=None, stacks="python")
    failed: dict[str, Any] | None = None
    returned: Any = None
    try:
        returned = script(observer)
    except torch.OutOfMemoryError as error:
        failed = {
            "after": observer.marks[-1][0] if observer.marks else "start",
            "message": " ".join(str(error).split())[:500],
            "counters": asdict(observer.meter.read()),
        }
    observer.finish()
    torch.cuda.synchronize()
    after = machine.process_bytes(), machine.device_bytes()
    history = encode(torch.cuda.memory._snapshot()["device_traces"][0])
    torch.cuda.memory._record_memory_history(enabled=None)
    times = ("before", "context", "end")
    result = {
        "marks": [{"event": event, **asdict(counters)} for event, counters in observer.marks],
        "peaks": [asdict(counters) for counters in observer.peaks],
        "nvml_process": dict(zip(times, (before[0], context[0], after[0]), strict=True)),
        "nvml_device": dict(zip(times, (before[1], context[1], after[1]), strict=True)),
        "history": history,
        "returned": returned,
        "versions": versions(),
        "seconds": round(time.monotonic() - started, 1),
    }
    return result if failed is None else {**result, "out_of_memory": failed}


def build(target: str, options: Options) -> Any:
    """Return the step with real CPU tensors. Raises InputError and TargetError."""
    from analyzer.capture.pytorch.module import from_options
    from analyzer.capture.pytorch.module.step import Step
    from analyzer.targets import load, parse

    program = load(parse(target), real=True, trust=options.trust)
    batch = from_options.batch_for(program, options, _real)
    train = options.mode == "train"
    from_options.preparation(options)(program.model)
    return Step(
        model=program.model,
        inputs=batch.inputs,
        targets=batch.targets if train else (),
        loss=from_options.loss_for(program, options, batch)[0] if train else None,
        optimizer=from_options.optimizer_for(options.optimizer) if train else None,
        train=train,
        amp=options.amp,
        grad_accumulation=options.grad_accumulation,
        iterations=options.steps,
        call=batch.call,
    )


def _real(value: Any) -> Any:
    """Return a real tensor for a `TensorSpec`, or the one given."""
    import torch

    from analyzer.spec import TensorSpec

    if not isinstance(value, TensorSpec):
        return value
    dtype = getattr(torch, value.dtype)
    tensor = torch.zeros(value.shape, dtype=dtype)
    if dtype.is_floating_point:
        tensor.normal_()
    if value.stride is not None:
        tensor = torch.empty_strided(value.shape, value.stride, dtype=dtype).copy_(tensor)
    return tensor


def steps_taken() -> Any:
    """`GradScaler` looks whether gradients are finite, and steps all the same."""
    from analyzer.capture.pytorch.patches import replaced

    def step(_: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        sum(value.item() for value in state["found_inf_per_device"].values())
        return optimizer.step(*args, **kwargs)

    return replaced({"torch.amp.GradScaler._maybe_opt_step": step})


def versions() -> dict[str, str]:
    """Return the versions of torch, CUDA and cuDNN."""
    import torch

    cudnn = torch.backends.cudnn.version() or 0
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn else "",
    }


def encode(trace: Iterable[Mapping[str, Any]]) -> list[int]:
    """PyTorch's recorded allocator trace as integers: n for a request of n bytes, -(k + 1) for the k-th given
    back. Frees of blocks older than the trace are left out.

    >>> entry = lambda action, addr, size: {"action": action, "addr": addr, "size": size}
    >>> encode([entry("alloc", 16, 100), entry("alloc", 32, 7), entry("free_completed", 16, 100)])
    [100, 7, -1]
    """
    history: list[int] = []
    live: dict[int, int] = {}
    count = 0
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["addr"]] = count
            history.append(entry["size"])
            count += 1
        elif entry["action"] == "free_completed" and entry["addr"] in live:
            history.append(-1 - live.pop(entry["addr"]))
    return history


@contextmanager
def fast_random() -> Iterator[None]:
    """While open, large tensors are initialised by repeating a block of random values."""
    import torch

    from analyzer.capture.pytorch.patches import replaced

    def quick(original: Any) -> Any:
        def fill(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self.numel() <= 4 * _BLOCK or not self.is_contiguous() or self.device.type != "cpu":
                return original(self, *args, **kwargs)
            with torch.no_grad():
                flat = self.detach().view(-1)
                original(flat[:_BLOCK], *args, **kwargs)
                for start in range(_BLOCK, flat.numel(), _BLOCK):
                    flat[start : start + _BLOCK].copy_(flat[: min(_BLOCK, flat.numel() - start)])
            return self

        return fill

    names = ("normal_", "uniform_")
    with replaced({f"torch.Tensor.{name}": quick(getattr(torch.Tensor, name)) for name in names}):
        yield
