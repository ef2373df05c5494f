"""CUDA streams and events for a program that runs on no GPU: everything is done the moment it is asked for.

1. A stream has a number, 0 being the default one. Others come from a pool of 32 for each priority, in turn:
   the 33rd `torch.cuda.Stream()` is the first one again (`c10/cuda/CUDAStream.cpp`, `kStreamsPerPool`).
2. Every operator runs on the stream that is current; so the memory it takes comes from that stream's pools.
3. Autograd runs the backward of an operator on the stream its forward ran on
   (`torch/csrc/autograd/engine.cpp`), unless code it calls (hooks, checkpointed modules) makes another
   current.
4. Where the host waits for a stream, blocks it used become free, as do those of streams it had waited for
   itself: see `allocators/pytorch/caching.py`. The host waits where it says so, where it reads a value, and
   in copies between it and the device that are not `non_blocking`.

Not modelled: blocks that become free before the host waits, because the device was quick.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_POOL_SIZE = 32


def streams(recorder: Recorder) -> dict[str, Any]:
    """Name below `torch` -> streams and events of the pretended device."""
    Event = _event_class(recorder)
    Stream = _stream_class(recorder, Event)

    def wait(*_: Any, **__: Any) -> None:
        recorder.storages.wait()

    @contextlib.contextmanager
    def within(stream: Any) -> Iterator[None]:
        with stream or contextlib.nullcontext():
            yield

    def current(*_: Any, **__: Any) -> Any:
        return Stream(stream_id=recorder.streams.now())

    def external(*_: Any, **__: Any) -> Any:
        return Stream()

    def set_current(stream: Any) -> None:
        if stream is not None:
            recorder.streams.set(stream.stream_id)

    return {
        "cuda.Stream": Stream,
        "cuda.Event": Event,
        "cuda.stream": within,
        "cuda.current_stream": current,
        "cuda.ExternalStream": external,
        "cuda.get_stream_from_external": lambda *_, **__: Stream(),
        "cuda.default_stream": lambda *_, **__: Stream(stream_id=0),
        "cuda.set_stream": set_current,
        "cuda.synchronize": wait,
        "Tensor.record_stream": lambda tensor, stream: recorder.storages.use(tensor, stream.stream_id),
        "Stream": Stream,
        "Event": Event,
        # Functions of their own: PyTorch's compiler knows functions by identity.
        "accelerator.current_stream": lambda *_, **__: current(),
        "accelerator.set_stream": functools.partial(set_current),
        "accelerator.synchronize": lambda *_, **__: wait(),
    }


def _event_class(recorder: Recorder) -> type[Any]:
    """Return the class that replaces `torch.cuda.Event`."""

    class Event:
        """`torch.cuda.Event`."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._stream: int | None = None

        def record(self, stream: Any = None) -> None:
            """Record the event on a stream, by default the current one."""
            self._stream = recorder.streams.now() if stream is None else stream.stream_id

        def wait(self, stream: Any = None) -> None:
            """Let a stream, not the host, wait for the event."""
            if self._stream is not None:
                recorder.storages.wait(
                    self._stream, recorder.streams.now() if stream is None else stream.stream_id
                )

        def query(self) -> bool:
            """Return whether the event has completed, which it always has."""
            return True

        def elapsed_time(self, end_event: Any) -> float:  # noqa: ARG002
            """Return made-up milliseconds: there is no clock."""
            return 0.0

        def synchronize(self) -> None:
            """Let the host wait for the event's stream."""
            if self._stream is not None:
                recorder.storages.wait(self._stream)

    return Event


def _stream_class(recorder: Recorder, event_class: type[Any]) -> type[Any]:
    """Return the class that replaces `torch.cuda.Stream`. event_class: of its events."""
    numbers: dict[bool, Iterator[int]] = {
        high: itertools.cycle(range(1 + high * _POOL_SIZE, 1 + (high + 1) * _POOL_SIZE))
        for high in (False, True)
    }

    class Stream:
        """`torch.cuda.Stream`. stream_id: its number."""

        def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None) -> None:
            del device  # there is one
            self.priority = priority
            self.stream_id = next(numbers[priority < 0]) if stream_id is None else stream_id
            recorder.streams.made_any |= stream_id is None
            self.device, self.device_index, self.device_type = recorder.gpu, recorder.gpu.index, 1
            self._before: list[int] = []

        @property
        def cuda_stream(self) -> int:
            """Handle of the stream, which is its number."""
            return self.stream_id

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and other.stream_id == self.stream_id

        def __hash__(self) -> int:
            return hash(self.stream_id)

        def __enter__(self) -> Self:
            self._before.append(recorder.streams.now())
            recorder.streams.set(self.stream_id)
            return self

        def __exit__(self, *_: object) -> None:
            recorder.streams.set(self._before.pop())

        def record_event(self, event: Any = None) -> Any:
            """Return an event of this stream, now."""
            event = event_class() if event is None else event
            event.record(self)
            return event

        def query(self) -> bool:
            """Return whether all work is done: it is."""
            return True

        def wait_event(self, event: Any) -> None:
            """Let this stream, not the host, wait for an event."""
            event.wait(self)

        def wait_stream(self, stream: Any) -> None:
            """Let this stream, not the host, wait for another."""
            recorder.storages.wait(stream.stream_id, self.stream_id)

        def is_capturing(self) -> bool:
            """Return whether a CUDA graph is being made of it: none is."""
            return False

        def synchronize(self) -> None:
            """Let the host wait for this stream."""
            recorder.storages.wait(self.stream_id)

    return Stream
