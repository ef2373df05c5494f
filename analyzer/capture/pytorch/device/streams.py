"""CUDA streams and events for a program that runs on no GPU: everything is done the moment it is asked for.

1. A stream has a number on its GPU, 0 being the default one, and using it makes its GPU the current one
   (`StreamContext`, `torch/cuda/__init__.py`). Others come from a pool of 32 for each priority, in turn:
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

from analyzer.graph import STREAMS

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder

_POOL_SIZE = 32


def streams(recorder: Recorder) -> dict[str, Any]:
    """Name below `torch` -> streams and events of the pretended device."""
    Event = _event_class(recorder)
    Stream = _stream_class(recorder, Event)

    gpus = recorder.gpus

    def gpu_of(device: Any) -> int:
        return gpus.current if device is None else gpus.chosen(device)

    def wait(device: Any = None) -> None:
        recorder.storages.wait(gpu=gpu_of(device))

    @contextlib.contextmanager
    def within(stream: Any) -> Iterator[None]:
        with stream or contextlib.nullcontext():
            yield

    def current(device: Any = None) -> Any:
        gpu = gpus.making() if device is None else gpu_of(device)
        return Stream(stream_id=recorder.streams.now(gpu))

    def default(device: Any = None) -> Any:
        return Stream(stream_id=gpu_of(device) * STREAMS)

    def external(*_: Any, **__: Any) -> Any:
        return Stream()

    def set_current(stream: Any) -> None:
        if stream is not None:
            gpus.current = stream.stream_id // STREAMS
            recorder.streams.set(stream.stream_id)

    return {
        "cuda.Stream": Stream,
        "cuda.Event": Event,
        "cuda.stream": within,
        "cuda.current_stream": current,
        "cuda.ExternalStream": external,
        "cuda.get_stream_from_external": lambda *_, **__: Stream(),
        "cuda.default_stream": default,
        "cuda.set_stream": set_current,
        "cuda.synchronize": wait,
        "Tensor.record_stream": lambda tensor, stream: recorder.storages.use(tensor, stream.stream_id),
        "Stream": Stream,
        "Event": Event,
        # Functions of their own: PyTorch's compiler knows functions by identity.
        "accelerator.current_stream": lambda device=None, **_: current(device),
        "accelerator.set_stream": functools.partial(set_current),
        "accelerator.synchronize": lambda device=None, **_: wait(device),
    }


def _event_class(recorder: Recorder) -> type[Any]:
    """Return the class that replaces `torch.cuda.Event`."""
    gpus = recorder.gpus

    class Event:
        """`torch.cuda.Event`."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._stream: int | None = None

        def record(self, stream: Any = None) -> None:
            """Record the event on a stream, by default the current one."""
            self._stream = recorder.streams.now(gpus.making()) if stream is None else stream.stream_id

        def wait(self, stream: Any = None) -> None:
            """Let a stream, not the host, wait for the event."""
            if self._stream is not None:
                by = recorder.streams.now(gpus.making()) if stream is None else stream.stream_id
                recorder.storages.wait(self._stream, by)

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
    gpus = recorder.gpus
    numbers: dict[tuple[int, bool], Iterator[int]] = {
        (gpu, high): itertools.cycle(
            range(gpu * STREAMS + 1 + high * _POOL_SIZE, gpu * STREAMS + 1 + (high + 1) * _POOL_SIZE)
        )
        for gpu in range(gpus.here)
        for high in (False, True)
    }

    class Stream:
        """`torch.cuda.Stream`. stream_id: its number."""

        def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None) -> None:
            self.priority = priority
            if stream_id is None:
                gpu = gpus.current if device is None else gpus.chosen(device)
                stream_id = next(numbers[gpu, priority < 0])
                recorder.streams.made_any = True
            self.stream_id = stream_id
            self.device = gpus.device(stream_id // STREAMS)
            self.device_index, self.device_type = self.device.index, 1
            self._before: list[tuple[int, int]] = []

        @property
        def cuda_stream(self) -> int:
            """Handle of the stream, which is its number."""
            return self.stream_id

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and other.stream_id == self.stream_id

        def __hash__(self) -> int:
            return hash(self.stream_id)

        def __enter__(self) -> Self:
            gpu = self.stream_id // STREAMS
            self._before.append((recorder.streams.now(gpu), gpus.current))
            gpus.current = gpu
            recorder.streams.set(self.stream_id)
            return self

        def __exit__(self, *_: object) -> None:
            before, gpus.current = self._before.pop()
            recorder.streams.set(before)

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
