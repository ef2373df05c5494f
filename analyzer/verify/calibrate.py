"""Turn the GPU of this machine into a profile: stage by stage, each resumable, nothing guessed.

1. Stages: the device and its context; the library families; NCCL, if several ranks are asked for; cuDNN's choices for
   convolutions; checks of the scratch rules. What each stage found is kept in `PROFILE.partial` until the last one is over: an interrupted calibration
   goes on where it stopped.
2. A family's modules are its growth outside the allocator at the first use. It counts **per thread** when a second
   thread adds at least half as much again: then its bytes are what the second adds, because the first also loads code.
   The code of all kernels is what a small training step adds beyond its two threads' cuBLAS and cuDNN.
3. A workspace is by how much the allocator's peak grows at the first matrix product of a thread, beyond its operands and
   result: until torch 2.14 it is kept, since 2.15 given back with the call. cublasLt's is what a product with bias, which may take
   both, takes beyond that. Where it takes no more (torch 2.12 to 2.14 run it in cuBLAS's), 1 MiB is assumed for other releases.
4. Convolutions: the calls of the H200's table in an order that puts common batch sizes first, shared by several
   processes, until the time is up. They go into `PROFILE.convolutions.npz` next to the profile. Calls there was no
   time for are taken from the shipped table where it was measured on this GPU model with this cuDNN; elsewhere they
   stay unknown and are inferred when asked for.
5. With several ranks, NCCL: communicators made and used by as many processes with a GPU each (`runs/communicators.py`). What
   a communicator and its ring take is seen by a second one, because the first also load the library's code; what a message
   takes by one in the other direction.
6. Checks change nothing in the profile. Where a rule predicts other than was measured, that is said.

The profile obeys `devices/schema.json` and is used with `--device PROFILE.json`.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analyzer.devices import DeviceProfile
from analyzer.devices.loader import from_dict
from analyzer.libraries.cudnn.table import MODELLED_ON, measurements, table_of, write
from analyzer.releases import parse, written
from analyzer.runs import communicators, jobs, machine
from analyzer.runs.probes import PRODUCT_BYTES

CONVOLUTION_SECONDS = 360.0
# `_getCUDABlasLtWorkspaceSize` of PyTorch, on GPUs of every compute capability.
_ASSUMED_LT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Check:
    """One operator's peak in bytes, predicted with the new profile and measured."""

    name: str
    predicted_bytes: int
    measured_bytes: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """profile: the file written. convolution_count: choices asked of cuDNN. complete: all calls of the table."""

    profile: Path
    convolution_count: int
    complete: bool
    checks: tuple[Check, ...]


def calibrate(
    output: Path,
    *,
    name: str | None = None,
    convolution_seconds: float = CONVOLUTION_SECONDS,
    ranks: int = 1,
    progress: Callable[[str, float], None] | None = None,
) -> Calibration:
    """Measure this GPU and write its profile to `output` (a .json path); its table goes next to it.

    name: what the profile is called; by default the GPU's own name in lower case.
    ranks: GPUs of this machine whose NCCL communicators are measured; 1: none.
    convolution_seconds: time for the convolutions; 0 leaves them out (the profile then takes the H200's).
    progress: told (stage, share done from 0 to 1).
    Raises MissingDependencyError without a GPU, or with fewer than `ranks`, RunError when a probe fails.
    """
    machine.require_cuda("a profile", "measured", "run it on a machine with an NVIDIA GPU")
    tell = progress or (lambda *_: None)
    unfinished = output.with_name(f"{output.name}.partial")
    found: dict[str, Any] = json.loads(unfinished.read_text()) if unfinished.exists() else {}

    def stage(key: str, measure: Callable[[], Any]) -> Any:
        if key not in found:
            found[key] = measure()
            unfinished.write_text(json.dumps(found))
        return found[key]

    tell("device", 0.0)
    device = stage("device", lambda: probe({"name": "device"}))
    from analyzer.runs.probes import FAMILIES

    for number, family in enumerate(FAMILIES):
        tell("libraries", 0.02 + 0.2 * number / len(FAMILIES))
        stage(f"library {family}", partial(probe, {"name": "library", "family": family}))
    if ranks > 1:
        tell("communicators", 0.22)
        for count in (1, ranks):
            stage(f"communicators {count}", partial(communicators.measured, count))
    tell("convolutions", 0.25)
    table = output.with_name(f"{output.stem}.convolutions.npz")
    grid: dict[str, Any] = {"count": 0, "complete": False}
    if convolution_seconds > 0:
        if not table.exists():
            found.pop("convolutions", None)
        grid = stage("convolutions", lambda: _convolutions(table, convolution_seconds, device, tell))
    tell("checks", 0.9)
    document = profile(found, name, table.name if grid["count"] else None)
    output.write_text(json.dumps(document, indent=2) + "\n")
    loaded = from_dict(document, output.resolve().parent)
    measured = stage("checks", lambda: probe({"name": "checks"}))["marks"]
    compared = tuple(
        Check(event.partition(".")[2], peak, theirs[2])
        for (event, _, peak), theirs in zip(predicted_checks(loaded), measured, strict=True)
        if not event.endswith((".input", ".over"))
    )
    unfinished.unlink()
    tell("done", 1.0)
    return Calibration(output, grid["count"], grid["complete"], compared)


def probe(description: Mapping[str, Any]) -> dict[str, Any]:
    """Run one probe in a process of its own. Raises RunError."""
    result = jobs.run({"kind": "probe", "probe": dict(description)}, {"CUBLAS_WORKSPACE_CONFIG": ""})
    return jobs.result_of(result, f"the probe {description['name']}")


def profile(found: Mapping[str, Any], name: str | None, table: str | None) -> dict[str, Any]:
    """The profile's JSON from what the stages found: modules by their growth, workspaces by the allocator's."""
    device = found["device"]
    versions = device["versions"]
    where = (
        f"{device['nvml_name']}, driver {device['driver']}, torch {versions['torch']}, cuDNN {versions['cudnn']}, "
        f"analyze calibrate"
    )
    modules, per_thread = {}, []
    for family in ("cublas", "cudnn", "cusolver", "cufft"):
        first, second = found[f"library {family}"]["outside_bytes"]
        modules[family] = max(0, first)
        if first > 0 and 2 * second >= first:
            modules[family] = second
            per_thread.append(family)
    handles = sum(modules[family] * (1 + (family in per_thread)) for family in ("cublas", "cudnn"))
    modules["kernels"] = max(0, found["library kernels"]["outside_bytes"][0] - handles)
    workspace, with_bias = (
        max(0, found[f"library {family}"]["peak_bytes"][0] - PRODUCT_BYTES)
        for family in ("cublas", "cublaslt")
    )
    own = with_bias - workspace if with_bias >= workspace else with_bias
    within = workspace > 0 and not own
    document: dict[str, Any] = {
        "name": name or re.sub(r"[^a-z0-9]+", "-", device["nvml_name"].lower()).strip("-"),
        "nvml_names": [device["nvml_name"]],
        "capacity_bytes": device["capacity_bytes"],
        "listed_bytes": device["listed_bytes"],
        "driver_bytes": device["driver_bytes"],
        "compute_capability": device["compute_capability"],
        "sm_count": device["sm_count"],
        "max_threads_per_sm": device["max_threads_per_sm"],
        "context_bytes": device["context_bytes"],
        "first_kernel_bytes": device["first_kernel_bytes"],
        "modules_bytes": modules,
        "per_thread_modules": per_thread,
        "cublas_workspace_bytes": workspace,
        "cublaslt_workspace_bytes": min(_ASSUMED_LT_BYTES, workspace) if within else own,
        "measured": True,
        "releases": {
            name: written(parse(versions[name])) for name in ("torch", "cuda", "cudnn") if versions[name]
        },
        "sources": {
            figure: f"measured: {how}, {where}"
            for figure, how in (
                ("capacity_bytes", "CUDA's device properties"),
                ("listed_bytes", "NVML"),
                ("driver_bytes", "mem_get_info less NVML's process figure, in a fresh process"),
                ("compute_capability", "CUDA's device properties"),
                ("sm_count", "CUDA's device properties"),
                ("max_threads_per_sm", "CUDA's device properties"),
                ("context_bytes", "NVML's process figure after a first kernel, cache empty"),
                ("first_kernel_bytes", "the same less what it is before"),
                (
                    "modules_bytes",
                    "NVML's process figure minus the reservation, before and after a first use, and a small training step",
                ),
                ("per_thread_modules", "the same from a second thread"),
                ("cublas_workspace_bytes", "the allocator's peak at a first matrix product"),
                ("cublaslt_workspace_bytes", "the allocator's peak at a first product with bias"),
            )
        },
    }
    if within:
        document["sources"]["cublaslt_workspace_bytes"] = (
            f"assumed: torch {versions['torch']} runs products with bias in cuBLAS's workspace; other releases take 1 MiB"
        )
    connected = [found[key] for key in found if key.startswith("communicators ")]
    if connected:
        document["nccl"] = [topology(entry) for entry in connected]
        document["sources"]["nccl"] = (
            f"measured: NVML's process figure minus the reservation, communicators made and used by each rank, {where}, NCCL "
            f"{connected[0]['nccl']}, {date.today().isoformat()}"
        )
    if table is not None:
        document["data"] = {"convolution": table}
    return document


def topology(found: Mapping[str, Any]) -> dict[str, Any]:
    """What NCCL takes of a rank, from what the ranks saw (`communicators.measured`), as a profile holds it. Where ranks
    differ, the most."""
    growths = [_growths(marks) for marks in found["ranks"]]

    def most(event: str, ranks: Sequence[int] | None = None) -> int:
        return max(0, *(growths[rank][event] for rank in ranks or range(len(growths))))

    one, ring = most("second communicator"), most("second all_reduce")
    first = max(growth["communicator"] + growth["all_reduce"] for growth in growths)
    send = receive = exchange_code = 0
    if len(growths) > 1:
        send, receive = most("1 to 0", (1,)), most("1 to 0", (0,))
        exchange_code = max(0, growths[0]["0 to 1"] - send, growths[1]["0 to 1"] - receive)
    environment = "".join(f", {name}={value}" for name, value in sorted(found["environment"].items()))
    return {
        "ranks": len(growths),
        "link": found["link"] + environment,
        "nccl": found["nccl"],
        "code_bytes": max(0, first - one - ring),
        "communicator_bytes": one,
        "ring_bytes": ring,
        "exchange_code_bytes": exchange_code,
        "send_bytes": send,
        "receive_bytes": receive,
    }


def _growths(marks: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Event -> bytes more than before it."""
    return {event: nbytes - before for (_, before), (event, nbytes) in itertools.pairwise(marks)}


def _convolutions(
    table: Path, seconds: float, device: Mapping[str, Any], tell: Callable[[str, float], None]
) -> dict[str, Any]:
    """cuDNN's choices, until the time is up: several processes ask, this one gathers and writes the table."""
    parts = max(1, min(16, (os.cpu_count() or 2) - 1))
    folder = table.with_name(f".{table.name}.parts")
    folder.mkdir(exist_ok=True)
    descriptions = [
        {
            "name": "convolutions",
            "part": part,
            "parts": parts,
            "seconds": seconds,
            "file": str((folder / f"{part}.npy").resolve()),
        }
        for part in range(parts)
    ]
    with ThreadPoolExecutor(parts) as pool:
        futures = [pool.submit(probe, description) for description in descriptions]
        done = []
        for number, future in enumerate(futures):
            done.append(future.result())
            tell("convolutions", 0.25 + 0.6 * (number + 1) / parts)
    rows = np.concatenate([np.load(str(description["file"])) for description in descriptions])
    shipped = _same_hardware(device["nvml_name"], str(done[0]["cudnn"]))
    arrays = table_of(rows, shipped)
    about = {
        "gpu": device["nvml_name"],
        "driver": device["driver"],
        "cudnn": str(done[0]["cudnn"]),
        "torch": device["versions"]["torch"],
        "date": date.today().isoformat(),
        "method": "cuDNN backend API on the GPU, heuristic mode INSTANT then FALLBACK, nothing executed (analyze calibrate)",
        "entries": str(len(rows)),
        "others": "the shipped table, measured on the same GPU model with the same cuDNN"
        if shipped
        else "none",
    }
    write(table, arrays, about, small=False)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return {"count": len(rows), "complete": all(entry["complete"] for entry in done)}


def _same_hardware(gpu: str, cudnn: str) -> bool:
    """Whether the shipped table was measured on this GPU model with this cuDNN ("91900" is 9.19.0)."""
    about = measurements(MODELLED_ON).about
    number = int(cudnn)
    version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return about["gpu"].startswith(f"{gpu} (") and about["cudnn"].startswith(f"{version}.")


def predicted_checks(device: DeviceProfile) -> list[tuple[str, int, int]]:
    """(mark, allocated, peak of its case) in bytes, as predicted for `device`."""
    from analyzer.capture.pytorch.capture import capture_script
    from analyzer.runs import checks
    from analyzer.runtimes.pytorch.allocator import make_allocator
    from analyzer.runtimes.pytorch.eager import requests
    from analyzer.runtimes.timeline import simulate

    simulation = simulate(
        requests(capture_script(checks.script, device), device).events, make_allocator("", device)
    )
    return [(mark.event, mark.allocated, mark.peak) for mark in simulation.marks]
