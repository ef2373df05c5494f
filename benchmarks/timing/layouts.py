"""What the order of channels takes of the host: a step of ResNet-50 in both orders, and what may differ between them.

1. **steps**: milliseconds of a step (`capture/pytorch/module/step.py`, batch 64), of handing it over from an idle device, and of the
   device by profile; in both orders. "in each step": as steps were measured before 28 November 2026, whose batch lay in
   channels-last order on the host, and was made contiguous there in every step.
2. **batch**: milliseconds in which the host makes such a batch contiguous, by threads.
3. **calls**: microseconds of the host for one call of what ResNet-50 is made of, in both orders: forward, and its part of the backward
   pass (`host.py`).
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from benchmarks import ROOT
from benchmarks.harness.files import read, write
from benchmarks.timing import advise

RECORD = ROOT / "tests/data/h100/timing/channels_last.json.gz"
PROGRAM = "resnet50.py"
EACH_STEP = "in each step"
_WARM, _WALLS, _HANDED = 4, 15, 8


@dataclass
class Watch:
    """Watches a step: of those behind the warm ones, seconds a step, then seconds to hand each over, then one profiled."""

    phase: Any = None
    step: int = 0
    at: float = 0.0
    handed: list[float] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    profiler: Any = None

    def mark(self, name: str) -> None:
        """A named event is over."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        from benchmarks.timing.programs import busy

        number, _, event = name.partition(".")
        if event != "step":
            return
        done = int(number) + 1
        if done == _WARM:
            torch.cuda.synchronize()
            self.at = time.perf_counter()
        elif done == _WARM + _WALLS:
            torch.cuda.synchronize()
            self.found["wall"] = (time.perf_counter() - self.at) / _WALLS
            self.at = time.perf_counter()
        elif _WARM + _WALLS < done <= _WARM + _WALLS + _HANDED:
            self.handed.append(time.perf_counter() - self.at)
            torch.cuda.synchronize()
            if done == _WARM + _WALLS + _HANDED:
                self.found |= {"handed": self.handed, "host": statistics.median(self.handed)}
                self.profiler = profile(activities=[ProfilerActivity.CUDA])
                self.profiler.__enter__()
            self.at = time.perf_counter()
        elif done == _WARM + _WALLS + _HANDED + 1:
            torch.cuda.synchronize()
            self.profiler.__exit__(None, None, None)
            self.found |= busy(self.profiler, False)

    def label(self, tensor: Any, name: str, category: Any) -> None:
        """Of no interest."""


class _InEachStep(list[Any]):
    """The batch's tensors, made contiguous whenever they are gone through."""

    def __iter__(self) -> Any:
        return iter([x.contiguous() for x in list.__iter__(self)])


def _step(changes: Mapping[str, Any], before: bool) -> dict[str, Any]:
    """The row of one way. before: the batch is made contiguous in each step."""
    import torch

    from analyzer.capture.pytorch.module import step as steps
    from analyzer.options import Options
    from analyzer_verify.runs.program import build, fast_random

    count = _WARM + _WALLS + _HANDED + 1
    with fast_random():
        step = build(
            advise.target_of(PROGRAM),
            Options.of({**advise.PROGRAMS[PROGRAM], **changes, "steps": count}),
        )
    watch = Watch()
    if before:
        ours = steps.delivered
        steps.delivered = _InEachStep
        try:
            steps.run(step, watch)
        finally:
            steps.delivered = ours
    else:
        steps.run(step, watch)
    del step
    gc.collect()
    torch.cuda.empty_cache()
    return {"changes": dict(changes), EACH_STEP: before, **watch.found}


def steps_of() -> list[dict[str, Any]]:
    """The rows of "steps"; all ways twice, in turn."""
    last, fused = {"channels_last": True}, {"optimizer": "sgdm_fused"}
    ways = [({}, False), (last, False), (last, True), (fused, False), ({**fused, **last}, False)]
    return [_step(changes, before) for changes, before in ways * 2]


def batch_copies() -> dict[str, list[float]]:
    """Threads -> seconds of making a batch contiguous, of seven times."""
    import torch

    x = torch.randn(64, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    found: dict[str, list[float]] = {}
    threads = torch.get_num_threads()
    for count in sorted({1, 2, 4, 8, threads}):
        torch.set_num_threads(count)
        x.contiguous()
        for _ in range(7):
            begin = time.perf_counter()
            x.contiguous()
            found.setdefault(str(count), []).append(time.perf_counter() - begin)
    torch.set_num_threads(threads)
    return found


def calls_of() -> dict[str, dict[str, list[float]]]:
    """Order -> call -> seconds of it with a gradient, and of its part of the backward pass."""
    import torch
    from torch import nn

    from benchmarks.timing import host

    found: dict[str, dict[str, list[float]]] = {}
    for order, kept in (("first", torch.contiguous_format), ("last", torch.channels_last)):
        x = torch.randn(2, 64, 8, 8, device="cuda").contiguous(memory_format=kept)
        layers = {
            "convolution 1x1": nn.Conv2d(64, 64, 1, bias=False),
            "convolution 3x3": nn.Conv2d(64, 64, 3, padding=1, bias=False),
            "batch norm": nn.BatchNorm2d(64),
            "relu in place": nn.Sequential(nn.Identity(), nn.ReLU(inplace=True)),
        }
        calls: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {}
        for name, layer in layers.items():
            placed = layer.to("cuda").to(memory_format=kept)
            calls[name] = placed, list(placed.parameters())
        calls["relu in place"] = (lambda t: torch.relu_(t * 1.0)), []
        calls["sum"] = (lambda t, x=x: t + x), []
        found[order] = {}
        for name, (call, parameters) in calls.items():
            wanted = x.clone(memory_format=torch.preserve_format).requires_grad_()
            forward = host._seconds(lambda call=call, wanted=wanted: call(wanted))  # type: ignore[misc]
            found[order][name] = [forward, host._backward(call, wanted, parameters)]
    return found


@click.command("layouts")
@click.argument("out", type=Path)
def main(out: Path) -> None:
    """Measure both orders on this machine: channels_last.json.gz."""
    import torch

    from benchmarks.timing.measure import versions

    advise.warm_up()
    content: dict[str, Any] = {"versions": versions(), "threads": torch.get_num_threads()}
    for name, part in (("batch", batch_copies), ("calls", calls_of), ("steps", steps_of)):
        content[name] = part()
        write(out, content)
        print(f"{name}: done", flush=True)


def sentence() -> str:
    """What the page says of the record: what a step takes of the host and of the device in both orders."""
    content = read(RECORD)

    def of(changes: Mapping[str, Any]) -> tuple[float, float]:
        rows = [row for row in content["steps"] if row["changes"] == changes and not row[EACH_STEP]]
        return tuple(
            1e3 * statistics.mean(value(row) for row in rows)
            for value in (lambda row: row["host"], lambda row: sum(row["streams"].values()))
        )  # type: ignore[return-value]

    plain, last = of({}), of({"channels_last": True})
    return f"""Of ResNet-50 (`timing layouts OUT`) the host takes {plain[0]:.1f} ms to hand a step over in the usual order and {last[0]:.1f} ms in
channels-last, the device {plain[1]:.1f} and {last[1]:.1f} ms."""
