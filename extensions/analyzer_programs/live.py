"""A program followed while it runs: its requests are simulated as they are made, so that it can ask the
device about itself.

`torch.cuda.memory_allocated()` and its kin answer from here, a request without room is an error the program
may catch, and `empty_cache()` acts. The events are those `eager.requests` gives for the same program; only
requests that failed, and what the program set of its allocator, come on top.

The allocator's states are recorded as they happen, and nothing is simulated again: repetitions may then be
forgotten (`cut`) although the allocator has gone through them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import environ
from typing import Any

from analyzer.allocators import OutOfMemoryError
from analyzer.allocators.process import Process
from analyzer.allocators.pytorch.caching import PyTorchAllocator
from analyzer.allocators.pytorch.onward import has_fast_path, simulate_on
from analyzer.devices import DeviceProfile
from analyzer.errors import NotExtrapolated
from analyzer.graph import Category, Death, Graph, Moment, Operator, Run
from analyzer.runtimes.base import UNLIMITED, Prediction
from analyzer.runtimes.events import AllocationEvent, Free, Malloc
from analyzer.runtimes.pytorch.eager import AnyProgram, Eager, GrowingProgram
from analyzer.runtimes.pytorch.launches import kernel_of
from analyzer.runtimes.pytorch.orders import Look, Reading, order_of, other_orders
from analyzer.runtimes.pytorch.outside import device_used, notes_on_nccl
from analyzer.runtimes.pytorch.scratch.fourier import notes_on_transforms
from analyzer.runtimes.pytorch.settings import limited, make_allocator, notes_on, pool_bytes
from analyzer.runtimes.timeline import Failure, Server, States, simulation_of_states
from analyzer_programs import extrapolation
from analyzer_programs.playing import later, next_rounds

_UNTOUCHED = (
    "the program asks for no memory of a GPU; should it make a CUDA context all the same"
    " (torch.cuda.synchronize() does), that takes {:,.0f} MiB"
)


@dataclass(frozen=True, slots=True)
class ExtrapolatedIterations:
    """Iterations that were extrapolated. allocated: bytes before them; blocks: of each storage that lived
    then and does not now the bytes of its block and those asked for; handles: by the same storages, what
    lives in their place."""

    allocated: int
    blocks: Mapping[int, tuple[int, int]]
    handles: Mapping[int, int]

    @property
    def extrapolated(self) -> Collection[int]:
        """Storages alive before the iterations and dead after them."""
        return self.handles.keys()


class Live:
    """The memory of one pretended device. All figures in bytes."""

    def __init__(
        self,
        profile: DeviceProfile,
        conf: str,
        current_settings: Callable[[], tuple[DeviceProfile, str]] | None = None,
        limitless: bool = False,
    ) -> None:
        """conf: the allocator's settings. limitless: every request is served, whatever the device has.
        current_settings: the profile and conf as the environment now says: programs set its variables, and
        PyTorch and cuBLAS read them when memory is first asked for, and when a handle is made."""
        self._profile, self._conf, self._current_settings, self._limitless = (
            profile,
            conf,
            current_settings,
            limitless,
        )
        self._program: AnyProgram | None = None
        self._eager: Eager | None = None
        self._process = Process()
        self._workspaces = environ.get("CUBLAS_WORKSPACE_CONFIG")
        self._cudnn_threads = self._libraries = 0
        self._events: list[AllocationEvent] = []
        self._failed: Failure | None = None
        self._ended = self._has_begun = self._is_over = False
        # Requests that are recorded apart, the copy of `_eager` from before them, and the most in use during
        # unrecorded ones.
        self._speculated: list[AllocationEvent] | None = None
        self._eager_before: Eager | None = None
        self._extrapolated_peaks, self._has_all_events = (0, 0), True
        self._readings: list[Reading] = []
        self._watchdog_looks: list[Look] = []
        self._peaks = (0, 0, 0)
        self.failures, self._has_queried = 0, False  # queried: how much is free, which makes a context
        self._reset()

    def _reset(self) -> None:
        """Begin with a new allocator."""
        self.allocator = self.fresh()
        self._server = Server(self.allocator)
        self._states = States(self.allocator, places=True)

    def fresh(self) -> PyTorchAllocator:
        """Return a new allocator with the program's settings, on a device of this size."""
        return make_allocator(
            self._conf,
            self._profile,
            space=self._process,
            limit_bytes=self._room(self._profile.context_bytes),
            device_total_bytes=self._profile.capacity_bytes,
        )

    def _room(self, besides: int) -> int:
        """Return the bytes the allocator may hold if the process holds `besides` bytes elsewhere."""
        return UNLIMITED.nbytes if self._limitless else max(self._profile.usable_bytes - besides, 0)

    @property
    def retries(self) -> int:
        """Number of requests for which the allocator returned its cached segments."""
        return self.allocator.retries

    @property
    def profile(self) -> DeviceProfile:
        """The GPU's profile, with the cuBLAS settings of the program's environment."""
        return self._profile

    def at(self, gpu: int) -> Live:  # noqa: ARG002
        """Return itself: the memory of the only GPU."""
        return self

    def attach(self, storages: Sequence[Any], operators: Sequence[Operator]) -> None:
        """Follow the program of these, which grow."""
        self._program = GrowingProgram(storages, operators)
        self._eager = Eager(self._program, self._profile)

    def follow(self, moment: Moment) -> None:
        """Simulate a moment's requests. Raises OutOfMemoryError after freeing the operator's scratch."""
        assert self._program is not None and self._eager is not None
        if self._is_over:
            return
        if type(moment) is Death:
            if self._eager.ends(moment.storage):
                self._simulate(Free(moment.storage))
            return
        begin = len(self._events)
        if type(moment) is Run:
            if (
                self._current_settings
                and (workspaces := environ.get("CUBLAS_WORKSPACE_CONFIG")) != self._workspaces
            ):
                self._workspaces = workspaces
                self._profile = self._eager.device = self._current_settings()[0]
            requests = self._eager.run(self._program.operators[moment.operator])
        else:
            requests = self._eager.follow(moment)
        for event in requests:
            try:
                self._simulate(event)
            except OutOfMemoryError as error:
                self._unwind(begin, event, error)
                raise
        if isinstance(moment, Run) and self._speculated is None:
            self._launched(self._program.operators[moment.operator], self._program)

    def _launched(self, operator: Operator, program: AnyProgram) -> None:
        """Load the operator's libraries and run its kernel in the driver's address space."""
        assert self._eager is not None
        if len(self._eager.libraries) != self._libraries:
            self._libraries = len(self._eager.libraries)
            if any(name.startswith("cublas") for name in self._eager.libraries):
                self._current_settings = None
            besides = device_used(0, self._eager.libraries, self._profile)
            self.allocator.leave(self._room(besides))
            cudnn = sum(name.startswith("cudnn") for name in self._eager.libraries)
            for _ in range(cudnn - self._cudnn_threads):
                self._cudnn_threads += 1
                self._process.cudnn()
        if self._process.settled:
            return
        kernel = kernel_of(operator, program)
        if kernel is not None:
            self._process.launch(kernel)

    def _simulate(self, event: AllocationEvent) -> None:
        """Simulate one event; while a speculation is recorded, only store it."""
        if self._speculated is not None:
            self._speculated.append(event)
            return
        if type(event) is Malloc:
            if not self._has_begun:
                self._begin()
            if event.category is Category.WORKSPACE and event.label == "cublas":
                self._process.cublas()
        nbytes = self._server.step(event, self._states)
        self._events.append(event)
        if nbytes > 0:
            states, (allocated, reserved, requested) = self._states, self._peaks
            now = states.allocated[-1], states.reserved[-1], states.requested[-1]
            if now[0] > allocated or now[1] > reserved or now[2] > requested:
                self._peaks = max(allocated, now[0]), max(reserved, now[1]), max(requested, now[2])

    def _begin(self) -> None:
        """Fix the allocator's settings at the first request."""
        self._has_begun = True
        conf = self._current_settings()[1] if self._current_settings else self._conf
        if conf == self._conf:
            return
        self._conf, events, self._events = conf, self._events, []
        self._reset()
        for event in events:
            self._simulate(event)

    def _unwind(self, begin: int, failing: AllocationEvent, error: OutOfMemoryError) -> None:
        """Free the scratch of the operator that found no memory; its results die by themselves."""
        assert isinstance(failing, Malloc) and self._eager is not None
        failed = len(self._events)
        self._note_failure(failing, error)
        self._eager.discard_failed(failing)
        for event in self._events[begin:failed]:
            if (
                isinstance(event, Malloc)
                and event.category is Category.SCRATCH
                and event.key in self._server.live
            ):
                self._simulate(Free(event.key))

    def _note_failure(self, failing: AllocationEvent, error: OutOfMemoryError) -> None:
        assert isinstance(failing, Malloc)
        self.failures += 1
        self._failed = Failure.of(len(self._events), failing, error)
        self._events.append(replace(failing, fails=True))
        self._states.put(self.allocator.allocated, 0)

    def caught_nothing(self) -> None:
        """Note that the last failure ended the program: it was not caught."""
        self._ended = self._failed is not None

    # -- what repeats

    @property
    def position(self) -> int:
        """Number of events so far."""
        return len(self.events)

    @property
    def peaks(self) -> tuple[int, int, int]:
        """Peaks so far of bytes allocated, reserved and requested."""
        return self._peaks

    def block_bytes(self, storage: int) -> int:
        """Return the block behind a storage; 0 for one that takes nothing of the device."""
        live = self._server.live
        return self.allocator.size_of(live[storage][0]) if storage in live else 0

    def layout(self, storages: Iterable[int]) -> Hashable:
        """Return all allocator state that decides later requests, given these live storages."""
        live = self._server.live
        blocks = (live[storage][0] for storage in storages if storage in live)
        return self.allocator.layout(), tuple(map(self.allocator.address_of, blocks))

    @property
    def events(self) -> Sequence[AllocationEvent]:
        """Events so far; while a speculation is recorded, only its own."""
        return self._events if self._speculated is None else self._speculated

    def begin_speculation(self) -> None:
        """Record requests apart from now on, without simulating them."""
        assert self._eager is not None
        self._speculated, self._eager_before, self._eager = [], self._eager, self._eager.fork()

    def commit_speculation(self) -> None:
        """Simulate the requests that were recorded apart. Raises OutOfMemoryError."""
        apart, self._speculated = iter(self._speculated or ()), None
        for event in apart:
            try:
                self._simulate(event)
            except OutOfMemoryError as error:
                self._unwind(len(self._events), event, error)
                self._skip(apart)
                raise

    def _skip(self, events: Iterable[AllocationEvent]) -> None:
        """Of events behind a failed request only give back what is alive: nothing else is requested."""
        assert self._eager is not None
        for event in events:
            if type(event) is Malloc:
                self._eager.discard_failed(event)
            elif type(event) is Free and event.key in self._server.live:
                self._simulate(event)

    def discard_speculation(self) -> None:
        """Forget the requests that were recorded apart."""
        self._speculated, self._eager = None, self._eager_before

    def iterations(
        self, starts: Sequence[int], first: int
    ) -> tuple[list[extrapolation.Round], dict[int, tuple[int, int]]]:
        """Return the rounds among these events, as `extrapolation.rounds`."""
        assert self._program is not None
        return extrapolation.rounds(self.events, self._program.operators, starts, first)

    def extrapolate(
        self, samples: Sequence[extrapolation.Round], places: Mapping[int, tuple[int, int]], numbers: range
    ) -> ExtrapolatedIterations:
        """Simulate the iterations of these numbers on the allocator, without writing them down. Raises
        NotExtrapolated: then nothing has changed."""
        loop, allocator = extrapolation.loop(samples, self._profile), self.allocator
        carried = {key: held for key, held in self._server.live.items() if key in places}
        if not has_fast_path(allocator, [handle for handle, _ in carried.values()]):
            raise NotExtrapolated("the allocator's settings are not known to the compiled one")
        before, allocated = allocator.peak_allocated, allocator.allocated
        blocks = {key: (allocator.size_of(handle), nbytes) for key, (handle, nbytes) in carried.items()}
        held = {extrapolation.key_at(loop, *places[key]): handle for key, (handle, _) in carried.items()}
        try:
            handles = simulate_on(
                allocator, held, extrapolation.requests(loop, numbers), extrapolation.key_count(loop)
            )
        except OutOfMemoryError as error:
            raise NotExtrapolated("memory runs out") from error
        self._has_all_events = False
        now = {}
        for key in carried:
            number, place = places[key]
            now[key] = handles[extrapolation.key_at(loop, number + len(numbers), place)]
            del self._server.live[key]
        if allocator.peak_allocated > before:
            self._extrapolated_peaks = allocator.peak_allocated, allocator.peak_requested
        return ExtrapolatedIterations(allocated, blocks, now)

    def resume_after(
        self,
        extrapolated: ExtrapolatedIterations,
        pairs: Sequence[tuple[int, int]],
        names: Mapping[int, int],
        operators: int,
    ) -> None:
        """Continue after extrapolated iterations with the requests of the speculation."""
        assert self._eager is not None and self._speculated is not None
        requests = {event.key: event for event in self._speculated if isinstance(event, Malloc)}
        came = {
            was: requests[now] for was, now in pairs if now in requests
        }  # what is in host memory was not asked for
        self._speculated = None
        allocated = extrapolated.allocated
        for was in came:
            block, nbytes = extrapolated.blocks[was]
            allocated -= block
            self._events.append(Free(was))
            self._states.put(allocated, -nbytes)
        for was, malloc in came.items():
            handle, name = extrapolated.handles[was], names[malloc.key]
            allocated += self.allocator.size_of(handle)
            request = replace(malloc, key=name, storage=name, operator=malloc.operator - operators)
            self._events.append(request)
            self._states.put(allocated, malloc.nbytes, handle)
            self._server.live[name] = handle, malloc.nbytes
        if allocated != self.allocator.allocated:
            raise ValueError("what was extrapolated does not add up")
        self._eager.rename(names)

    def play(
        self, begin: int, before: Mapping[Hashable, int], now: Mapping[Hashable, int], steps: int
    ) -> Iterator[None]:
        """Play rounds like the one since position `begin`, two at a time, as long as this is drawn from; none
        where they cannot be played. before, now: storages alive at its beginning and its end, by role; steps:
        optimizer steps in a round. Raises OutOfMemoryError, with which the program is over."""
        assert self._eager is not None
        followed, count = self._events[begin:], 0
        pair = next_rounds(followed, before, now, self._eager.key)
        while pair is not None:
            for events in pair:
                count += steps
                for event in events:
                    try:
                        self._simulate(later(event, count))
                    except OutOfMemoryError as error:
                        self._is_over = True
                        self._note_failure(event, error)
                        raise
            yield

    def begin_checkpoint_read(self) -> None:
        """Threads begin to read a checkpoint."""
        if self._speculated is None:
            self._readings.append(Reading())

    def record_piece(self, begin: int) -> None:
        """Record that the requests since this position made the next tensor of a checkpoint."""
        if self._speculated is None and self._readings:
            self._readings[-1].pieces.append((begin, self.position))

    def await_piece(self, number: int) -> None:
        """Record that the program waits for this tensor of a checkpoint."""
        if self._speculated is None and self._readings:
            self._readings[-1].waits.append((self.position, number))

    def record_watched(self, storages: Iterable[int]) -> None:
        """Record that the watchdog no longer holds these storages."""
        if self._speculated is None:
            self._watchdog_looks.append(Look(self.position, frozenset(storages)))

    def cut(self, position: int, names: Mapping[int, int]) -> None:
        """Drop the events from a position on; `names` maps live storages to their new numbers."""
        assert self._eager is not None
        del self._events[position:]
        self._readings = [reading for reading in self._readings if reading.end <= position]
        self._watchdog_looks = [look for look in self._watchdog_looks if look.position <= position]
        self._states.cut(position)
        live = self._server.live
        live |= {new: live.pop(old) for old, new in names.items() if old in live}
        self._eager.rename(names)

    def _write_extrapolated_peak(self) -> None:
        """Add one allocation for a peak reached while rounds were extrapolated."""
        states, eager, (allocated, requested) = self._states, self._eager, self._extrapolated_peaks
        if not states.allocated or eager is None or allocated <= max(states.allocated):
            return
        now, more = states.allocated[-1], max(requested - states.requested[-1], 0)
        piece = Malloc(
            eager.key(), allocated - now, Category.ACTIVATION, label="tokens that were extrapolated"
        )
        self._events += [piece, Free(piece.key)]
        states.put(allocated, more)
        states.put(now, -more)

    @property
    def device_free(self) -> int:
        """Free bytes, as `mem_get_info` reports them."""
        assert self._eager is not None
        self._has_queried = True
        used = device_used(self.allocator.reserved, self._eager.libraries, self._profile)
        if not (self._process.computed or self._eager.libraries):
            used -= self._profile.first_kernel_bytes
        return max(0, self._profile.usable_bytes - used)

    @property
    def capacity(self) -> int:
        """Bytes of the device's memory."""
        return self._profile.capacity_bytes

    @property
    def listed(self) -> int:
        """Bytes of the device's memory as NVML lists it."""
        return max(self._profile.listed_bytes, self._profile.capacity_bytes)

    def prediction(self, graph: Graph) -> Prediction:
        """Return the prediction of the whole program, with the categories its graph assigns to storages."""
        assert self._eager is not None
        storages = graph.storages
        self._write_extrapolated_peak()
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
        requested = self.failures or any(isinstance(event, Malloc) for event in events)
        own = graph.own_streams or graph.communicators
        untouched = not (requested or libraries or self._has_queried or own)
        failure = self._failed if self._ended else None
        if failure is not None:
            self._states.cut(failure.position)
        return Prediction(
            events=events,
            simulation=simulation_of_states(events, self._states, failure),
            other_orders=partial(other_orders, events, tuple(self._readings), tuple(self._watchdog_looks)),
            order=order_of(self._readings, self._watchdog_looks),
            has_all_events=self._has_all_events,
            allocator=self.fresh,
            limited=lambda limit_bytes, device: limited(self._conf, self._profile, limit_bytes, device),
            device_used=lambda simulation: (
                0
                if untouched
                else device_used(simulation.peak_reserved, libraries, profile, graph.communicators)
                + pool_bytes(self._conf, graph.own_streams and not graph.communicators)
            ),
            libraries=libraries,
            unknown=dict(self._eager.unknown),
            notes=(
                *([_UNTOUCHED.format(profile.context_bytes / 2**20)] if untouched else ()),
                *notes_on(self._conf),
                *notes_on_nccl(graph.communicators, profile),
                *notes_on_transforms(graph.operators),
            ),
        )
