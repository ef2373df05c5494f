"""FSDP2 on two GPUs: programs measured on two H200, and PyTorch's FSDPMemTracker.

The tracker is used as its docstring shows, around the program's steps, with a process group of the "fake" backend and fake
tensors. A torch without CUDA cannot differentiate fake tensors of CUDA, so "cuda" is made to mean the CPU's fake tensors,
and FSDP's streams do nothing: the tracker knows no streams. The program itself is not changed; the tracker begins when it
has made its optimizer. All this is done to a process of its own.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import analyzer
from benchmarks import ROOT, SUBJECTS
from benchmarks.peers.tool import FIGURES, CannotSayError, Case, Tool

Question = Callable[[], tuple[int, ...]]
PROGRAMS = SUBJECTS / "ranks/programs"
_FSDP2 = ("accumulate.py", "fsdp2.py")


def cases() -> Iterator[Case]:
    """Every measured rank of a program that uses FSDP2."""
    jobs = {job["name"]: job for job in json.loads((SUBJECTS / "ranks/jobs.json").read_text())}
    for file in ("ranks.json", "ranks_fsdp2.json"):
        for row in json.loads((ROOT / "tests" / "data" / "h200" / file).read_text()):
            job = jobs[row["name"]]
            if job["program"] not in _FSDP2:
                continue
            figures = (row["peak_allocated"], row["peak_reserved"], row["nvml_peak"])
            given = (job["program"], job["args"], row["rank"])
            yield Case(
                "rank", f"{row['name']}, rank {row['rank']}", dict(zip(FIGURES, figures, strict=True)), given
            )


def _analyzer(given: tuple[str, list[str], int]) -> Question:
    program, arguments, rank = given

    def question() -> tuple[int, ...]:
        found = analyzer.run(PROGRAMS / program, arguments, device="h200", ranks=2, rank=rank)
        return found.peak_allocated, found.peak_reserved, found.device_used

    return question


def _fsdp_mem_tracker(given: tuple[str, list[str], int]) -> Question:
    program, arguments, rank = given
    if "--offload" in arguments:
        raise CannotSayError("parameters on the host beside fake tensors of the host")
    from torch._subclasses.fake_tensor import FakeTensorMode

    world = _World(rank)

    def question() -> tuple[int, ...]:
        sys.argv = [program, *arguments]
        sys.path.insert(0, str(PROGRAMS))
        with FakeTensorMode(allow_non_fake_inputs=True), world:
            runpy.run_path(str(PROGRAMS / program), run_name="__main__")
        assert world.tracker is not None
        return (sum(found["Total"] for found in world.tracker.get_tracker_snapshot("peak").values()),)

    return question


class _World(TorchFunctionMode):
    """Two ranks of which one is here, and CUDA that is the CPU. Changes torch for good."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.root: torch.nn.Module | None = None
        self.tracker: Any = None
        os.environ |= {"LOCAL_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": "2"}
        self._replace_process_group(rank)
        self._replace_streams()
        self._attach_tracker()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.item:  # a loss to print
            return 1.0
        if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            kwargs["device"] = torch.device("cpu")
        result = function(*args, **kwargs)
        if function is torch.Tensor.backward and self.tracker is not None:
            # It refuses a second forward pass otherwise.
            self.tracker.reset_mod_stats()
        return result

    def _replace_process_group(self, rank: int) -> None:
        import torch.distributed as dist
        import torch.distributed.device_mesh as meshes
        from torch._subclasses.fake_tensor import unset_fake_temporarily
        from torch.testing._internal.distributed.fake_pg import FakeStore

        begin, make_mesh = dist.init_process_group, meshes.init_device_mesh

        def begin_fake(*_: Any, **__: Any) -> None:
            begin("fake", rank=rank, world_size=2, store=FakeStore())

        def mesh_of_cpus(_: str, *arguments: Any, **more: Any) -> Any:
            with unset_fake_temporarily(), torch._C.DisableTorchFunction():
                return make_mesh("cpu", *arguments, **more)

        dist.init_process_group = begin_fake  # type: ignore[assignment]
        meshes.init_device_mesh = mesh_of_cpus  # type: ignore[assignment]
        torch.cuda.set_device = lambda _: None  # type: ignore[assignment]
        torch.nn.Module.cuda = lambda module, _=None: module  # type: ignore[assignment,method-assign]

    @staticmethod
    def _replace_streams() -> None:
        from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group, _fsdp_state

        for module in (_fsdp_collectives, _fsdp_param_group, _fsdp_state):
            module._get_device_handle = lambda _: _Device  # type: ignore[attr-defined]

    def _attach_tracker(self) -> None:
        import torch.distributed.device_mesh as meshes
        from torch.distributed import fsdp
        from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

        shard, world = fsdp.fully_shard, self

        def fully_shard(module: Any, *, mesh: Any = None, **more: Any) -> Any:
            world.root = module  # the root is sharded last
            return shard(module, mesh=mesh or meshes.init_device_mesh("cuda", (2,)), **more)

        class AdamW(torch.optim.AdamW):
            def __init__(self, *arguments: Any, **more: Any) -> None:
                super().__init__(*arguments, **more)
                assert world.root is not None
                world.tracker = FSDPMemTracker(world.root, self)
                world.tracker.__enter__()

        fsdp.fully_shard = fully_shard  # type: ignore[assignment]
        torch.optim.AdamW = AdamW  # type: ignore[misc]

    def __exit__(self, *error: Any) -> None:
        if self.tracker is not None:
            self.tracker.__exit__(*error)
        super().__exit__(*error)


class _Stream:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, _: Any) -> None: ...

    def wait_event(self, _: Any) -> None: ...

    def record_event(self, *_: Any) -> _Event:
        return _Event()


class _Event:
    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...


class _Device:
    """What FSDP asks of `torch.cuda`."""

    Stream, Event = _Stream, _Event

    @staticmethod
    def current_stream(*_: Any) -> _Stream:
        return _Stream()

    @staticmethod
    def stream(_: Any) -> Any:
        return nullcontext()


TOOLS = (
    Tool("analyzer", "analyzer", "rank", FIGURES, _analyzer),
    Tool("FSDPMemTracker", "torch", "rank", ("allocated",), _fsdp_mem_tracker),
)
