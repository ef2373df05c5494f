"""Turn the GPU of this machine into a profile: stage by stage, each resumable, nothing guessed.

1. Stages: the device, how cuDNN describes it, and its context; the library families; NCCL, if several ranks
   are asked for; checks of the scratch rules. Each stage's figures are kept in `PROFILE.partial` until the
   last one is over: an interrupted calibration goes on where it stopped.
2. A family's modules are its growth outside the allocator at the first use. It counts **per thread** when a
   second thread adds at least half as much again: then its bytes are what the second adds, because the first
   also loads code. The code of all kernels is what a small training step adds beyond its two threads' cuBLAS
   and cuDNN.
3. A workspace is by how much the allocator's peak grows at the first matrix product of a thread, beyond its
   operands and result: until torch 2.14 it is kept, since 2.15 given back with the call. cublasLt's is what a
   product with bias, which may take both, takes beyond that. Where it takes no more (torch 2.12 to 2.14 run
   it in cuBLAS's), 1 MiB is assumed for other releases.
4. With several ranks, NCCL: communicators made and used by as many processes with a GPU each
   (`analyzer_verify/runs/communicators.py`). The memory of a communicator and its ring is measured with a
   second one, because the first also loads the library's code; a message's memory with one in the other
   direction.
5. The host's speed is by how much longer it takes over common calls than the H100's host did
   (`analyzer_timing/host.py`, `LOOPS`): the mean of their ratios' logarithms.
6. Checks change nothing in the profile. A rule whose prediction differs from the measurement is reported.

The profile obeys `devices/schema.json` and is used with `--device PROFILE.json`.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from analyzer.devices import DeviceProfile
from analyzer.devices.loader import from_dict
from analyzer.releases import parse, written
from analyzer_timing import host
from analyzer_verify.runs import communicators, jobs, machine
from analyzer_verify.runs.probes import PRODUCT_BYTES

# `_getCUDABlasLtWorkspaceSize` of PyTorch, on GPUs of every compute capability.
_ASSUMED_LT_BYTES = 1 << 20

# How each figure is measured.
_MEASURED_BY = {
    "capacity_bytes": "CUDA's device properties",
    "listed_bytes": "NVML",
    "driver_bytes": "mem_get_info less NVML's process figure, in a fresh process",
    "compute_capability": "CUDA's device properties",
    "sm_count": "CUDA's device properties",
    "max_threads_per_sm": "CUDA's device properties",
    "cudnn_device": "cuDNN's own description",
    "context_bytes": "NVML's process figure after a first kernel, cache empty",
    "first_kernel_bytes": "the same less what it is before",
    "modules_bytes": (
        "NVML's process figure minus the reservation, before and after a first use, and a small training step"
    ),
    "per_thread_modules": "the same from a second thread",
    "cublas_workspace_bytes": "the allocator's peak at a first matrix product",
    "cublaslt_workspace_bytes": "the allocator's peak at a first product with bias",
    "host_factor": "seconds of common calls, beside those of the H100's host",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One operator's peak in bytes, predicted with the new profile and measured."""

    name: str
    predicted_bytes: int
    measured_bytes: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """profile: the file written. checks: the scratch rules beside what was measured."""

    profile: Path
    checks: tuple[Check, ...]


def calibrate(
    output: Path,
    *,
    name: str | None = None,
    ranks: int = 1,
    progress: Callable[[str, float], None] | None = None,
) -> Calibration:
    """Measure this GPU and write its profile to `output` (a .json path).

    name: what the profile is called; by default the GPU's own name in lower case.
    ranks: GPUs of this machine whose NCCL communicators are measured; 1: none.
    progress: told (stage, share done from 0 to 1).
    Raises MissingDependencyError without a GPU, or with fewer than `ranks`, RunError when a probe fails.
    """
    machine.require_cuda("a profile", "measured", "run it on a machine with an NVIDIA GPU")
    tell = progress or (lambda *_: None)
    unfinished = output.with_name(f"{output.name}.partial")
    results: dict[str, Any] = json.loads(unfinished.read_text()) if unfinished.exists() else {}

    def stage(key: str, measure: Callable[[], Any]) -> Any:
        if key not in results:
            results[key] = measure()
            unfinished.write_text(json.dumps(results))
        return results[key]

    tell("device", 0.0)
    stage("device", lambda: probe({"name": "device"}))
    from analyzer_verify.runs.probes import FAMILIES

    for number, family in enumerate(FAMILIES):
        tell("libraries", 0.02 + 0.6 * number / len(FAMILIES))
        stage(f"library {family}", partial(probe, {"name": "library", "family": family}))
    if ranks > 1:
        tell("communicators", 0.65)
        for count in (1, ranks):
            stage(f"communicators {count}", partial(communicators.measured, count))
    tell("host", 0.85)
    stage("host", lambda: probe({"name": "host"}))
    tell("checks", 0.9)
    document = profile(results, name)
    output.write_text(json.dumps(document, indent=2) + "\n")
    loaded = from_dict(document)
    measured = stage("checks", lambda: probe({"name": "checks"}))["marks"]
    compared = tuple(
        Check(event.partition(".")[2], peak, theirs[2])
        for (event, _, peak), theirs in zip(predicted_checks(loaded), measured, strict=True)
        if not event.endswith((".input", ".over"))
    )
    unfinished.unlink()
    tell("done", 1.0)
    return Calibration(output, compared)


def probe(description: Mapping[str, Any]) -> dict[str, Any]:
    """Run one probe in a process of its own. Raises RunError."""
    result = jobs.run({"kind": "probe", "probe": dict(description)}, {"CUBLAS_WORKSPACE_CONFIG": ""})
    return jobs.result_of(result, f"the probe {description['name']}")


def profile(measured: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Return a profile's JSON from the stages: modules by growth, workspaces by the allocator."""
    device = measured["device"]
    versions = device["versions"]
    where = (
        f"{device['nvml_name']}, driver {device['driver']}, torch {versions['torch']}, cuDNN"
        f" {versions['cudnn']}, analyze calibrate"
    )
    modules, per_thread = {}, []
    for family in ("cublas", "cudnn", "cusolver", "cufft"):
        first, second = measured[f"library {family}"]["outside_bytes"]
        modules[family] = max(0, first)
        if first > 0 and 2 * second >= first:
            modules[family] = second
            per_thread.append(family)
    handles = sum(modules[family] * (1 + (family in per_thread)) for family in ("cublas", "cudnn"))
    modules["kernels"] = max(0, measured["library kernels"]["outside_bytes"][0] - handles)
    workspace, with_bias = (
        max(0, measured[f"library {family}"]["peak_bytes"][0] - PRODUCT_BYTES)
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
        "cudnn_device": json.loads(device["cudnn_device"]),
        "host_factor": round(host.factor_of(measured["host"]["seconds"]), 3),
        "releases": {
            name: written(parse(versions[name])) for name in ("torch", "cuda", "cudnn") if versions[name]
        },
        "sources": {figure: f"measured: {how}, {where}" for figure, how in _MEASURED_BY.items()},
    }
    if within:
        document["sources"]["cublaslt_workspace_bytes"] = (
            f"assumed: torch {versions['torch']} runs products with bias in cuBLAS's workspace; other"
            " releases take 1 MiB"
        )
    connected = [measured[key] for key in measured if key.startswith("communicators ")]
    if connected:
        document["nccl"] = [topology(entry) for entry in connected]
        document["sources"]["nccl"] = (
            "measured: NVML's process figure minus the reservation, communicators made and used by each"
            f" rank, {where}, NCCL {connected[0]['nccl']}, {date.today().isoformat()}"
        )
    return document


def topology(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rank's NCCL memory as a profile stores it, the largest where ranks differ."""
    growths: list[dict[str, int]] = [  # by rank: event -> bytes more than before it
        {event: nbytes - before for (_, before), (event, nbytes) in itertools.pairwise(marks)}
        for marks in measured["ranks"]
    ]

    def most(event: str, ranks: Sequence[int] | None = None) -> int:
        return max(0, *(growths[rank][event] for rank in ranks or range(len(growths))))

    one, ring = most("second communicator"), most("second all_reduce")
    first = max(growth["communicator"] + growth["all_reduce"] for growth in growths)
    send = receive = exchange_code = 0
    if len(growths) > 1:
        send, receive = most("1 to 0", (1,)), most("1 to 0", (0,))
        exchange_code = max(0, growths[0]["0 to 1"] - send, growths[1]["0 to 1"] - receive)
    environment = "".join(f", {name}={value}" for name, value in sorted(measured["environment"].items()))
    return {
        "ranks": len(growths),
        "link": measured["link"] + environment,
        "nccl": measured["nccl"],
        "code_bytes": max(0, first - one - ring),
        "communicator_bytes": one,
        "ring_bytes": ring,
        "exchange_code_bytes": exchange_code,
        "send_bytes": send,
        "receive_bytes": receive,
    }


def predicted_checks(device: DeviceProfile) -> list[tuple[str, int, int]]:
    """(mark, allocated, peak of its case) in bytes, as predicted for `device`."""
    from analyzer.capture.pytorch.capture import capture_script
    from analyzer.runtimes.pytorch.eager import requests
    from analyzer.runtimes.pytorch.settings import make_allocator
    from analyzer.runtimes.timeline import simulate
    from analyzer_verify.runs import checks

    simulation = simulate(
        requests(capture_script(checks.script, device), device).events, make_allocator("", device)
    )
    return [(mark.event, mark.allocated, mark.peak) for mark in simulation.marks]
