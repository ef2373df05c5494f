"""A program followed while it runs: its requests are played as they are made, so that it can ask the device about itself.

`torch.cuda.memory_allocated()` and its kin answer from here, a request without room is an error the program may catch,
and `empty_cache()` acts. The events are those `eager.requests` gives for the same program; only requests that failed,
and what the program told its allocator, come on top.

What the allocator did is written down as it happens, and nothing is played again: what repeats may then be forgotten
(`cut`) although the allocator has gone through it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.process import Process
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.devices import DeviceProfile
from analyzer.graph import Category, Death, Graph, Moment, Operator, Run
from analyzer.runtimes.base import Prediction
from analyzer.runtimes.events import AllocationEvent, EmptyCache, Event, Free, Malloc, Use, Wait
from analyzer.runtimes.plans import Plans
from analyzer.runtimes.pytorch.eager import Eager, Program
from analyzer.runtimes.pytorch.launches import kernel_of
from analyzer.runtimes.pytorch.outside import device_used, notes_on_nccl
from analyzer.runtimes.pytorch.runtime import limited, make_allocator
from analyzer.runtimes.pytorch.scratch.fourier import notes_on_transforms
from analyzer.runtimes.pytorch.settings import notes_on, pool_bytes
from analyzer.runtimes.timeline import Failure, States, gathered


class Live:
    """The memory of one pretended device. All figures in bytes."""

    def __init__(self, profile: DeviceProfile, conf: str) -> None:
        self._profile, self._conf = profile, conf
        self._program: Program | None = None
        self._eager: Eager | None = None
        self._process = Process()
        self._cudnn_threads = self._libraries = 0
        self._events: list[AllocationEvent] = []
        self._handles: dict[int, tuple[int, int]] = {}
        self._plans = Plans()
        self._failed: Failure | None = None
        self._ended = self._stopped = False
        self._peaks = (0, 0, 0)
        self.retries = self.failures = 0
        self.allocator = self.fresh()
        self._states = States(self.allocator, places=True)

    def fresh(self) -> PyTorchAllocator:
        """A new allocator with the program's settings, on a device of this size with the CUDA context on it."""
        room = self._profile.capacity_bytes - self._profile.context_bytes
        return make_allocator(
            self._conf,
            self._profile,
            space=self._process,
            limit_bytes=room,
            device_total_bytes=self._profile.capacity_bytes,
        )

    def attach(self, program: Program) -> None:
        """Follow this program."""
        self._program, self._eager = program, Eager(program, self._profile)

    def follow(self, moment: Moment) -> None:
        """Play what the moment asks for. Raises OutOfMemoryError; the operator's own memory is given back then."""
        assert self._program is not None and self._eager is not None
        if self._stopped:
            return
        if type(moment) is Death:
            if self._eager.ends(moment.storage):
                self._play(Free(moment.storage))
            return
        begin = len(self._events)
        if type(moment) is Run:
            asked = self._eager.run(self._program.operators[moment.operator])
        else:
            asked = self._eager.follow(moment)
        for event in asked:
            try:
                self._play(event)
            except OutOfMemoryError as error:
                self._unwind(begin, event, error)
                raise
        if isinstance(moment, Run):
            self._launched(self._program.operators[moment.operator], self._program)

    def _launched(self, operator: Operator, program: Program) -> None:
        """Tell the driver's addresses what ran."""
        assert self._eager is not None
        if len(self._eager.libraries) != self._libraries:
            self._libraries = len(self._eager.libraries)
            besides = device_used(0, self._eager.libraries, self._profile)
            self.allocator.leave(max(self._profile.capacity_bytes - besides, 0))
            cudnn = sum(name.startswith("cudnn") for name in self._eager.libraries)
            for _ in range(cudnn - self._cudnn_threads):
                self._cudnn_threads += 1
                self._process.cudnn()
        if self._process.settled:
            return
        kernel = kernel_of(operator, program)
        if kernel is not None:
            self._process.launch(kernel)

    def _play(self, event: AllocationEvent) -> None:
        asked = 0
        handle: int | None = None
        if isinstance(event, Malloc):
            if event.category is Category.WORKSPACE and event.label == "cublas":
                self._process.cublas()
            if event.plan:
                handle, asked = self._served(event)
            else:
                handle, asked = self.allocator.malloc(event.nbytes, event.stream), event.nbytes
            self._handles[event.key] = handle, asked
        elif isinstance(event, Free):
            freed, nbytes = self._handles.pop(event.key)
            self.allocator.free(freed)
            asked = -nbytes
        elif isinstance(event, Use):
            self.allocator.use(self._handles[event.key][0], event.stream)
        elif isinstance(event, Wait):
            self.allocator.wait(event.stream, event.by)
        elif isinstance(event, EmptyCache):
            self.allocator.over("empty_cache")
        self._happened(event, asked, handle)
        if isinstance(event, Event):
            self.allocator.over(event.name, event.value)

    def _happened(self, event: AllocationEvent, asked: int, handle: int | None = None) -> None:
        states = self._states
        self._events.append(event)
        states.add(asked, handle)
        if asked > 0:
            allocated, reserved, requested = self._peaks
            now = states.allocated[-1], states.reserved[-1], states.requested[-1]
            if now[0] > allocated or now[1] > reserved or now[2] > requested:
                self._peaks = max(allocated, now[0]), max(reserved, now[1]), max(requested, now[2])

    def _served(self, event: Malloc) -> tuple[int, int]:
        """The handle of a request, or of a smaller plan's, and the bytes asked for, as in `timeline.play`. Raises
        OutOfMemoryError."""
        refused = self._plans.refused
        malloc = partial(self.allocator.malloc, stream=event.stream)
        served = self._plans.served(malloc, event.nbytes, event.plan, event.smaller)
        if self._plans.refused > refused:
            self._states.refused.append(len(self._events))
        return served

    def _unwind(self, begin: int, failing: AllocationEvent, error: OutOfMemoryError) -> None:
        """The operator that found no memory gives back what it had taken besides its results, which die by themselves."""
        assert isinstance(failing, Malloc) and self._eager is not None
        self.failures += 1
        failed = len(self._events)
        self._failed = Failure.of(failed, failing, error)
        self._happened(replace(failing, fails=True), 0)
        self._eager.lost(failing)
        for event in self._events[begin:failed]:
            if (
                isinstance(event, Malloc)
                and event.category is Category.SCRATCH
                and event.key in self._handles
            ):
                self._play(Free(event.key))

    def caught_nothing(self) -> None:
        """The last failure ended the program: it was not caught."""
        self._ended = self._failed is not None

    # -- what repeats --------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """How many events there were."""
        return len(self._events)

    @property
    def peaks(self) -> tuple[int, int, int]:
        """The most there was so far of bytes allocated, reserved and requested."""
        return self._peaks

    def block_bytes(self, storage: int) -> int:
        """The block behind a storage; 0 for one that takes nothing of the device."""
        return self.allocator.size_of(self._handles[storage][0]) if storage in self._handles else 0

    def layout(self, storages: Iterable[int]) -> Hashable:
        """Everything that decides where the allocator puts the next requests, these storages being alive, in this order."""
        blocks = (self._handles[storage][0] for storage in storages if storage in self._handles)
        return self.allocator.layout(), tuple(map(self.allocator.address_of, blocks))

    @property
    def events(self) -> Sequence[AllocationEvent]:
        """Everything asked for so far."""
        return self._events

    def stop(self) -> None:
        """What the program does from now on is not followed: it is only being ended."""
        self._stopped = True

    def go_on(
        self,
        apart: Callable[[PyTorchAllocator, dict[int, int]], dict[int, int]],
        gone: Mapping[int, int],
        come: Sequence[tuple[int, Malloc]],
        rest: Iterable[AllocationEvent],
    ) -> None:
        """Requests that are not written down happen on the allocator, then the rest does, which is. Raises OutOfMemoryError.

        apart: plays them, from what is alive to what is then, key -> handle. gone: of what is alive now and is not then, the
        storage and its key there. come: what is alive then and is not now: its key there and the request for it.
        """
        states, allocator = self._states, self.allocator
        taken = {storage: self._handles.pop(storage) for storage in gone}
        blocks = {storage: allocator.size_of(handle) for storage, (handle, _) in taken.items()}
        allocated, before = allocator.allocated, allocator.peak_allocated
        handles = apart(allocator, {gone[storage]: handle for storage, (handle, _) in taken.items()})
        told_peak = allocator.peak_allocated if allocator.peak_allocated > before else 0
        for storage, (_, nbytes) in taken.items():
            allocated -= blocks[storage]
            self._events.append(Free(storage))
            states.put(allocated, -nbytes)
        for key, malloc in come:
            handle = handles[key]
            allocated += allocator.size_of(handle)
            self._events.append(malloc)
            states.put(allocated, malloc.nbytes, handle)
            self._handles[malloc.key] = handle, malloc.nbytes
        if allocated != allocator.allocated:
            raise ValueError("what was told does not add up")
        for event in rest:
            self._play(event)
        if told_peak > max(states.allocated):
            raise ValueError("the most was in use where nothing is written down")

    def cut(self, position: int, names: Mapping[int, int]) -> None:
        """Forget the events from a position on; storages alive now are known by other numbers from then on."""
        assert self._eager is not None
        del self._events[position:]
        self._states.cut(position)
        moved = {new: self._handles.pop(old) for old, new in names.items() if old in self._handles}
        self._handles |= moved
        self._eager.rename(names)

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
        storages = graph.storages
        events = tuple(
            [
                replace(event, category=storages[event.storage].category)
                if isinstance(event, Malloc)
                and event.storage >= 0
                and event.category is not storages[event.storage].category
                else event
                for event in self._events
            ]
        )
        libraries, profile = frozenset(self._eager.libraries), self._profile
        failure = self._failed if self._ended else None
        if failure is not None:
            self._states.cut(failure.position)
        return Prediction(
            events=events,
            played=gathered(events, self._states, failure),
            allocator=self.fresh,
            limited=lambda limit_bytes, device: limited(self._conf, self._profile, limit_bytes, device),
            device_used=lambda played: (
                device_used(played.peak_reserved, libraries, profile, graph.communicators)
                + pool_bytes(self._conf, graph.own_streams and not graph.communicators)
            ),
            libraries=libraries,
            unknown=dict(self._eager.unknown),
            notes=(
                *notes_on(self._conf),
                *notes_on_nccl(graph.communicators, profile),
                *notes_on_transforms(graph.operators),
            ),
        )
