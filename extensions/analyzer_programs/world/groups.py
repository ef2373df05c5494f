"""Process groups of a world that is not there: PyTorch's own, with nobody at the other end.

1. `init_process_group`, `new_group`, `init_device_mesh` and everything above them is PyTorch's own code. The
   backends it makes ("nccl", "gloo") are PyTorch's fake process group, which sends nothing
   (`FakeProcessGroup.hpp`); they keep their names. Their collectives are in `collectives.py`.
2. Rendezvous finds everybody at once; the store is in `store.py`.
3. Processes the program starts for its ranks are in `processes.py`.
4. Objects other ranks send are in `objects.py`.
5. A message sent by itself goes through the group's communicator where that was made with the group
   (`device_id`), else through one of the two ranks alone; one sent in a batch, through the group's
   (`pointToPoint`, `ProcessGroupNCCL.cpp`, whose warning about unbatched operations says so). The backend
   "nccl" since torch 2.15 (`ProcessGroupNCCL2`) binds every group to its device (`_nccl2_device`,
   `distributed_c10d.py`).
6. With a post, the rank says in the end which collectives it called, group by group: every rank of a group
   has to call the same ones in the same order (`analyzer_programs/order.py`).

Not modelled: MPI, UCC, XCCL; RPC; `ProcessGroupWrapper` (TORCH_DISTRIBUTED_DEBUG=DETAIL).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeProcessGroup

from analyzer.capture.pytorch.patches import replaced
from analyzer.errors import CaptureError
from analyzer.graph import Communicator
from analyzer.ranks import calls_of
from analyzer_programs.world.collectives import RECEIVING, SENDING, WRAPPING, Collectives
from analyzer_programs.world.messages import Messages
from analyzer_programs.world.objects import Objects
from analyzer_programs.world.processes import processes
from analyzer_programs.world.store import Store, stores

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.ranks import Call, Post, Rank


_MESSAGES = ("send", "recv_", "recv_any_source_")  # of two ranks, not of all


class Communicators:
    """NCCL's communicators this rank has a part in, by the process group's name, and what they were used for.

    calls: the collectives each group ran, by its ranks and its name, with the lines that called them; kept
    where `where` (which says file and line of the user's code that runs) is given.
    """

    def __init__(self, where: Callable[[], str] | None = None) -> None:
        self._where = where
        self.calls: dict[tuple[tuple[int, ...], str], list[Call]] = {}
        self.uses: dict[str, Communicator] = {}
        self.batched = False  # messages are sent in a batch
        self.nccl: list[Any] = []  # the backends that are NCCL's

    def _is_nccl(self, group: Any) -> bool:
        backend = group._get_backend(torch.device("cuda"))
        return any(backend is one for one in self.nccl)

    def record_group(self, group: Any) -> None:
        """Record a process group; one bound to a device makes its communicator now."""
        if group.bound_device_id is not None and self._is_nccl(group):
            self.uses.setdefault(group.group_name, Communicator(group.size()))

    def used(self, group: Any, collective: str, peers: tuple[int, ...] | None) -> None:
        """Record a collective on a group. peers: ranks it exchanges with; None: the ring."""
        if self._where is not None and collective not in _MESSAGES:
            key = tuple(dist.get_process_group_ranks(group)), group.group_name
            self.calls.setdefault(key, []).append(
                (collective.removesuffix("_root").rstrip("_"), self._where())
            )
        if not self._is_nccl(group):
            return
        name, size = group.group_name, group.size()
        if collective in ("send", "recv_") and peers and not self.batched and group.bound_device_id is None:
            name, size = f"{name} {sorted((group.rank(), *peers))}", 2
        use, others = self.uses.get(name, Communicator(size)), frozenset(peers or ())
        self.uses[name] = Communicator(
            size,
            use.collective or peers is None,
            use.sent_to | others if collective in SENDING else use.sent_to,
            use.received_from | others if collective in RECEIVING else use.received_from,
        )

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """While open, record no calls: ranks that know the result take no part in the exchange."""
        where, self._where = self._where, None
        try:
            yield
        finally:
            self._where = where

    def functional(self, group_name: str, collective: str) -> None:
        """Record a functional collective on the group of this name."""
        resolve: Any = torch._C._distributed_c10d._resolve_process_group
        self.used(resolve(group_name), collective, None)


class _Everybody(type):
    """Fake process groups are instances of every backend: PyTorch asks."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, FakeProcessGroup)


def _backend(backends: list[Any]) -> type:
    """Return a replacement of `ProcessGroupNCCL` or `ProcessGroupGloo`; instances go to `backends`."""

    class Backend(metaclass=_Everybody):
        """A process group that sends nothing."""

        class Options:
            """Accepts the options that programs set; none has an effect."""

            def __init__(self, *_: Any, **__: Any) -> None: ...

        def __new__(cls, store: Any, rank: int, size: int, *_: Any, **__: Any) -> Any:
            """PyTorch's fake one."""
            del store
            backends.append(FakeProcessGroup._create_internal(rank, size))
            return backends[-1]

    return Backend


@contextlib.contextmanager
def world(rank: Rank, recorder: Recorder, post: Post | None = None) -> Iterator[Communicators]:
    """While open, follow one `rank` of a world of processes; yields what it communicated.

    post: brings what other ranks say by value; None: nobody does.
    """
    used = Communicators(recorder.places.line if post is not None else None)
    messages = Messages(recorder, post)
    recorder.gpus.of_rank(rank.local_rank, rank.local_world_size)
    tell = sys.excepthook  # `init_process_group` puts one in its place that names the rank
    recorder.choose(Collectives(recorder, messages, used.used, used.functional).choices(), WRAPPING)
    _forget_shapes()
    with replaced(_replacements(rank, recorder, messages, used, post)):
        try:
            yield used
            if post is not None:
                post.send(calls_of(rank.rank), json.dumps(list(used.calls.items())).encode())
        finally:
            _forget_shapes()
            if dist.is_initialized():
                dist.destroy_process_group()
            sys.excepthook = tell


def _forget_shapes() -> None:
    """Clear PyTorch's cache of DTensor shapes, which holds the last rank's device and place."""
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is not None and _were_asked(tensor.DTensor):
        clear = getattr(
            importlib.import_module("torch.distributed.tensor.debug"), "_clear_sharding_prop_cache", None
        )
        if clear is not None:
            clear()
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    if fake is not None:
        fake.FakeTensorMode.cache_clear()


def _were_asked(dtensor: Any) -> bool:
    """Return whether PyTorch keeps any of them; to forget them imports a compiler."""
    dispatcher = getattr(dtensor, "_op_dispatcher", None)
    propagate = getattr(getattr(dispatcher, "sharding_propagator", None), "propagate_op_sharding", None)
    kept = getattr(propagate, "cache_info", None)
    return kept is None or kept().currsize > 0


def _replacements(
    rank: Rank, recorder: Recorder, messages: Messages, used: Communicators, post: Post | None
) -> dict[str, Any]:
    """Return what replaces functions of `torch.distributed`, by name, for one rank."""
    c10d = "torch.distributed.distributed_c10d."
    all_stores: list[Store] = []  # C++ forgets what Python wrote of a store nobody holds

    def rendezvous(url: str, own: int = -1, size: int = -1, **_: Any) -> Iterator[tuple[Store, int, int]]:
        del url
        store = (
            own if own >= 0 else int(os.environ.get("RANK", rank.rank)),
            size if size > 0 else int(os.environ.get("WORLD_SIZE", rank.world_size)),
        )
        if not 0 <= store[0] < store[1]:
            raise CaptureError(
                f"init_process_group is told of rank {store[0]} of {store[1]}",
                f"it should use RANK and WORLD_SIZE of the environment, which are {rank.rank} and"
                f" {rank.world_size}",
            )
        _enough(rank, store[1], f"init_process_group waits for {store[1]} ranks", "started")
        all_stores.append(Store("rendezvous", post, recorder.places.line))
        yield all_stores[-1], *store

    batch = dist.batch_isend_irecv

    def batched(operations: list[Any]) -> Any:
        used.batched = True
        try:
            return batch(operations)
        finally:
            used.batched = False

    module: Any = dist.distributed_c10d
    enter = module._register_process_group

    def register(name: str, group: Any) -> None:
        enter(name, group)
        used.record_group(group)

    def split(parent_pg: Any = None, split_ranks: Any = None, **named: Any) -> Any:
        """Return the sub-group this rank belongs to: a group like any other, where NCCL would split a
        communicator."""
        parent: Any = parent_pg or dist.GroupMember.WORLD
        mine = next((ranks for ranks in split_ranks or () if parent.rank() in ranks), None)
        if mine is None:
            return None
        members = sorted(dist.get_global_rank(parent, rank) for rank in mine)
        return dist.new_group(members, group_desc=named.get("group_desc"))

    return {
        **{c10d + name: _backend(used.nccl) for name in ("ProcessGroupNCCL", "ProcessGroupNCCL2")},
        c10d + "ProcessGroupGloo": _backend([]),
        c10d + "_register_process_group": register,
        c10d + "_NCCL_AVAILABLE": True,
        c10d + "default_pg_nccl_timeout": timedelta(minutes=10),  # kProcessGroupNCCLDefaultTimeout
        "torch._C._distributed_c10d.Logger.set_runtime_stats_and_log": lambda _: None,
        c10d + "rendezvous": rendezvous,
        "torch._C._distributed_c10d.FakeProcessGroup._set_sequence_number_for_group": lambda _: None,
        **Objects(recorder, messages, used, post).functions(),
        **dict.fromkeys((c10d + "split_group", "torch.distributed.split_group"), split),
        "torch.distributed.device_mesh.split_group": split,
        "torch.distributed.batch_isend_irecv": batched,
        c10d + "batch_isend_irecv": batched,
        **stores(post, recorder.places.line),
        "torch.nn.parallel.distributed._verify_param_shape_across_processes": _same_parameters,
        **processes(rank, recorder, partial(_enough, rank)),
    }


def _enough(rank: Rank, wanted: int, what: str, how: str) -> None:
    """Raise CaptureError if the program wants more ranks than there are."""
    if wanted > rank.world_size:
        raise CaptureError(
            f"{what}, but {rank.world_size} {'is' if rank.world_size == 1 else 'are'} {how}",
            f"analyze run --nproc-per-node {wanted} ...",
        )


def _same_parameters(group: Any, tensors: list[torch.Tensor], logger: Any = None) -> bool:
    """Compare parameter counts and shapes across ranks with the collectives that DDP uses (`reducer.cpp`)."""
    del logger
    place = tensors[0].device
    count = torch.tensor([len(tensors)], device=place)
    everybody = [torch.empty_like(count) for _ in range(group.size())]
    dist.all_gather(everybody, count, group)
    sizes = torch.zeros(sum(2 * tensor.dim() for tensor in tensors), dtype=torch.long).to(place)
    del count, everybody
    dist.broadcast(sizes, group_src=0, group=group)
    return True
