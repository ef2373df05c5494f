"""Python objects ranks exchange: lists that are broadcast, scattered and gathered.

1. PyTorch's own code runs: objects travel in tensors of bytes (`distributed_c10d.py`), which take their
   memory.
2. Another rank's broadcast is this rank's own object where it holds one in each place, as programs do whose
   ranks compute the same; else it is that rank's (`messages.py`). So is an object it scatters.
3. Objects gathered of other ranks are taken to be this rank's own, but for those that differ by their nature:
   plans of distributed checkpoints, and whose optimizer's state FSDP keeps where. Those are asked of the
   other ranks.
4. A rank's share of the optimizer's state (`ZeroRedundancyOptimizer.consolidate_state_dict`) is broadcast by
   its owner; its bytes are asked of that rank.
"""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.ranks import Post
    from analyzer_programs.world.groups import Communicators
    from analyzer_programs.world.messages import Messages

_TORCH = f"{Path(torch.__file__).parent}/"
_DIFFERS = ("distributed/checkpoint/", "distributed/fsdp/_optim_utils.py")


class Objects:
    """PyTorch's functions for objects, for the rank that is followed. post: brings what other ranks say."""

    def __init__(
        self, recorder: Recorder, messages: Messages, used: Communicators, post: Post | None
    ) -> None:
        self._recorder, self._messages, self._used, self._post_office = recorder, messages, used, post
        self._real_broadcast, self._real_scatter = dist.broadcast_object_list, dist.scatter_object_list
        self._real_gather, self._real_gather_all = dist.gather_object, dist.all_gather_object

    def functions(self) -> dict[str, Any]:
        """Return the replacements by name."""
        named = "torch.distributed."
        return {
            f"{named}distributed_c10d.broadcast_object_list": self._broadcast_objects,
            f"{named}broadcast_object_list": self._broadcast_objects,
            f"{named}scatter_object_list": self._scatter_objects,
            f"{named}gather_object": self._gather_objects,
            f"{named}all_gather_object": self._gather_objects_everywhere,
            f"{named}optim.zero_redundancy_optimizer._broadcast_object": self._broadcast_state,
        }

    def _broadcast_objects(
        self, object_list: list[Any], src: int | None = None, group: Any = None, *args: Any, **named: Any
    ) -> None:
        """Broadcast objects: for real on the root or where others' values are carried."""
        within: Any = group or dist.GroupMember.WORLD
        root = named.get("group_src")
        if root is None:
            root = dist.get_group_rank(within, src or 0)
        if within.rank() == root or (self._post_office is not None and not all(map(_holds, object_list))):
            with self._messages.objects(within), self._used.apart():
                self._real_broadcast(object_list, src, group, *args, **named)
        else:
            self._messages.no_objects(within)
            self._recorder.note("objects other ranks send are taken to be this rank's own")

    def _scatter_objects(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        **named: Any,
    ) -> None:
        with self._messages.objects(group or dist.GroupMember.WORLD):
            self._real_scatter(scatter_object_output_list, scatter_object_input_list, src, group, **named)

    def _gather_objects(
        self,
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        **named: Any,
    ) -> None:
        self._real_gather(obj, object_gather_list, dst, group, **named)
        self._exchange(group or dist.GroupMember.WORLD, obj, object_gather_list)

    def _gather_objects_everywhere(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
        self._real_gather_all(object_list, obj, group)
        self._exchange(group or dist.GroupMember.WORLD, obj, object_list)

    def _exchange(self, within: Any, own: Any, objects: list[Any] | None) -> None:
        """Put into `objects`, if given, what other ranks gather besides this one's `own`."""
        if self._post_office is None or not _differs():
            return
        channel = self._messages.channel(f"{within.group_name} gathered objects")
        self._post_office.send(f"{channel} of {within.rank()}", pickle.dumps(own))
        for rank in range(within.size()) if objects else ():
            if rank != within.rank():
                message = self._post_office.receive(
                    dist.get_global_rank(within, rank), f"{channel} of {rank}", self._recorder.places.line()
                )
                assert objects is not None and message is not None
                objects[rank] = pickle.loads(message)

    def _broadcast_state(self, obj: Any, src_rank: int, group: Any = None, device: Any = None) -> Any:
        """`_broadcast_object` of `zero_redundancy_optimizer.py`: the object's length, then its bytes."""
        within: Any = group or dist.GroupMember.WORLD
        place = device or torch.device("cpu")
        channel = self._messages.channel(f"{within.group_name} state of {src_rank}")
        own = dist.get_rank() == src_rank
        message: bytes | None
        if own or self._post_office is None:
            buffer = io.BytesIO()
            torch.save(obj, buffer)
            message = buffer.getvalue()
            if self._post_office is not None:
                self._post_office.send(channel, message)
        else:
            message = self._post_office.receive(src_rank, channel, self._recorder.places.line())
        assert message is not None
        for tensor in (torch.LongTensor([len(message)]), torch.empty(len(message), dtype=torch.uint8)):
            dist.broadcast(tensor.to(place), src=src_rank, group=group, async_op=False)
        return obj if own else torch.load(io.BytesIO(message), map_location=place, weights_only=False)


def _holds(thing: Any) -> bool:
    """Return whether a list's place that another rank fills is neither None nor empty."""
    return thing is not None and not (isinstance(thing, (dict, list, tuple, set)) and not thing)


def _differs() -> bool:
    """Return whether the running code gathers something different on each rank."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_TORCH):
            if path.removeprefix(_TORCH).startswith(_DIFFERS):
                return True
        elif path != __file__:
            return False
        frame = frame.f_back
    return False
