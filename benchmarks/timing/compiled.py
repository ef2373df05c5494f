"""Measure compiled steps on this machine's GPU: `python -m benchmarks timing compiled OUT`.

1. Each case (`cases.json`) is compiled in a process of its own, several at once. When one has warmed up, all others are stopped
   (SIGSTOP, their compilers with them) while it is timed, so that neither the device nor the host is shared.
2. What is measured is what `programs.py` measures, but for **host**: the median of the times until a step has been handed over from
   an idle device, less what the copies of its batch took in that very step, for which the host waits; a compiled step has too few
   launches to fill the queue. Kernels are recorded by name, too, but for the held-out cases, which stay unseen.
3. `loops`: what one kernel of Inductor's, one library call, one argument, one layer and one CUDA graph take of the host, from chains of
   them. `host`: seconds of what `analyze calibrate` times, in a process of its own before all others.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import torch
from torch.profiler import ProfilerActivity, profile

from analyzer_verify.runs import probes
from benchmarks.timing import advise_compiled
from benchmarks.timing.cases import COMPILED, WAYS, tag
from benchmarks.timing.compiled_step import stepping
from benchmarks.timing.programs import busy, enqueued, walls_of
from benchmarks.timing.steps import Copies

_TOGETHER, _TIMED_S, _POLL_S = 12, 60, 0.05
LOOPS = "loops"


def measured(case: dict[str, Any], by_kernel: bool, ready: Callable[[], None]) -> dict[str, Any]:
    """The row of one case. ready: called when it has warmed up; returns when nothing else runs."""
    begin = time.perf_counter()
    copies = Copies()
    step = stepping(case, copies)
    first = enqueued(step, 5)
    row: dict[str, Any] = {
        "case": case,
        "first": round(first[0], 2),
        "prepared": round(time.perf_counter() - begin, 1),
    }
    ready()
    enqueued(step, 3)
    walls = walls_of(step, 3)
    handed, moved = [], []
    for _ in range(9):
        copies.seconds = 0.0
        handed += enqueued(step, 1)
        moved.append(copies.seconds)
    row |= {
        "wall": min(walls), "walls": walls, "enqueue": statistics.median(handed), "copied": statistics.median(moved),
        "host": statistics.median(all_of - part for all_of, part in zip(handed, moved, strict=True)),
    }  # fmt: skip
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    row |= busy(profiler, False)
    if by_kernel:
        row["by_kernel"] = by_name(profiler)
    row["peak"], row["reserved"] = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return row


def by_name(profiler: Any) -> dict[str, list[int]]:
    """Kernel's name -> how often it ran, and nanoseconds in all."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for event in profiler.profiler.kineto_results.events():
        if (
            event.device_type() == torch.autograd.DeviceType.CUDA
            and event.duration_ns()
            and event.correlation_id()
        ):
            entry = found[event.name()[:90]]
            entry[0] += 1
            entry[1] += event.duration_ns()
    return dict(found)


def _chain(kind: str, count: int) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """A function of which Inductor makes so many launches of a kind, and its arguments."""
    x = torch.randn(64, 64, device="cuda", requires_grad=True)
    if kind == "modules":  # guards of modules, besides arguments
        return torch.nn.Sequential(*(torch.nn.Linear(64, 64, device="cuda") for _ in range(count))), [x]
    if kind == "products":

        def chain(x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = x @ x
            return x
    elif kind == "convolutions":
        x = torch.randn(2, 16, 8, 8, device="cuda", requires_grad=True)
        kernel = torch.randn(16, 16, 1, 1, device="cuda")

        def chain(x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = torch.conv2d(x, kernel)
            return x
    elif kind == "kernels":  # a product between them, so that they are not fused

        def chain(x: torch.Tensor) -> torch.Tensor:
            for _ in range(count):
                x = (x @ x).sin()
            return x
    else:
        weights = [torch.randn(64, 64, device="cuda", requires_grad=True) for _ in range(count)]

        def chain(x: torch.Tensor, *ws: torch.Tensor) -> torch.Tensor:
            for w in ws:
                x = x @ w
            return x

        return chain, [x, *weights]
    return chain, [x]


def _parts(
    call: Callable[[], torch.Tensor], leaves: list[torch.Tensor], repeats: int = 40
) -> dict[str, float]:
    """Median host seconds of a call, and of the backward pass of its sum."""
    forward, backward = [], []
    for _ in range(repeats):
        for leaf in leaves:
            leaf.grad = None
        torch.cuda.synchronize()
        begin = time.perf_counter()
        out = call()
        forward.append(time.perf_counter() - begin)
        if not out.requires_grad:
            continue
        total = out.sum()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        total.backward()
        backward.append(time.perf_counter() - begin)
    return {
        "forward": statistics.median(forward),
        "backward": statistics.median(backward) if backward else 0.0,
    }


def loops(ready: Callable[[], None]) -> dict[str, Any]:
    """Host seconds by "kind count mode gradients"; "graph": seconds of replayed graphs by their nodes."""
    calls: dict[str, tuple[Callable[[], Any], list[torch.Tensor]]] = {}
    for mode in ("default", "reduce-overhead"):
        for kind, counts in (
            ("products", (4, 64)),
            ("kernels", (4, 64)),
            ("weights", (4, 64)),
            ("modules", (4, 64)),
            ("convolutions", (4, 64)),
        ):
            for count in counts:
                chain, arguments = _chain(kind, count)
                compiled = torch.compile(chain, mode=None if mode == "default" else mode, dynamic=False)
                torch._dynamo.config.recompile_limit = 100

                def call(compiled: Any = compiled, arguments: Any = arguments, mode: str = mode) -> Any:
                    if mode != "default":
                        torch.compiler.cudagraph_mark_step_begin()
                    return compiled(*arguments)

                def plain(call: Any = call) -> Any:
                    with torch.no_grad():
                        return call()

                leaves = [*arguments, *(chain.parameters() if isinstance(chain, torch.nn.Module) else ())]
                calls[f"{kind} {count} {mode}"] = call, leaves
                calls[f"{kind} {count} {mode} no_grad"] = plain, []
    found: dict[str, Any] = {}
    for name, (call, leaves) in calls.items():
        try:
            _parts(call, leaves, 4)
        except Exception as error:
            found[name] = repr(error)[:200]
    ready()
    for name, (call, leaves) in calls.items():
        if name not in found:
            found[name] = _parts(call, leaves)
    found["graph"] = graphs()
    return found


def graphs() -> dict[str, Any]:
    """A CUDA graph of so many kernels: host seconds of a replay, and device seconds from its first begin to its last end."""
    found = {}
    for count in (1, 10, 100, 1000):
        for elements in (64, 2**20):
            x = torch.zeros(elements, device="cuda")
            graph = torch.cuda.CUDAGraph()
            x.relu_()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                for _ in range(count):
                    x.relu_()
            hosts, spans = [], []
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for _ in range(12):
                torch.cuda.synchronize()
                at = time.perf_counter()
                graph.replay()
                hosts.append(time.perf_counter() - at)
                torch.cuda.synchronize()
                begin.record()
                graph.replay()
                graph.replay()
                end.record()
                torch.cuda.synchronize()
                spans.append(begin.elapsed_time(end) / 2e3)
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                graph.replay()
                torch.cuda.synchronize()
            kernels = sum(entry[1] for entry in by_name(profiler).values()) / 1e9
            found[f"{count} {elements}"] = {
                "host": statistics.median(hosts),
                "span": statistics.median(spans),
                "kernels": kernels,
            }
    return found


def worker(job: Path) -> None:
    """One process: a case, or the loops; its result lies beside the job."""
    content = json.loads(job.read_text("utf-8"))
    go = job.with_suffix(".go")

    def ready() -> None:
        torch.cuda.synchronize()
        job.with_suffix(".ready").touch()
        while not go.exists():
            time.sleep(_POLL_S / 2)

    if content["set"] == LOOPS:
        row: dict[str, Any] = {"loops": loops(ready)}
    elif content["set"] == advise_compiled.ADVICE:
        row = advise_compiled.measured(content, ready)
    else:
        row = measured(content["case"], content["set"] != "held_out", ready)
    row["set"] = content["set"]
    partial = job.with_suffix(".partial")
    partial.write_text(json.dumps(row), "utf-8")
    partial.rename(job.with_suffix(".row"))


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _start(job: Path) -> subprocess.Popen[bytes]:
    with job.with_suffix(".log").open("wb") as log:
        variables = {
            **os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "2",
            "TORCHINDUCTOR_CACHE_DIR": str(job.with_suffix(".cache")), "TRITON_CACHE_DIR": str(job.with_suffix(".triton")),
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.timing.compiled", "worker", str(job)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=variables, start_new_session=True)


def _timed(name: str, running: dict[str, subprocess.Popen[bytes]], folder: Path) -> None:
    """Let one warmed-up process measure, with all others stopped."""
    process, job = running[name], folder / f"{name}.json"
    others = [other for key, other in running.items() if key != name]
    for other in others:
        _signal(other, signal.SIGSTOP)
    time.sleep(0.3)
    job.with_suffix(".go").touch()
    until = time.monotonic() + _TIMED_S
    while process.poll() is None and not job.with_suffix(".row").exists() and time.monotonic() < until:
        time.sleep(_POLL_S)
    if not job.with_suffix(".row").exists():
        _signal(process, signal.SIGKILL)
    for other in others:
        _signal(other, signal.SIGCONT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    _signal(process, signal.SIGKILL)


def listed(only: str, group: str = "") -> list[dict[str, Any]]:
    """The loops, unless only models are asked for whose name has this in it, or a set, and the cases: those that compile longest
    first."""
    jobs: list[dict[str, Any]] = [{"set": LOOPS}] if not only and not group else []
    groups = {**COMPILED, "ways": WAYS}
    jobs += [
        {"set": name, "case": case}
        for name, cases in groups.items()
        for case in cases
        if only in case["model"] and group in ("", name)
    ]
    return sorted(jobs, key=lambda job: job["set"] != LOOPS and job["case"]["mode"] == "infer")


@click.group()
def cli() -> None:
    """Compiled steps."""


@cli.command("worker")
@click.argument("job", type=Path)
def _worker(job: Path) -> None:
    worker(job)


@cli.command("host")
@click.argument("out", type=Path)
def _host(out: Path) -> None:
    seconds = [probes.run({"name": "host"})["seconds"] for _ in range(2)][-1]  # warm
    out.write_text(json.dumps(seconds), "utf-8")


@cli.command("compiled")
@click.argument("folder", type=Path)
@click.option("--seconds", default=540.0, help="no result is waited for after these")
@click.option("--together", default=_TOGETHER, help="processes at once")
@click.option("--only", default="", help="cases whose model has this in it")
@click.option("--set", "group", default="", help="these cases alone")
def main(folder: Path, seconds: float, together: int, only: str, group: str) -> None:
    """Measure the cases of `cases.json`, and the loops: compiled.json.gz."""
    from benchmarks.harness.files import write
    from benchmarks.timing.measure import versions

    begin = time.monotonic()
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    # In a process of its own, before anything is compiled or profiled.
    subprocess.run(
        [sys.executable, "-m", "benchmarks.timing.compiled", "host", str(work / "host.out")], check=True
    )
    host = json.loads((work / "host.out").read_text("utf-8"))

    def keep(rows: Sequence[dict[str, Any]]) -> None:
        write(folder / "compiled.json.gz", {"versions": versions(), "host": host, "rows": list(rows)})

    run_all(listed(only, group), folder, seconds - (time.monotonic() - begin), together, keep)


def run_all(
    jobs: Sequence[dict[str, Any]],
    folder: Path,
    seconds: float,
    together: int,
    keep: Callable[[Sequence[dict[str, Any]]], None],
) -> None:
    """Run each job in a process of its own, so many at once, for so many seconds in all. keep: called with the rows so far, whenever
    there is one more. Files lie in the folder's `work`."""
    begin, work = time.monotonic(), folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    order = {f"{number:02d}": job for number, job in enumerate(jobs)}
    for name, what in order.items():
        (work / f"{name}.json").write_text(json.dumps(what), "utf-8")
    waiting, running, rows = list(order), dict[str, subprocess.Popen[bytes]](), list[dict[str, Any]]()
    try:
        while (waiting or running) and time.monotonic() - begin < seconds:
            while waiting and len(running) < together:
                name = waiting.pop(0)
                running[name] = _start(work / f"{name}.json")
            time.sleep(_POLL_S)
            for name in list(running):
                job = work / f"{name}.json"
                if job.with_suffix(".ready").exists():
                    _timed(name, running, work)
                elif running[name].poll() is None:
                    continue
                running.pop(name)
                rows.append(_row(order[name], job))
                said = rows[-1].get("error", rows[-1].get("wall", ""))
                named = tag(order[name]["case"]) if "case" in order[name] else LOOPS
                print(f"{time.monotonic() - begin:.0f} s: {named}: {said}"[:300], flush=True)
                keep(rows)
    finally:
        for process in running.values():
            _signal(process, signal.SIGKILL)
    failed = sum("error" in row for row in rows)
    print(json.dumps({"rows": len(rows), "failed": failed, "left": len(waiting) + len(running)}))


def _row(what: dict[str, Any], job: Path) -> dict[str, Any]:
    """What a process has measured; the end of what it said, where it has ended without."""
    if job.with_suffix(".row").exists():
        found: dict[str, Any] = json.loads(job.with_suffix(".row").read_text("utf-8"))
        return found
    return {**what, "error": job.with_suffix(".log").read_text("utf-8", "replace")[-600:]}


if __name__ == "__main__":
    cli()
