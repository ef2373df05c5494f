"""Collectives: their effect on the memory and the values of the one rank that is followed.

1. A collective works on the tensors it is given and takes nothing from PyTorch's allocator, but for those on
   lists of tensors of one size: `allgather` gathers into one flat tensor and copies each part out,
   `reduce_scatter` copies the parts into one first (`ProcessGroupNCCL.cpp`, `newLikeFlat`). NCCL's own memory
   is in `libraries/nccl.py`.
2. The `Work` of a collective keeps its results, the flat tensor among them (`outputs_`,
   `ProcessGroupNCCL.hpp`); one that was not started asynchronously is dropped at once.
3. An asynchronous collective nobody calls `wait` on, as DDP's reducer starts them in the backward pass, keeps
   the tensors it works on until another collective begins after a watchdog thread, which looks every 100 ms,
   has seen it finish (`TensorShelf`, `shelvesToUnstash_`). No clock runs here: the first step, which loads
   kernels, is taken to be longer than that, any other until the next step's gradients are reduced. A bucket
   the reducer has replaced lives on so long; what it comes to where it lives longer, is the upper end of the
   reserved bytes (`runtimes/pytorch/orders.py`).
4. The other ranks are taken to hold what this one holds: a broadcast and an average change nothing,
   everything gathered is this rank's own. A sum is left as it is too, since nobody tells which reduction it
   is: it scales values that shape nothing. A value from a single other rank is known where `messages.py` says
   so.
5. A message sent or received keeps nothing: its tensor is told that NCCL's stream uses it (`recordStream`,
   `ProcessGroupNCCL.cpp:pointToPoint`), so that its memory serves again once the message is through. In
   recorded pipelines (`tests/data/h200/histories_ranks.xz`) that was at once in the first step, and up to a
   step later where the device lagged behind the host. No clock runs here: it is taken to be at once.
6. The tensor a barrier is called with lives until the next barrier, as recorded in programs of one and two
   ranks (`dino_vit_tiny`, `simsiam`: `tests/data/h200/histories_public.xz`, `histories_public_2.xz`); what it
   adds up is given back at once.
7. `_c10d_functional` operators return a new tensor on the current stream: their own meta kernels say its
   shape.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_iter

from analyzer.graph import Category, Phase
from analyzer.values.calls import DispatchedCall

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer_programs.world.messages import Messages

c10d = torch.ops.c10d
# The operator wraps what it is given; its shape function for tensors without memory would make a new one.
WRAPPING = {"_c10d_functional::_wrap_tensor_autograd.default": torch.ops.aten.alias.default}
_LATER = (
    "gradient buckets DDP replaces, and what its hooks make of them, are assumed to be given back when the"
    " next gradients are reduced (the first step's: at the next collective); NCCL's watchdog looks every 100"
    " ms only, so where steps are shorter they live longer, and the peak is higher by up to as much as the"
    " gradients"
)


_THROUGH = (
    "what is sent to another rank is taken to be through at once; where the device lags behind the host, its"
    " memory serves again later, and reserved is higher by up to what a step sends"
)


class Collectives:
    """Replaces each collective operator on the followed rank.

    used: told the process group, the collective's name and the ranks it exchanges messages with (None: it
    goes round the ring), for each call on the device. functional: told a group's name and the operator's, for
    `_c10d_functional`.
    """

    def __init__(
        self,
        recorder: Recorder,
        messages: Messages,
        used: Callable[[Any, str, tuple[int, ...] | None], None],
        functional: Callable[[str, str], None],
    ) -> None:
        self._recorder, self._messages, self._used, self._functional = recorder, messages, used, functional
        self._shelf: list[tuple[int, Any]] = []
        self._in_barrier: Any = None

    def choices(self) -> dict[Any, Callable[..., Any]]:
        """Return the handlers by operator overload."""
        module = torch.ops._c10d_functional
        return {
            **{
                overload.default: self._counted_functional(overload.default)
                for overload in (
                    module.all_reduce,
                    module.all_reduce_,
                    module.all_gather_into_tensor,
                    module.reduce_scatter_tensor,
                    module.broadcast,
                    module.all_gather_into_tensor_coalesced,
                    module.reduce_scatter_tensor_coalesced,
                    module.all_reduce_coalesced,
                    module.all_to_all_single,
                    module.all_gather_into_tensor_out,
                )
            },
            c10d.allreduce_.default: self._all_reduce,
            c10d.allgather_.default: self._all_gather,
            c10d.reduce_scatter_.default: self._reduce_scatter,
            c10d.gather_.default: self._gather,
            c10d.scatter_.default: self._scatter,
            c10d.alltoall_.default: self._all_to_all,
            **{
                func: partial(self._all_gather_into, func)
                for func in (c10d._allgather_base_.default, c10d.allgather_into_tensor_coalesced_.default)
            },
            **{
                func: partial(self._reduce_scatter_from, func)
                for func in (
                    c10d._reduce_scatter_base_.default,
                    c10d.reduce_scatter_tensor_coalesced_.default,
                )
            },
            **{
                func: partial(self._unchanged, func)
                for func in (
                    c10d.allreduce_coalesced_.default,
                    c10d.reduce_.default,
                    c10d.alltoall_base_.default,
                )
            },
            c10d.barrier.default: self._barrier,
            c10d.monitored_barrier_.default: lambda *_, **__: None,
            c10d.broadcast_.default: self._broadcast,
            c10d.send.default: self._send,
            c10d.recv_.default: self._receive,
            c10d.recv_any_source_.default: self._receive_from_any,
        }

    def _done(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Any, kept: Any = None
    ) -> Any:
        """Record the call; what it returns: `tensors` where the schema says so, and its work."""
        self._unshelve()
        group = _group(next(value for value in args if isinstance(value, torch.ScriptObject)))
        on_device = self._placed(group, args)
        if on_device:
            self._used(group, *_exchange(DispatchedCall(func, args, kwargs), group))
            self._recorder.record(func, args, kwargs, on_device)
        work = _finished(tensors if kept is None else kept)
        return work if len(func._schema.returns) == 1 else (tensors, work)

    def _unshelve(self) -> None:
        """Release tensors that the watchdog has seen by now."""
        now, in_backward = self._recorder.step, self._recorder.phase is Phase.BACKWARD
        finished: list[tuple[int, Any]] = []
        kept: list[tuple[int, Any]] = []
        for step, shelved in self._shelf:
            is_finished = step == 0 or (step != now and in_backward)
            (finished if is_finished else kept).append((step, shelved))
        if not finished:
            return
        self._shelf[:] = kept
        self._recorder.note(_LATER)
        if self._recorder.memory is not None:
            numbers = map(self._recorder.storages.number_of, tree_iter([shelved for _, shelved in finished]))
            self._recorder.memory.record_watched(number for number in numbers if number is not None)

    def _placed(self, group: Any, args: Any) -> list[torch.Tensor]:
        """Return the tensors on the device. Raises RuntimeError if the group has no backend for them."""
        tensors = [t for t in tree_iter(args) if isinstance(t, torch.Tensor)]
        on_device = [
            t for t in tensors if t.device.type == "meta" and not self._recorder.storages.in_host_memory(t)
        ]
        for place, count in (("cuda", on_device), ("cpu", len(tensors) - len(on_device))):
            if count:
                group._get_backend(torch.device(place))
        return on_device

    def _all_reduce(
        self,
        tensors: Any,
        group: Any,
        operation: Any,
        sparse: Any,
        later: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Record an all-reduce. An asynchronous one in backward keeps its tensors until the watchdog has seen
        it."""
        arguments = (tensors, group, operation, sparse, later, *args)
        result = self._done(c10d.allreduce_.default, arguments, kwargs, tensors)
        if later and self._recorder.phase is Phase.BACKWARD:
            # Summed while the backward pass goes on: it is made of gradients (`reducer.cpp`).
            for tensor in tensors:
                if tensor.device.type == "meta":
                    self._recorder.label(tensor, "gradient bucket", Category.GRADIENT)
            self._shelf.append((self._recorder.step, tensors))
        return result

    def _unchanged(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        return self._done(func, args, kwargs, args[0])

    def _barrier(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """Record a barrier, which sums one number on the device."""
        self._in_barrier = tensor  # until the next one
        if tensor.device.type == "meta":
            tensor.new_empty(1, dtype=torch.float32)  # what NCCL adds up, given back at once
        return self._done(c10d.barrier.default, (tensor, *args), kwargs, tensor)

    def _all_gather(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Copy this rank's tensor to every rank's part; the device needs one buffer for all parts."""
        kept = []
        for parts, own in zip(outputs, inputs, strict=True):
            if own.device.type == "meta" and all(part.shape == own.shape for part in parts):
                kept.append(own.new_empty((len(parts), *own.shape)))
            if self._recorder.values.known(own) is not None and own.device.type == "meta":
                self._recorder.values.filled(parts)
            for part in parts:
                _copy(part, own)
        return self._done(c10d.allgather_.default, (outputs, inputs, *args), kwargs, outputs, kept or None)

    def _all_gather_into(self, func: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Repeat this rank's values, if known, for every rank's part of the output."""
        for output, own in zip(_listed(outputs), _listed(inputs), strict=True):
            if self._recorder.values.known(own) is not None and output.numel() % max(1, own.numel()) == 0:
                output.copy_(own.flatten().repeat(output.numel() // max(1, own.numel())).view(output.shape))
        return self._done(func, (outputs, inputs, *args), kwargs, outputs)

    def _reduce_scatter(self, outputs: Any, inputs: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
        """Take this rank's part; the device copies the inputs to one buffer first."""
        for output, parts in zip(outputs, inputs, strict=True):
            if output.device.type == "meta" and all(part.shape == output.shape for part in parts):
                flat = output.new_empty((len(parts), *output.shape))
                for row, part in zip(flat, parts, strict=True):
                    _copy(row, part)
            _copy(output, parts[_rank(group)])
        arguments = (outputs, inputs, group, *args)
        return self._done(c10d.reduce_scatter_.default, arguments, kwargs, outputs)

    def _reduce_scatter_from(
        self, func: Any, outputs: Any, inputs: Any, group: Any, *args: Any, **kwargs: Any
    ) -> Any:
        for output, source in zip(_listed(outputs), _listed(inputs), strict=True):
            if self._recorder.values.known(source) is not None:
                _copy(output, source.flatten().chunk(_size(group))[_rank(group)].view(output.shape))
        return self._done(func, (outputs, inputs, group, *args), kwargs, outputs)

    def _gather(self, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        for parts, own in zip(outputs, inputs, strict=False):
            if self._recorder.values.known(own) is not None and own.device.type == "meta":
                self._recorder.values.filled(parts)
            for part in parts:
                _copy(part, own)
        return self._done(c10d.gather_.default, (outputs, inputs, *args), kwargs, outputs)

    def _scatter(self, outputs: Any, inputs: Any, group: Any, root: int, *args: Any, **kwargs: Any) -> Any:
        for parts in inputs:
            _copy(outputs[0], parts[_rank(group)])
        self._messages.scattered(_group(group), root, outputs[0], inputs[0] if inputs else [])
        return self._done(c10d.scatter_.default, (outputs, inputs, group, root, *args), kwargs, outputs)

    def _broadcast(self, tensors: Any, group: Any, root: int, *args: Any, **kwargs: Any) -> Any:
        for tensor in tensors:
            self._messages.broadcast(_group(group), root, tensor)
        return self._done(c10d.broadcast_.default, (tensors, group, root, *args), kwargs, tensors)

    def _all_to_all(self, outputs: Any, inputs: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
        for output in outputs:
            _copy(output, inputs[_rank(group)])
        return self._done(c10d.alltoall_.default, (outputs, inputs, group, *args), kwargs, outputs)

    def _send(self, tensors: Any, group: Any, to: int, *args: Any, **kwargs: Any) -> Any:
        for tensor in tensors:
            self._messages.sent(_group(group), to, tensor)
            if tensor.device.type == "meta" and self._recorder.phase is not Phase.SETUP:
                self._recorder.note(_THROUGH)
        return self._done(c10d.send.default, (tensors, group, to, *args), kwargs, tensors, [])

    def _receive(self, tensors: Any, group: Any, source: int, *args: Any, **kwargs: Any) -> Any:
        for tensor in tensors:
            self._messages.received(_group(group), source, tensor)
        return self._done(c10d.recv_.default, (tensors, group, source, *args), kwargs, tensors, [])

    def _receive_from_any(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        for tensor in tensors:
            self._recorder.values.forget(tensor)
        return self._done(c10d.recv_any_source_.default, (tensors, *args), kwargs, tensors, [])

    def _counted_functional(self, func: Any) -> Callable[..., Any]:
        """Return a functional collective's replacement, which reports its group and records the operator."""
        position = next(i for i, a in enumerate(func._schema.arguments) if a.name == "group_name")

        def call(*args: Any, **kwargs: Any) -> Any:
            name = args[position] if position < len(args) else kwargs["group_name"]
            if self._placed(_resolved(name), (args, kwargs)):
                self._functional(name, func._schema.name)
            return self._recorder.plain(func, args, kwargs)

        return call


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    if target.shape == source.shape and target is not source:
        target.copy_(source)


SENDING = frozenset({"send", "scatter_root", "gather", "alltoall_", "alltoall_base_"})
RECEIVING = frozenset({"recv_", "recv_any_source_", "gather_root", "scatter", "alltoall_", "alltoall_base_"})


def _exchange(call: DispatchedCall, group: Any) -> tuple[str, tuple[int, ...] | None]:
    """Return the collective's name ("_root" appended on the root) and the ranks it exchanges with.

    Scatter, gather and all-to-all are groups of sends and receives in NCCL (`torch/csrc/cuda/nccl.cpp`).
    """
    name = call.name.partition("::")[2]
    own, others = group.rank(), tuple(rank for rank in range(group.size()) if rank != group.rank())
    if name in ("send", "recv_"):
        return name, (int(call.argument("dst" if name == "send" else "src")),)
    if name in ("scatter_", "gather_"):
        root = int(call.argument("root_rank"))
        return (f"{name[:-1]}_root", others) if root == own else (name[:-1], (root,))
    if name in ("alltoall_", "alltoall_base_", "recv_any_source_"):
        return name, others
    return name, None


def _finished(kept: Any) -> Any:
    """Return the `Work` of a finished collective."""
    future: Any = torch.futures.Future()
    future.set_result([t for t in tree_iter(kept) if isinstance(t, torch.Tensor)])
    module: Any = torch._C._distributed_c10d
    return module._create_work_from_future(future).boxed()


def _group(boxed: Any) -> Any:
    return torch._C._distributed_c10d.ProcessGroup.unbox(boxed)


def _resolved(name: str) -> Any:
    module: Any = torch._C._distributed_c10d
    return module._resolve_process_group(name)


def _size(group: Any) -> int:
    return int(_group(group).size())


def _rank(group: Any) -> int:
    return int(_group(group).rank())


def _listed(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)
