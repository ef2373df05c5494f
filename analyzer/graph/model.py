"""Operators, storages, and the order in which things happen: one frozen value between capture and everything
else.

1. A **storage** is memory with one birth and one death. Views, aliases and in-place results share one;
   tensors are only descriptions (`TensorMeta`) of how an operator looks at a storage.
2. An **operator** is one call of one kernel (an ATen overload, an ONNX node), with everything about the call
   that decides memory: shapes, strides, dtypes, scalar arguments, phase, step, module path and source line.
3. The **program** is the order of moments: a storage is born outside any operator (`Birth`: weights, inputs),
   an operator runs (`Run`: the storages that first appear among its outputs are born there), a storage dies
   (`Death`), an event a user knows by name is over (`Mark`), another stream uses a storage (`StreamUse`), the
   host waits for the device (`StreamWait`). Deaths are where Python and autograd (or an ONNX plan) really
   drop the last reference; `liveness/` derives other policies from who reads what.
4. Invariants (`Graph.check`): each storage is born once and dies at most once, after its birth; operators run
   once each in index order and touch only living storages; sizes are not negative.

Not modelled: values. Nothing here holds tensor data.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from analyzer.graph.calls import ModelCall
from analyzer.graph.guard import SizeGuard


class GraphError(ValueError):
    """An invariant of the graph does not hold: a bug in the capture that made it."""


class Phase(enum.Enum):
    """Part of a step an operator belongs to; evaluation and generation need no gradients."""

    SETUP = "setup"
    INPUT = "input"
    ZERO_GRAD = "zero_grad"
    FORWARD = "forward"
    LOSS = "loss"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    EVALUATION = "evaluation"
    GENERATION = "generation"


class Category(enum.Enum):
    """Purpose of a storage; the rows of the breakdown at the peak."""

    PARAMETER = "parameters"
    BUFFER = "buffers"
    INPUT = "inputs"
    ACTIVATION = "activations"
    SAVED = "saved for backward"
    GRADIENT = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    SCRATCH = "scratch"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """A storage as an operator sees it. `shape`, `stride`, `offset` in elements; `dtype` by name (`float32`).

    symbols: the shape as the runtime's planner sees it, where some dimensions are names ("batch") or unknown
    (""); empty when it sees plain numbers (always, for PyTorch). conjugated: its values are the complex
    conjugates of what lies in the storage (PyTorch's lazy `conj`).
    """

    storage: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    offset: int = 0
    requires_grad: bool = False
    symbols: tuple[str | int, ...] = ()
    conjugated: bool = False

    @property
    def element_count(self) -> int:
        """Number of elements of the shape."""
        count = 1
        for size in self.shape:
            count *= size
        return count


def contiguous_strides(shape: Sequence[int], order: Iterable[int] | None = None) -> tuple[int, ...]:
    """Return strides, in elements, of dimensions that lie without gaps. order: the dimensions, innermost
    first; row-major without one."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))) if order is None else order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def lies_channels_last(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Return whether strides descend as N, spatial, C do, gaps allowed, so that PyTorch takes a tensor of
    four or five dimensions to be channels-last (`suggest_memory_format`).

    Source: `is_channels_last_strides_2d_s4` and `_3d_s5`, `c10/core/MemoryFormat.h`.
    """
    if len(shape) not in (4, 5) or stride[1] == 0:
        return False
    smallest = 0
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] == 0 or stride[dim] < smallest:
            return False
        if dim == 0 and smallest == stride[1]:
            return False
        smallest = stride[dim]
        if shape[dim] > 1:
            smallest *= shape[dim]
    return True


# A call's argument: a tensor, a plain value, or a tuple of such.
Argument: TypeAlias = "TensorMeta | bool | int | float | complex | str | tuple[Argument, ...] | None"

_NO_KEYWORDS: Mapping[str, Argument] = MappingProxyType({})
STREAMS = 1_000_000  # more numbers than a GPU of a process has streams


@dataclass(frozen=True, slots=True)
class Operator:
    """One call of one kernel.

    name: "aten::add.Tensor" (ATen, with overload) or "Conv" (ONNX; `domain` then names the operator set).
    arguments, keywords: the call's arguments in schema order; for ONNX the inputs, and the attributes.
    names: what the schema calls the arguments ("self", "indices"), in its order; none for ONNX.
    outputs: one entry a result, None where an optional output is absent.
    writes: storages changed in place.
    module: dotted path of the innermost module ("layer1.0.conv1"), "" at the top; for ONNX the node's name.
    source: "file.py:123" of the line in the user's code, "" when there is none.
    stream: the stream it runs on, 0 being the default one.
    handle: which of the libraries' handles its thread has, 0 being the main thread's.
    settings: what the program had set that the kernel's choice follows ("benchmark", "deterministic",
    "no_tf32", "no_cudnn"; of a matrix product "tf32").
    scope: for ONNX the module path the exporter recorded for the node ("layer1.0.conv1"), "" where it
    recorded none.
    checkpointing: since the operator before, how many regions of activation checkpointing began (a block's
    forward pass, or it again), and how often its hooks were called for a tensor that autograd saves or uses.
    gpu: which of the process's GPUs it runs on; streams are numbered on each.
    """

    index: int
    name: str
    arguments: tuple[Argument, ...]
    outputs: tuple[TensorMeta | None, ...]
    keywords: Mapping[str, Argument] = field(default_factory=lambda: _NO_KEYWORDS)
    writes: tuple[int, ...] = ()
    phase: Phase = Phase.FORWARD
    step: int = 0
    module: str = ""
    source: str = ""
    domain: str = "aten"
    stream: int = 0
    settings: frozenset[str] = frozenset()
    scope: str = ""
    handle: int = 0
    names: tuple[str, ...] = ()
    checkpointing: tuple[int, int] = (0, 0)
    gpu: int = 0

    def argument(self, *names: str, default: Argument = None) -> Argument:
        """Return the argument of the first of these schema names that the call gives a value, or the default.

        Raises GraphError where the call has arguments by position and nobody said what their schema calls
        them.
        """
        for name in names:
            if name in self.names and (place := self.names.index(name)) < len(self.arguments):
                return self.arguments[place]
            if name in self.keywords:
                return self.keywords[name]
        if self.arguments and not self.names:
            raise GraphError(f"{self.name} has arguments without their schema's names")
        return default

    def tensor(self, *names: str) -> TensorMeta | None:
        """Return the tensor argument of the first of these names that is given, None if absent."""
        value = self.argument(*names)
        return value if isinstance(value, TensorMeta) else None

    def integer(self, *names: str, default: int = 0) -> int:
        """Return the integer (or boolean) argument of the first of these names that is given."""
        value = self.argument(*names)
        return int(value) if isinstance(value, int) else default

    def integers(self, *names: str) -> tuple[int, ...] | None:
        """Return the integers of the first of these names given (one as a tuple), None if absent."""
        value = self.argument(*names)
        if isinstance(value, int):
            return (value,)
        if isinstance(value, tuple):
            return tuple(part for part in value if isinstance(part, int))
        return None

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        """Return the list of booleans of this name (`output_mask`), all true if absent."""
        value = self.argument(name)
        if isinstance(value, tuple) and len(value) == count:
            return tuple(bool(part) for part in value)
        return (True,) * count

    @property
    def inputs(self) -> tuple[TensorMeta, ...]:
        """All tensors among the arguments, in order."""
        tensors: list[TensorMeta] = []
        for argument in (*self.arguments, *self.keywords.values()) if self.keywords else self.arguments:
            if type(argument) is TensorMeta:
                tensors.append(argument)
            elif type(argument) is tuple:
                tensors += tensors_in(argument)
        return tuple(tensors)


def tensors_in(argument: Argument) -> Iterator[TensorMeta]:
    """Yield the tensors of an argument, depth first."""
    if isinstance(argument, TensorMeta):
        yield argument
    elif isinstance(argument, tuple):
        for part in argument:
            yield from tensors_in(part)


def storages_in(operator: Operator) -> set[int]:
    """Return the storages an operator reads: those of its inputs, without the generators behind these."""
    storages: set[int] = set()
    for argument in operator.arguments:
        if type(argument) is TensorMeta:
            storages.add(argument.storage)
        elif type(argument) is tuple:
            storages.update([tensor.storage for tensor in tensors_in(argument)])
    if operator.keywords:
        for argument in operator.keywords.values():
            if type(argument) is TensorMeta:
                storages.add(argument.storage)
            elif type(argument) is tuple:
                storages.update([tensor.storage for tensor in tensors_in(argument)])
    return storages


@dataclass(frozen=True, slots=True)
class Storage:
    """Memory with one birth and one death.

    nbytes: requested size in bytes, before any allocator rounds it.
    name: what a user would call it ("layer1.0.conv1.weight", "input 0", or the maker's operator name).
    saved: autograd keeps it for the backward pass.
    on_device: False for tensors that live in host memory (optimizer step counters, ONNX shape tensors).
    bounded: its size depends on data, and is counted at its bound.
    gpu: which of the process's GPUs it lies on.
    """

    index: int
    nbytes: int
    category: Category
    name: str = ""
    saved: bool = False
    on_device: bool = True
    bounded: bool = False
    gpu: int = 0


@dataclass(frozen=True, slots=True)
class LeafOutput:
    """Output of a leaf module in the first forward pass, for the naive formula."""

    module: str
    nbytes: int
    element_count: int
    has_parameters: bool


@dataclass(frozen=True, slots=True)
class Birth:
    """A storage appears, on a stream, that no operator makes (weights, inputs on the device)."""

    storage: int
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """An operator runs; storages that first appear among its outputs are born."""

    operator: int


@dataclass(frozen=True, slots=True)
class Death:
    """The last reference to a storage is dropped."""

    storage: int


# Marks of a followed program: its NVTX range "stage NAME" has ended, by that name, or one begins.
STAGE, BETWEEN = "stage ", "between stages"


@dataclass(frozen=True, slots=True)
class Mark:
    """An event a user knows by name is over: "model", "0.input", "0.forward", ...

    value: what a program told its allocator with it (`allocators/pytorch/caching.py`,
    "set_per_process_memory_fraction"). gpu: of which of its GPUs; None: of all.
    """

    name: str
    value: float | None = None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class StreamUse:
    """Another stream than the one it was made on uses a storage (`Tensor.record_stream`)."""

    storage: int
    stream: int


@dataclass(frozen=True, slots=True)
class StreamWait:
    """The host, or the stream `by`, waits for all work of `stream` (None: of any stream of `gpu`).

    Streams of the process's GPUs have numbers of their own: number on the GPU + the GPU's x `STREAMS`.
    """

    stream: int | None = None
    by: int | None = None
    gpu: int = 0


Moment: TypeAlias = Birth | Run | Death | Mark | StreamUse | StreamWait


@dataclass(frozen=True, slots=True)
class Communicator:
    """A process group's uses, which decide the memory of the library that connects its ranks.

    size: ranks. collective: whether one ran. sent_to, received_from: ranks exchanged with.
    """

    size: int
    collective: bool = False
    sent_to: frozenset[int] = frozenset()
    received_from: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured program. `framework` is "pytorch" or "onnx".

    communicators: the process groups whose collectives ran on the device, by name, of one rank of a job.
    own_streams: the program asked for streams besides the default one.
    unfinished: the program ended before its end: whatever was alive then might still have been read.
    calls: places in the program where a model is called from outside any, each with the model's number; of a
    program that was followed.
    models: how it first calls each of them.
    garbage: storages that lay in reference cycles until Python's collector ran; excepted: those that only the
    frames of an exception kept when it ran out of memory.
    guards: its comparisons of sizes, where the capture was to record them
    (`capture/pytorch/recording/asked_sizes.py`).
    alike: the compute capabilities of known GPUs for which it is the same program; none of it where it asked
    which GPU it is on.
    derived: what has been worked out of it once (`view.py`); no part of its value.
    """

    framework: str
    storages: tuple[Storage, ...]
    operators: tuple[Operator, ...]
    program: tuple[Moment, ...]
    batch: int | None = None
    notes: tuple[str, ...] = ()
    communicators: Mapping[str, Communicator] = field(default_factory=dict)
    own_streams: bool = False
    unfinished: bool = False
    calls: tuple[tuple[int, int], ...] = ()
    models: tuple[ModelCall, ...] = ()
    garbage: frozenset[int] = frozenset()
    excepted: frozenset[int] = frozenset()
    guards: tuple[SizeGuard, ...] = ()
    alike: frozenset[tuple[int, int]] = frozenset()
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self) -> Graph:
        """Return self if all invariants hold, else raise GraphError naming the first that fails."""
        born: set[int] = set()
        dead: set[int] = set()
        ran = -1
        for place, moment in enumerate(self.program):
            match moment:
                case Birth(storage):
                    if storage in born:
                        raise GraphError(f"moment {place}: storage {storage} is born twice")
                    born.add(storage)
                case Run(index):
                    if index <= ran or index >= len(self.operators):
                        raise GraphError(f"moment {place}: operator {index} runs out of order")
                    ran = index
                    operator = self.operators[index]
                    for storage in storages_in(operator):
                        if storage not in born or storage in dead:
                            raise GraphError(
                                f"{operator.name} (operator {index}) reads storage {storage}, which is not"
                                " alive"
                            )
                    for output in operator.outputs:
                        if output is not None:
                            if output.storage in dead:
                                raise GraphError(
                                    f"{operator.name} (operator {index}) returns dead storage"
                                    f" {output.storage}"
                                )
                            born.add(output.storage)
                case Death(storage):
                    if storage not in born or storage in dead:
                        raise GraphError(f"moment {place}: storage {storage} dies unborn or twice")
                    dead.add(storage)
                case StreamUse(storage):
                    if storage not in born or storage in dead:
                        raise GraphError(f"moment {place}: storage {storage} is used, but not alive")
                case Mark() | StreamWait():
                    pass
        for position, entry in enumerate(self.storages):
            if entry.index != position or entry.nbytes < 0:
                raise GraphError(f"storage {position}: index {entry.index}, {entry.nbytes} bytes")
        return self
