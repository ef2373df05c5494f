"""Messages between ranks that carry values: object lists, sizes and flags that decide a rank's next steps.

1. A message carries its value where that can shape the program: whole numbers and flags, and anything in host
   memory, up to `LIMIT_BYTES`. Activations and gradients travel without: what is received is unknown, its
   memory is not.
2. Messages from one rank to another are delivered in the order of their sending, per process group, as NCCL
   and gloo do; tags are not looked at (`ProcessGroupNCCL` ignores them).
3. Objects (`broadcast_object_list`, `scatter_object_list`) travel in tensors of bytes by PyTorch's own code
   (`distributed_c10d.py`); while it runs, those tensors' broadcasts and scatters carry values too.
4. A rank that waits for a value asks the `Post`, which follows the other rank beside this one
   (`analyzer_programs/peers.py`). Without a post, and where the sender does not know the value either, it is
   unknown.

Not modelled: `recv` from any source, whose value is unknown.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.ranks import Post

LIMIT_BYTES = 1 << 16


class Messages:
    """The values this rank sends and receives. post: who brings them; None: nobody."""

    def __init__(self, recorder: Recorder, post: Post | None) -> None:
        self._recorder, self._post_office = recorder, post
        self._counts: Counter[str] = Counter()
        self._objects = ""  # the exchange of objects that goes on

    @contextlib.contextmanager
    def objects(self, group: Any) -> Iterator[None]:
        """While open, objects are exchanged: broadcasts and scatters carry values."""
        self._objects = self.channel(f"{group.group_name} objects")
        try:
            yield
        finally:
            self._objects = ""

    def no_objects(self, group: Any) -> None:
        """Record an exchange of objects that this rank need not know."""
        self.channel(f"{group.group_name} objects")

    def sent(self, group: Any, to: int, tensor: torch.Tensor) -> None:
        """Send a message to a rank of the group."""
        self._say(self.channel(f"{group.group_name} {group.rank()} to {to}"), tensor)

    def received(self, group: Any, source: int, tensor: torch.Tensor) -> None:
        """Receive a message from a rank of the group. Raises CaptureError where its value never comes."""
        self._receive(group, source, self.channel(f"{group.group_name} {source} to {group.rank()}"), tensor)

    def broadcast(self, group: Any, root: int, tensor: torch.Tensor) -> None:
        """Give every tensor of a broadcast the root's value, if the root sends one."""
        if self._objects:
            channel = self.channel(self._objects)
            if group.rank() == root:
                self._say(channel, tensor)
            else:
                self._receive(group, root, channel, tensor)

    def scattered(self, group: Any, root: int, output: torch.Tensor, parts: list[torch.Tensor]) -> None:
        """Scatter within the group. parts: every rank's, at the root; none elsewhere."""
        if self._objects:
            channel = self.channel(self._objects)
            for rank, part in enumerate(parts):
                self._say(f"{channel} to {rank}", part)
            if group.rank() != root:
                self._receive(group, root, f"{channel} to {group.rank()}", output)

    def channel(self, name: str) -> str:
        """Return the next message of that name."""
        self._counts[name] += 1
        return f"{name} {self._counts[name]}"

    def _say(self, channel: str, tensor: torch.Tensor) -> None:
        if self._post_office is not None and self._carried(tensor):
            self._post_office.send(channel, self._value(tensor))

    def _receive(self, group: Any, source: int, channel: str, tensor: torch.Tensor) -> None:
        """Write the value another rank sent into the tensor; forget the tensor's values if none came."""
        value = None
        if self._post_office is not None and self._carried(tensor):
            sender = torch.distributed.get_global_rank(group, source)
            value = self._post_office.receive(sender, channel, self._recorder.places.line())
        if value is None or len(value) != tensor.numel() * tensor.element_size():
            self._recorder.values.forget(tensor)
            return
        with _disable_current_modes():
            received = torch.frombuffer(bytearray(value), dtype=tensor.dtype).view(tensor.shape)
        self._recorder.values.learn(tensor, received)

    def _carried(self, tensor: torch.Tensor) -> bool:
        shapes = tensor.device.type != "meta" or not (tensor.is_floating_point() or tensor.is_complex())
        small = 0 < tensor.numel() * tensor.element_size() <= LIMIT_BYTES
        return bool(self._objects) or (shapes and small)

    def _value(self, tensor: torch.Tensor) -> bytes | None:
        """Return a tensor's known values as bytes, None if unknown."""
        value = self._recorder.values.known(tensor)
        if value is None:
            return None
        with _disable_current_modes():
            return value.contiguous().flatten().view(torch.uint8).numpy().tobytes()
