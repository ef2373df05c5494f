"""A program followed while it runs: its requests are played as they are made, so that it can ask the device about itself.

`torch.cuda.memory_allocated()` and its kin answer from here, a request without room is an error the program may catch,
and `empty_cache()` acts. The events are those `eager.requests` gives for the same program; only requests that failed,
and what the program told its allocator, come on top.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.allocators import OutOfMemoryError, create
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.devices import DeviceProfile
from analyzer.graph import Category, Graph, Moment
from analyzer.runtimes.base import Prediction
from analyzer.runtimes.events import AllocationEvent, Free, Malloc, Use, Wait
from analyzer.runtimes.pytorch.eager import Eager, Program
from analyzer.runtimes.pytorch.outside import device_used


class Live:
    """The memory of one pretended device. All figures in bytes."""

    def __init__(self, profile: DeviceProfile, conf: str) -> None:
        self._profile, self._conf = profile, conf
        self._eager: Eager | None = None
        self._events: list[AllocationEvent] = []
        self._handles: dict[int, int] = {}
        self._without: set[str] = set()
        self._failed: int | None = None
        self.retries = self.failures = 0
        self.allocator = self.fresh()

    def fresh(self) -> PyTorchAllocator:
        """A new allocator with the program's settings, on a device of this size with the CUDA context on it."""
        room = self._profile.capacity_bytes - self._profile.context_bytes
        made = create(
            "pytorch", conf=self._conf, limit_bytes=room, device_total_bytes=self._profile.capacity_bytes
        )
        assert isinstance(made, PyTorchAllocator)
        return made

    def attach(self, program: Program) -> None:
        """Follow this program."""
        self._eager = Eager(program, self._profile)

    def follow(self, moment: Moment) -> None:
        """Play what the moment asks for. Raises OutOfMemoryError; the operator's own memory is given back then."""
        assert self._eager is not None
        begin = len(self._events)
        for event in self._eager.follow(moment):
            try:
                self._play(event)
            except OutOfMemoryError:
                self._unwind(begin, event)
                raise

    def _play(self, event: AllocationEvent) -> None:
        if isinstance(event, Malloc):
            self._handles[event.key] = self._served(event)
        elif isinstance(event, Free):
            self.allocator.free(self._handles.pop(event.key))
        elif isinstance(event, Use):
            self.allocator.use(self._handles[event.key], event.stream)
        elif isinstance(event, Wait):
            self.allocator.wait()
        else:
            self.allocator.over(event.name, event.value)
        self._events.append(event)

    def _served(self, event: Malloc) -> int:
        """The handle of a request; nothing is taken for an optional one without room, nor for its like from then on, as in
        `timeline.play`. Raises OutOfMemoryError."""
        nbytes = 0 if event.optional in self._without else event.nbytes
        try:
            return self.allocator.malloc(nbytes, event.stream)
        except OutOfMemoryError:
            if not event.optional:
                raise
            self._without.add(event.optional)
            return self.allocator.malloc(0, event.stream)

    def _unwind(self, begin: int, failing: AllocationEvent) -> None:
        """The operator that found no memory gives back what it had taken besides its results, which die by themselves."""
        assert isinstance(failing, Malloc) and self._eager is not None
        self.failures += 1
        self._failed = len(self._events)
        self._events.append(replace(failing, fails=True))
        self._eager.lost(failing)
        for event in self._events[begin : self._failed]:
            if (
                isinstance(event, Malloc)
                and event.category is Category.SCRATCH
                and event.key in self._handles
            ):
                self._play(Free(event.key))

    def caught_nothing(self) -> None:
        """The last failure ended the program: it was not caught."""
        if self._failed is not None:
            failed = self._events[self._failed]
            assert isinstance(failed, Malloc)
            self._events[self._failed] = replace(failed, fails=False)

    @property
    def device_free(self) -> int:
        """What `mem_get_info` says is free."""
        assert self._eager is not None
        used = device_used(self.allocator.reserved, self._eager.libraries, self._profile)
        return max(0, self._profile.capacity_bytes - used)

    @property
    def capacity(self) -> int:
        """The device's memory."""
        return self._profile.capacity_bytes

    def answer(self, graph: Graph) -> Prediction:
        """Everything asked for, with the categories that only the whole program told."""
        assert self._eager is not None
        events = tuple(
            replace(event, category=graph.storages[event.storage].category)
            if isinstance(event, Malloc) and event.storage >= 0
            else event
            for event in self._events
        )
        libraries, profile = frozenset(self._eager.libraries), self._profile
        return Prediction(
            events=events,
            allocator=self.fresh,
            device_used=lambda played: device_used(played.peak_reserved, libraries, profile),
            libraries=libraries,
            unknown=dict(self._eager.unknown),
        )
