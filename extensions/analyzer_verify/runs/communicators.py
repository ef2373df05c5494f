"""NCCL's GPU memory, measured: a rank's process makes communicators and uses them, and NVML is read in
between.

1. Every rank is a process of its own with a GPU of its own, as `torchrun` starts them; between two readings
   all of them wait for one another through gloo, which uses no GPU.
2. In order: a communicator; its first all-reduce; every other collective of a ring; a second communicator;
   its all-reduce; a message from rank 0 to rank 1, and one back; everything destroyed. Ranks above 1 only
   take part in collectives, and a rank alone sends no messages.
3. The figure is the process's bytes that PyTorch's allocator has not reserved.

The environment's `NCCL_*` variables act as they would on any program, and are written down.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from analyzer.devices import nvml
from analyzer.errors import MissingDependencyError
from analyzer.ranks import Rank
from analyzer_verify.runs import jobs, machine

COLLECTIVES = ("all_gather_into_tensor", "reduce_scatter_tensor", "broadcast", "reduce", "all_reduce again")
_ELEMENTS = 1 << 22


def measured(ranks: int) -> dict[str, Any]:
    """Return what every rank measured: {"ranks": [[[event, bytes outside the allocator], ...], ...], "link",
    "nccl", "environment"}.

    Raises MissingDependencyError for fewer GPUs than ranks, RunError for a rank that fails.
    """
    import torch

    if torch.cuda.device_count() < ranks:
        raise MissingDependencyError(
            f"{ranks} ranks need {ranks} GPUs, and PyTorch sees {torch.cuda.device_count()} here",
            "give --ranks what the machine has, or leave it out",
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"kind": "probe", "probe": {"name": "communicators"}}
    with ThreadPoolExecutor(ranks) as pool:
        environments = [
            {**Rank(rank, ranks, ranks, launched=True).environment(), "MASTER_PORT": str(port)}
            for rank in range(ranks)
        ]
        done = list(pool.map(lambda variables: jobs.run(job, variables), environments))
    results = [jobs.result_of(result, f"rank {rank} of {ranks}") for rank, result in enumerate(done)]
    return {
        "ranks": [entry["marks"] for entry in results],
        "link": nvml.link([entry["gpu"] for entry in results]),
        "nccl": results[0]["nccl"],
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name.startswith("NCCL_") and name != "NCCL_VERSION"  # a container's note on itself
        },
    }


def run(_: Mapping[str, Any]) -> dict[str, Any]:
    """Run this process's rank; return its marks, its GPU's UUID and NCCL's version."""
    import torch
    import torch.distributed as dist

    local, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    torch.cuda.set_device(local)
    uuid = f"GPU-{str(torch.cuda.get_device_properties(local).uuid).removeprefix('GPU-')}"
    ranks = int(os.environ["WORLD_SIZE"])
    marks: list[tuple[str, int]] = []
    # The tensors are there before anything is measured: what they take is the allocator's.
    gathered, part = torch.zeros(_ELEMENTS, device="cuda"), torch.zeros(_ELEMENTS // ranks, device="cuda")
    gathered = gathered[: part.numel() * ranks]
    torch.cuda.synchronize()

    def mark(event: str) -> None:
        torch.cuda.synchronize()
        total = machine.process_bytes(uuid)
        if total is None:
            raise RuntimeError(
                "NVML does not show this process (a container hides it), so nothing can be measured"
            )
        marks.append((event, total - int(torch.cuda.memory_reserved())))
        if dist.is_initialized():
            dist.barrier(group=host)

    mark("start")
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", local))
    host: Any = dist.new_group(backend="gloo")
    mark("communicator")
    dist.all_reduce(gathered)
    mark("all_reduce")
    _collectives(gathered, part, mark)
    second = dist.new_group(list(range(ranks)), backend="nccl")
    mark("second communicator")
    dist.all_reduce(gathered, group=second)
    mark("second all_reduce")
    for sender, receiver in ((0, 1), (1, 0)) if ranks > 1 else ():
        if rank == sender:
            dist.send(gathered, receiver)
        elif rank == receiver:
            dist.recv(gathered, sender)
        mark(f"{sender} to {receiver}")
    dist.destroy_process_group()
    mark("destroyed")
    nccl: Sequence[int] = torch.cuda.nccl.version()
    return {"marks": marks, "gpu": uuid, "nccl": ".".join(map(str, nccl))}


def _collectives(gathered: Any, part: Any, mark: Any) -> None:
    """Run each of the other ring collectives in the order of `COLLECTIVES`."""
    import torch.distributed as dist

    calls: Sequence[Any] = (
        lambda: dist.all_gather_into_tensor(gathered, part),
        lambda: dist.reduce_scatter_tensor(part, gathered),
        lambda: dist.broadcast(gathered, 0),
        lambda: dist.reduce(gathered, 0),
        lambda: dist.all_reduce(gathered),
    )
    for name, call in zip(COLLECTIVES, calls, strict=True):
        call()
        mark(name)
