"""A program's questions about its GPU's memory, and its settings of it, while it runs without a GPU.

The answers come from a `Memory`, which the allocator's simulation provides (`analyzer_programs/live.py`): the
capture knows no allocator. Without one the device answers as an empty one would.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.cuda._utils import _get_device_index

from analyzer.capture.pytorch.recording.gpus import Gpus
from analyzer.graph import Mark, Moment, Operator


class AllocatorState(Protocol):
    """Figures of a caching allocator, in bytes."""

    allocated: int
    reserved: int
    requested: int
    peak_allocated: int
    peak_reserved: int
    peak_requested: int

    def reset_peaks(self) -> None:
        """Start new peaks from the current state."""


class ExtrapolatedIterations(Protocol):
    """Iterations of a loop that were extrapolated, not run."""

    @property
    def extrapolated(self) -> Collection[int]:
        """Storages alive before the iterations and dead after them."""


class SpeculativeMemory(Protocol):
    """Requests that are recorded before it is known whether they happen, and iterations of a loop that are
    extrapolated from others (generated tokens)."""

    def begin_speculation(self) -> None:
        """Record requests apart from now on, without simulating them."""

    def commit_speculation(self) -> None:
        """Simulate the requests that were recorded apart."""

    def discard_speculation(self) -> None:
        """Forget the requests that were recorded apart."""

    def iterations(self, starts: Sequence[int], first: int) -> tuple[list[Any], Mapping[int, Any]]:
        """Return the iterations of a loop between these positions, numbered from `first` on, and the storages
        requested in them. Raises NotExtrapolated."""

    def extrapolate(
        self, samples: Sequence[Any], places: Mapping[int, Any], numbers: range
    ) -> ExtrapolatedIterations:
        """Simulate these iterations from samples. Raises NotExtrapolated, with no change."""

    def resume_after(
        self, extrapolated: Any, pairs: Sequence[tuple[int, int]], names: Mapping[int, int], operators: int
    ) -> None:
        """Go on behind extrapolated iterations with the requests that were recorded apart. pairs: storage
        that lived before the iterations, and the one recorded apart in its place; names: new numbers of
        storages recorded apart; operators: how many fewer there are before the former's than before the
        latter's."""


class CheckpointReads(Protocol):
    """Threads that read a checkpoint piece by piece while the program goes on."""

    def begin_checkpoint_read(self) -> None:
        """Threads begin to read a checkpoint."""

    def record_piece(self, begin: int) -> None:
        """Record that the requests since this position made the next tensor of a checkpoint."""

    def await_piece(self, number: int) -> None:
        """Record that the program waits for this tensor of a checkpoint."""


class WatchedReleases(Protocol):
    """A thread that lets memory go when it looks (`world/collectives.py`)."""

    def record_watched(self, storages: Iterable[int]) -> None:
        """Record that the watcher has looked and no longer holds these storages."""


class Memory(SpeculativeMemory, CheckpointReads, WatchedReleases, Protocol):
    """The memory of the pretended device. `follow` raises an exception `out_of_memory` recognises."""

    failures: int

    @property
    def retries(self) -> int:
        """Number of requests for which the allocator returned its cached segments."""

    @property
    def allocator(self) -> AllocatorState:
        """Figures of the allocator now."""

    @property
    def capacity(self) -> int:
        """Bytes of the device's memory."""

    @property
    def listed(self) -> int:
        """Bytes of the device's memory as NVML lists it."""

    @property
    def device_free(self) -> int:
        """Bytes of the device that no process holds."""

    def at(self, gpu: int) -> Memory:
        """Return the memory of one of the process's GPUs."""

    def attach(self, storages: Sequence[Any], operators: Sequence[Operator]) -> None:
        """Follow the program of these, which grow."""

    def follow(self, moment: Moment) -> None:
        """Simulate what the moment asks for."""

    @property
    def position(self) -> int:
        """Number of events so far."""

    @property
    def peaks(self) -> tuple[int, ...]:
        """Peaks of each figure so far."""

    def block_bytes(self, storage: int) -> int:
        """Return the bytes of the block behind a storage."""

    def layout(self, storages: Iterable[int]) -> Hashable:
        """Return all allocator state that decides later requests, given these live storages."""

    def play(
        self, begin: int, before: Mapping[Any, int], now: Mapping[Any, int], steps: int
    ) -> Iterator[None]:
        """Play rounds like the one since position `begin`, two at a time."""

    def cut(self, position: int, names: Mapping[int, int]) -> None:
        """Drop the events from a position on; `names` maps live storages to their new numbers."""


class MemoryAnswers:
    """The functions of `torch.cuda` and `torch.accelerator` that ask about memory, or set it.

    tell: how the program's own moments are recorded.
    """

    def __init__(self, memory: Memory, tell: Callable[[Mark], None], gpus: Gpus) -> None:
        self._memories, self._tell, self._gpus = memory, tell, gpus
        self._fractions: dict[int, float] = {}
        self._blocks: dict[int, torch.Tensor] = {}  # by address

    def _at(self, device: Any = None) -> Memory:
        """Return the memory of the GPU a program names, by default of the current one."""
        gpus = self._gpus
        return self._memories.at(gpus.current if device is None else gpus.chosen(device))

    def functions(self) -> dict[str, Any]:
        """Return the replacements by name below `torch`."""
        figures = {
            "memory_allocated": self._figure("allocated"),
            "max_memory_allocated": self._figure("peak_allocated"),
            "memory_reserved": self._figure("reserved"),
            "max_memory_reserved": self._figure("peak_reserved"),
            "memory_stats": self._statistics,
            "reset_peak_memory_stats": self._reset,
            "empty_cache": self._empty,
        }
        return {
            **{
                f"{module}.{name}": answer
                for module in ("cuda", "accelerator")
                for name, answer in figures.items()
            },
            "cuda.memory_cached": figures["memory_reserved"],
            "cuda.max_memory_cached": figures["max_memory_reserved"],
            "cuda.memory_stats_as_nested_dict": self._nested,
            "cuda.memory_summary": self._summary,
            "cuda.mem_get_info": self._free,
            "accelerator.get_memory_info": self._free,
            "cuda.device_memory_used": self._used,
            "cuda.reset_max_memory_allocated": self._reset,
            "cuda.reset_max_memory_cached": self._reset,
            "cuda.set_per_process_memory_fraction": self._set_fraction,
            "cuda.get_per_process_memory_fraction": lambda device=None: self._fractions.get(
                self._gpus.chosen(device), 1.0
            ),
            "cuda.caching_allocator_alloc": self._take,
            "cuda.caching_allocator_delete": self._give_back,
        }

    def _figure(self, name: str) -> Callable[..., int]:
        return lambda device=None, **_: int(getattr(self._at(device).allocator, name))

    def _used(self, device: Any = None) -> int:
        memory = self._at(device)
        return memory.listed - memory.device_free

    def _statistics(self, device: Any = None, **_: Any) -> dict[str, int]:
        memory, statistics = self._at(device), dict[str, int]()
        for kind in ("allocated", "reserved", "requested"):
            now, peak = getattr(memory.allocator, kind), getattr(memory.allocator, f"peak_{kind}")
            statistics |= {f"{kind}_bytes.all.current": now, f"{kind}_bytes.all.peak": peak}
        for kind in ("current", "peak"):
            statistics[f"active_bytes.all.{kind}"] = statistics[f"allocated_bytes.all.{kind}"]
        return _Statistics(statistics, num_alloc_retries=memory.retries, num_ooms=memory.failures)

    def _nested(self, device: Any = None, **_: Any) -> dict[str, Any]:
        """Return the statistics as nested dictionaries (`memory_stats_as_nested_dict`)."""
        nested: dict[str, Any] = {}
        for name, value in self._statistics(device).items():
            *path, last = name.split(".")
            place = nested
            for part in path:
                place = place.setdefault(part, {})
            place[last] = value
        return nested

    def _summary(self, device: Any = None, **_: Any) -> str:
        return "\n".join(f"{name}: {value:,}" for name, value in self._statistics(device).items())

    def _set_fraction(self, value: float, device: Any = None) -> None:
        if device is not None:
            _get_device_index(device)  # which refuses a device without an index, as PyTorch's function does
        gpu = self._gpus.current if device is None else self._gpus.chosen(device)
        self._fractions[gpu] = float(value)
        own = gpu if self._gpus.several else None
        self._tell(Mark("set_per_process_memory_fraction", self._fractions[gpu], own))

    def _take(self, size: int, device: Any = None, stream: Any = None) -> int:  # noqa: ARG002
        gpu = None if device is None else self._gpus.chosen(device)
        block = torch.empty(size, dtype=torch.uint8, device=self._gpus.device(gpu))
        self._blocks[block.data_ptr()] = block
        return block.data_ptr()

    def _give_back(self, mem_ptr: int) -> None:
        del self._blocks[mem_ptr]

    def _empty(self) -> None:
        self._tell(Mark("empty_cache"))

    def _reset(self, device: Any = None, **_: Any) -> None:
        self._at(device).allocator.reset_peaks()

    def _free(self, device: Any = None, **_: Any) -> tuple[int, int]:
        memory = self._at(device)
        return memory.device_free, memory.capacity


class _Statistics(dict[str, int]):
    """`torch.cuda.memory_stats()`; what PyTorch counts besides (calls, pools, splits) reads as 0."""

    def __missing__(self, key: str) -> int:
        if key.partition(".")[0] in _COUNTED:
            return 0
        raise KeyError(key)


_STATISTICS = """
    allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes inactive_split_bytes
    requested_bytes oversize_allocations oversize_segments num_sync_all_streams num_device_alloc
    num_device_free max_split_size
"""
_COUNTED = frozenset(_STATISTICS.split())


def out_of_memory(error: Any, memories: Memory) -> torch.OutOfMemoryError:
    """PyTorch's error for a simulated allocator's (`requested`, `allocated`, `reserved` in bytes, `gpu`)."""
    gpu = getattr(error, "gpu", 0)
    memory = memories.at(gpu)

    def size(nbytes: int) -> str:
        for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
            if nbytes >= unit:
                return f"{nbytes / unit:.2f} {name}"
        return f"{nbytes} bytes"

    unused = error.reserved - error.allocated
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {size(error.requested)}. GPU {gpu} has a total capacity of "
        f"{size(memory.capacity)} of which {size(memory.device_free)} is free. Of the allocated memory "
        f"{size(error.allocated)} is allocated by PyTorch, and {size(unused)} is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation. See documentation for Memory "
        "Management (https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-alloc-conf)"
    )
