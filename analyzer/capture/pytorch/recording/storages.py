"""The storages of a program that is recorded, and its moments: who is born when, where it lies, and when it
dies.

1. A storage is born where it first appears and dies when Python and autograd drop their last reference to it:
   a weak reference on the storage object tells when, exactly as the CUDA tensor would have been freed.
2. It lies on the device; or in host memory, with or without values; or nowhere, where the program itself
   asked for a meta tensor.
3. A storage that is resized is another one from then on: new memory is taken, then the old given back
   (`cuda/Resize.cpp`).
4. Where a size is only bounded, so is what is made from it of that size.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch

from analyzer.capture.pytorch.recording.current_stream import Current
from analyzer.capture.pytorch.recording.garbage import Garbage
from analyzer.capture.pytorch.recording.gpus import Gpus
from analyzer.capture.pytorch.recording.memory import Memory, out_of_memory
from analyzer.capture.pytorch.recording.parts import inside
from analyzer.capture.pytorch.recording.places import Places
from analyzer.capture.pytorch.recording.twins import Twins
from analyzer.graph import (
    Argument,
    Birth,
    Category,
    Death,
    Mark,
    Moment,
    Phase,
    Storage,
    StreamUse,
    StreamWait,
    TensorMeta,
)
from analyzer.values.known import KnownValues

DTYPE_NAMES = {value: str(value)[6:] for value in vars(torch).values() if isinstance(value, torch.dtype)}
# Arguments that are kept as they are; of a subclass too, but that is asked later.
_PLAIN = frozenset({type(None), bool, int, float, str, complex})
_CATEGORY = {
    Phase.SETUP: Category.BUFFER,
    Phase.INPUT: Category.INPUT,
    Phase.ZERO_GRAD: Category.SCRATCH,
    Phase.FORWARD: Category.ACTIVATION,
    Phase.LOSS: Category.ACTIVATION,
    Phase.BACKWARD: Category.GRADIENT,
    Phase.OPTIMIZER: Category.SCRATCH,
    Phase.EVALUATION: Category.ACTIVATION,
    Phase.GENERATION: Category.ACTIVATION,
}


@dataclass(slots=True)
class GrowingStorage:
    """A storage being recorded; frozen into a `Storage` by `finish`."""

    nbytes: int
    category: Category
    name: str
    on_device: bool
    phase: Phase
    read_in_backward: bool = False
    bounded: bool = False
    gpu: int = 0


class Storages:
    """Storages of one capture. all: every one so far; program: moments so far; live: numbers of live ones by
    key; bounds: sizes that are upper bounds because data decides them; bounded: new storages may be of such a
    size."""

    def __init__(
        self,
        places: Places,
        streams: Current,
        known: KnownValues,
        twins: Twins,
        memory: Memory | None,
        gpus: Gpus,
    ) -> None:
        self._places, self._streams, self._memory, self._gpus = places, streams, memory, gpus
        self._known_values, self._twins = known, twins
        self.all: list[GrowingStorage] = []
        self.program: list[Moment] = []
        self.calls: list[tuple[int, int]] = []  # places in it where a model is called from outside any
        self.live: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self.garbage = Garbage()
        self._nowhere: set[int] = set()
        self.makes_nowhere = False
        self._shared = False  # a storage is used by another stream than its own
        self.bounds: set[int] = set()
        self.bounded = False
        self._closed = False

    # -- moments

    def happened(self, moment: Moment) -> None:
        """Append a moment of the program. Raises torch.OutOfMemoryError if the device is full."""
        self.program.append(moment)
        if self._memory is not None:
            try:
                self._memory.follow(moment)
            except Exception as error:
                self._translate(error)

    def simulated(self, simulate: Callable[[], None]) -> None:
        """Simulate requests. Raises torch.OutOfMemoryError if the device is full."""
        try:
            simulate()
        except Exception as error:
            self._translate(error)

    def _translate(self, error: Exception) -> NoReturn:
        """Raise an error of the simulation as PyTorch's, where it is one for want of memory."""
        if self._memory is None or not hasattr(error, "requested"):
            raise error
        raise out_of_memory(error, self._memory) from None

    def mark(self, name: str) -> None:
        """End the named event."""
        self.happened(Mark(name))

    def called(self, model: int) -> None:
        """Note that a model is called from outside any."""
        self.calls.append((len(self.program), model))

    def wait(self, stream: int | None = None, by: int | None = None, gpu: int | None = None) -> None:
        """Let the host, or the stream `by`, wait for a stream, or for all of a GPU (the current one)."""
        if self._shared:
            self.happened(StreamWait(stream, by, self._gpus.current if gpu is None else gpu))

    def wait_here(self) -> None:
        """Let the host wait for the current stream: it reads, or copies without `non_blocking`."""
        if self._shared:
            self.wait(self._streams.now())

    def use(self, tensor: torch.Tensor, stream: int) -> None:
        """Record that another stream uses the tensor."""
        index = self.live.get(tensor.untyped_storage()._cdata)
        if index is not None and self.all[index].on_device:
            self._shared = True
            self.happened(StreamUse(index, stream))

    # -- where tensors lie

    def host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Register a meta tensor that stands for one in host memory; returns it."""
        self.number(tensor, "host tensor", Category.INPUT, on_device=False)
        return tensor

    def in_host_memory(self, tensor: torch.Tensor) -> bool:
        """Return whether a meta tensor stands for one in host memory."""
        index = self.live.get(next(inside(tensor), tensor).untyped_storage()._cdata)
        return index is not None and not self.all[index].on_device

    def any_in_host_memory(self) -> bool:
        """Return whether tensors that live now stand for ones in host memory."""
        return any(
            not self.all[index].on_device and index not in self._nowhere for index in self.live.values()
        )

    def on_host(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor lies in host memory, with values or without."""
        return tensor.device.type != "meta" or self.in_host_memory(tensor)

    def place_of(self, storage: Any) -> bool | None:
        """Return whether a storage is on the device; None for the program's own meta tensors."""
        index = self.live.get(storage._cdata)
        return None if index is None or index in self._nowhere else self.all[index].on_device

    def device_of_storage(self, storage: Any) -> torch.device:
        """Return the GPU of a storage that lies on one, as the program names it."""
        return self._gpus.device(self.all[self.live[storage._cdata]].gpu if self._gpus.several else None)

    def nowhere(self, tensor: torch.Tensor) -> bool:
        """Return whether the program itself made it a meta tensor: it has no memory anywhere."""
        return self.live.get(next(inside(tensor), tensor).untyped_storage()._cdata) in self._nowhere

    @property
    def has_nowhere(self) -> bool:
        """Whether the program itself has made meta tensors."""
        return bool(self._nowhere)

    def all_nowhere(self, arguments: Iterable[Any]) -> bool:
        """Return whether there is a tensor without memory among these, and the program made them all so."""
        one = False
        for argument in arguments:
            for value in argument if isinstance(argument, (list, tuple)) else (argument,):
                if isinstance(value, torch.Tensor) and value.is_meta:
                    if not self.nowhere(value):
                        return False
                    one = True
        return one

    @contextlib.contextmanager
    def making_nowhere(self) -> Iterator[None]:
        """While open, results are the program's own meta tensors."""
        before, self.makes_nowhere = self.makes_nowhere, True
        try:
            yield
        finally:
            self.makes_nowhere = before

    def gpu_of(self, tensor: torch.Tensor) -> int | None:
        """Return which GPU a tensor lies on, None where on none (or one that is not known yet)."""
        index = self.live.get(next(inside(tensor), tensor).untyped_storage()._cdata)
        if index is None:
            return None
        storage = self.all[index]
        return storage.gpu if storage.on_device else None

    # -- births and deaths

    def count(self) -> int:
        """Number of storages made so far."""
        return len(self.all)

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of a tensor's storage, None if unknown."""
        return self.live.get(tensor.untyped_storage()._cdata)

    def number(
        self, tensor: torch.Tensor, name: str, category: Category, on_device: bool = True, born: bool = False
    ) -> int:
        """Return the number of a tensor's storage, which begins now if unknown. born: the next recorded
        operator makes it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        index = self.live.get(key)
        if index is not None:
            return index
        on_device = on_device and tensor.device.type == "meta"
        growing = GrowingStorage(
            storage.nbytes(),
            category,
            name,
            on_device,
            self._places.phase,
            bounded=self._sized_by_bound(tensor),
            gpu=self._gpus.making() if self._gpus.several else 0,
        )
        index = self._add(key, growing, born)

        def died(reference: Any, key: int = key) -> None:
            if self._closed or self._references.get(key) is not reference:
                return
            del self._references[key]
            self._known_values.forget(key)
            index = self.live.pop(key)
            self.garbage.died(index, self.all[index])
            self.happened(Death(index))

        self._references[key] = weakref.ref(storage, died)
        return index

    def _add(self, key: int, growing: GrowingStorage, born: bool = False) -> int:
        index = self.live[key] = len(self.all)
        self.all.append(growing)
        if not born:
            self.happened(Birth(index, self._streams.now(growing.gpu)))
        return index

    def resized(self, storage: torch.UntypedStorage) -> None:
        """Update the size of a storage that may have changed."""
        key = storage._cdata
        index = self.live.get(key)
        if index is None or storage.nbytes() == self.all[index].nbytes:
            return
        if not self._twins.resized(key, storage.nbytes()):
            self._known_values.forget(key)
        self._add(key, replace(self.all[index], nbytes=storage.nbytes()))
        self.happened(Death(index))

    def label(self, tensor: torch.Tensor, name: str, category: Category) -> None:
        """Give a storage its name and category."""
        for part in inside(tensor):
            storage = self.all[self.number(part, name, category)]
            if storage.category is not Category.PARAMETER:
                storage.category = category
            if not storage.name or storage.name.startswith("aten::"):
                storage.name = name

    # -- tensors of operators

    def meta(self, tensor: torch.Tensor, name: str, born: bool = True) -> TensorMeta:
        """Return the tensor as an operator sees it: storage, shape, strides, type. born: it is a result."""
        index = self.live.get(tensor.untyped_storage()._cdata)
        if index is None:
            index = self.number(tensor, name, _CATEGORY[self._places.phase], born=born)
        elif self._places.phase is Phase.BACKWARD and not born:
            self.all[index].read_in_backward = True
        return TensorMeta(
            index,
            tuple(tensor.shape),
            tensor.stride(),
            DTYPE_NAMES[tensor.dtype],
            int(tensor.storage_offset()),
            not born and tensor.requires_grad and torch.is_grad_enabled(),
            conjugated=tensor.dtype.is_complex and tensor.is_conj(),
        )

    def argument(self, value: Any, tensors: list[torch.Tensor], metas: list[TensorMeta]) -> Argument:
        """Return an argument as the operator stores it. tensors, metas: tensors so far, as stored."""
        if type(value) in _PLAIN:
            return value  # type: ignore[no-any-return]
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            meta = self.meta(value, "" if value.is_meta else "host tensor", born=False)
            metas.append(meta)
            return meta
        if isinstance(value, (bool, int, float, str, complex)):
            return value
        if isinstance(value, (list, tuple)):
            return tuple([self.argument(part, tensors, metas) for part in value])
        if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):  # whose text is its contents
            return type(value).__name__
        return str(value)

    def made_on_host(self, results: Iterable[torch.Tensor | None], nowhere: bool) -> None:
        """Register results of a host operator, or (nowhere) of the program's own meta tensors."""
        for result in results:
            if result is not None and result.device.type == "meta":
                index = self.number(result, "host tensor", _CATEGORY[self._places.phase], on_device=False)
                if nowhere:
                    self._nowhere.add(index)

    # -- bounds

    def bound(self, most: int) -> None:
        """Register a size as an upper bound, which new storages may have."""
        self.bounds.add(most)
        self.bounded = True

    def is_bounded(self, tensor: torch.Tensor) -> bool:
        """Return whether the size of a tensor's memory is only an upper bound."""
        index = self.live.get(tensor.untyped_storage()._cdata)
        return index is not None and self.all[index].bounded

    def _sized_by_bound(self, tensor: torch.Tensor) -> bool:
        """Return whether the new tensor's shape has a size that is a bound or its multiple."""
        return self.bounded and any(
            size and size % bound == 0 for size in tensor.shape for bound in self.bounds if bound > 1
        )

    # -- what repeats, and the end

    def alive(self) -> Iterable[int]:
        """Return the numbers of all live storages."""
        return self.live.values()

    def cut(self, storages: int, moments: int, names: Mapping[int, int]) -> None:
        """Forget all but the first so many; storages alive now are known by other numbers from then on."""
        for key, storage in self.live.items():
            if storage in names:
                self.live[key] = names[storage]
        del self.all[storages:]
        del self.program[moments:]
        self.calls = [call for call in self.calls if call[0] < moments]
        self.garbage.cut(storages)

    def finish(self) -> tuple[Storage, ...]:
        """Stop recording deaths and return the storages."""
        self._closed = True
        self._references.clear()
        storages = []
        for index, growing in enumerate(self.all):
            saved = growing.read_in_backward and growing.phase in (Phase.FORWARD, Phase.LOSS)
            category = growing.category
            if saved and category is Category.ACTIVATION:
                category = Category.SAVED
            storages.append(
                Storage(
                    index,
                    growing.nbytes,
                    category,
                    growing.name,
                    saved,
                    growing.on_device,
                    growing.bounded,
                    growing.gpu,
                )
            )
        return tuple(storages)
