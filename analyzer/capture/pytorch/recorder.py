"""Watches a step run on meta tensors and writes down every operator, and every storage's birth and death.

1. Each ATen call that touches device memory becomes an `Operator`; calls among host tensors only are left out, and
   what they make is in host memory too.
2. A storage is born where it first appears and dies when Python and autograd drop their last reference to it: a weak
   reference on the storage object tells when, exactly as the CUDA tensor would have been freed.
3. Gradients that meet at a tensor are summed in place where autograd would on CUDA (`fan_in.py`).
4. Composite operators that CUDA implements differently are replaced (`cuda/decisions.py`); operators without a usable
   meta kernel have one in `cuda/results.py`.
5. Module path and source line: forward operators get them from the Python stack, backward operators from the forward
   operator that made their autograd node (equal sequence numbers).

6. Every operator runs on the stream that is current (`cuda/streams.py`). A storage that is resized is another one from
   then on.

7. A subclass that unwraps itself (`DTensor`) does so first: the operators on what is inside are recorded. So it is with
   sparse tensors, which consist of indices and values (`cuda/sparse.py`).
8. Where a size is only bounded, so is what is made from it of that size.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map

from analyzer.capture.pytorch import unknown_sizes
from analyzer.capture.pytorch.asked_sizes import Asked
from analyzer.capture.pytorch.assumptions import Assumptions
from analyzer.capture.pytorch.calls import Call
from analyzer.capture.pytorch.cuda import sparse
from analyzer.capture.pytorch.cuda.alike import Alike
from analyzer.capture.pytorch.cuda.cudnn import CONVOLUTIONS, settings_of
from analyzer.capture.pytorch.cuda.decisions import FUSED
from analyzer.capture.pytorch.cuda.detection import CHOICES as DETECTION_CHOICES
from analyzer.capture.pytorch.cuda.indices import INDEXING, on_device
from analyzer.capture.pytorch.cuda.memory import Memory, out_of_memory
from analyzer.capture.pytorch.cuda.quantized import CHOICES as LIBRARY_CHOICES
from analyzer.capture.pytorch.cuda.results import BY_SHAPES_ALONE, META_KERNELS
from analyzer.capture.pytorch.cuda.streams import Current
from analyzer.capture.pytorch.data_branches import assumed, everybody, falls, longest
from analyzer.capture.pytorch.effort import SMALL_ELEMENTS, Effort
from analyzer.capture.pytorch.failing import FailedCall
from analyzer.capture.pytorch.fan_in import FanIn
from analyzer.capture.pytorch.known_values import DECIDING, FROM_NOTHING, KnownValues
from analyzer.capture.pytorch.meta_cache import MetaCache
from analyzer.errors import CaptureError
from analyzer.graph import (
    Argument,
    Birth,
    Category,
    Death,
    Graph,
    Mark,
    Moment,
    Operator,
    Phase,
    Run,
    Storage,
    TensorMeta,
    Use,
    Wait,
)

aten = torch.ops.aten
_NUMBERS = (float, int, bool, complex)
META, _CPU = torch.device("meta"), torch.device("cpu")
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_LIBRARY_FOLDERS = (
    f"{Path(torch.__file__).parent}/",
    f"{Path(__file__).parents[2]}/",
    "<frozen",
    "<string>",
)
_LARGEST_STAND_IN = 1 << 22
# Elements of the largest tensor without a known value that is a real one, of stand-ins, once it is on the host.
_SMALL = 1 << 16
ZEROS = (
    "values of CUDA tensors that are copied to the host or saved are zeros in what the program makes of them"
)
BY_NUMBERS = (
    "what the program decides by its numbers is decided here by those a CPU computes, with random numbers of its own: another run "
    "may decide otherwise"
)
_STEP_FILE = str(Path(__file__).with_name("step.py"))
_DTYPE_NAMES = {value: str(value)[6:] for value in vars(torch).values() if isinstance(value, torch.dtype)}
_NO_KWARGS: dict[str, Argument] = {}
_NO_SETTINGS: frozenset[str] = frozenset()
_NONE_WRITTEN: list[torch.Tensor] = []
# Arguments that are kept as they are; of a subclass too, but that is asked later.
_PLAIN = frozenset({type(None), bool, int, float, str, complex})


@dataclass(slots=True)
class _Growing:
    """A storage being recorded; frozen into a `Storage` by `finish`."""

    nbytes: int
    category: Category
    name: str
    on_device: bool
    phase: Phase
    read_in_backward: bool = False
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class Position:
    """How much there was of everything. events: of the memory's; 0 without one."""

    operators: int
    storages: int
    moments: int
    events: int


class _Schema:
    """What the recorder needs of an operator's schema, computed once."""

    __slots__ = (
        "choice",
        "composite",
        "convolves",
        "decides",
        "fills",
        "from_nothing",
        "func",
        "kernel",
        "mutable",
        "name",
        "names",
        "remembered",
        "sized_by_values",
        "skip",
        "writes",
    )

    def __init__(self, func: Any, choice: Callable[..., Any] | None) -> None:
        schema = func._schema
        self.func = func  # which stays alive: it is looked up by its identity
        self.choice = choice
        self.kernel = META_KERNELS.get(func)
        self.from_nothing = func in FROM_NOTHING
        self.decides = func in DECIDING or func is aten._amp_foreach_non_finite_check_and_unscale_.default
        self.mutable = schema.is_mutable
        self.convolves = func in CONVOLUTIONS
        self.name = schema.name + (f".{schema.overload_name}" if schema.overload_name else ".default")
        self.names = tuple(sys.intern(argument.name) for argument in schema.arguments)
        self.writes = [
            i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        self.sized_by_values = (
            torch.Tag.dynamic_output_shape in func.tags or self.name in unknown_sizes.UNTAGGED
        )
        # New results, told by the arguments alone (`meta_cache.py`).
        self.remembered = (
            func.namespace == "aten"
            and (self.kernel is None or func in BY_SHAPES_ALONE)
            and not schema.is_mutable
            and not self.sized_by_values
            and all(returned.alias_info is None for returned in schema.returns)
        )
        self.skip = schema.name.startswith("profiler::")
        # Random numbers written into its first argument, which is the result: PyTorch would decompose some of these for fake
        # tensors (`uniform_`, `_decomp/decompositions.py`) into operators that a build without CUDA has not.
        self.fills = torch.Tag.nondeterministic_seeded in func.tags and self.writes == [0]
        # An operator that also has a kernel of its own for a device (`silu_backward`), or here (`_fused_rms_norm`), is one
        # kernel on CUDA too.
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
        name = func.name()
        self.composite = has_kernel(name, "CompositeImplicitAutograd") and not (
            has_kernel(name, "CPU") or has_kernel(name, "Meta")
        )


class _Here(threading.local):
    """What each thread knows for itself. modules: the paths of those that run; callers: the user's line that each was called
    from, once it is asked for; handle: its number, once it has one; in_order: when it runs is decided here (`loading.py`)."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.callers: list[str | None] = []
        self.handle: int | None = None
        self.in_order = False


def _tensors_again(func: Any, args: Any) -> tuple[Any, ...]:
    """Arguments, with tensors where the operator wants them: TorchScript's constants come as plain numbers, which few operators take
    (`should_allow_numbers_as_tensors`, `torch/csrc/utils/python_arg_parser.cpp`)."""
    wanted = (isinstance(argument.type, torch.TensorType) for argument in func._schema.arguments)
    return tuple(
        torch.scalar_tensor(value, dtype=torch.float64 if type(value) is float else None)
        if tensor and type(value) in _NUMBERS
        else value
        for value, tensor in zip(args, wanted, strict=False)
    )


class Recorder(TorchDispatchMode):
    """The dispatch mode of the module docstring; `finish` returns the `Graph`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Not wrapped for PyTorch's compiler, which the wrapper would import: nothing is compiled here."""
        return False

    def __init__(self, choices: dict[Any, Callable[..., Any]], memory: Memory | None, alike: Alike) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory, self.alike = memory, alike
        self.gpu = torch.device("cuda", 0)  # the one there is for the program
        self.gpu_count = 1  # what it is told there is; others belong to other ranks
        self.stands_in = False  # unknown values get a stand-in instead of being an error
        self.calling: CodeType | None = None  # what calls each module, and puts it among `here.modules`
        self.phases: Callable[[], Phase] | None = None  # who tells the phase, where no step does
        self.phase = Phase.SETUP
        self.step = 0
        self.here = _Here()
        self.handle: Callable[[str], int] = lambda _: (
            0
        )  # of the libraries, which this thread uses for an operator
        self.several_threads = False
        self._one_at_a_time = threading.RLock()
        self.streams = Current()
        self._shared = False  # a storage is used by another stream than its own
        self.failed: tuple[int, str] = (0, "")  # number of the exception, innermost module
        self.failed_call: FailedCall | None = None  # the last operator that raised
        self._choices = {**choices, **FUSED, **sparse.CHOICES}
        self._choices_by_name: dict[str, Callable[..., Any]] = {**LIBRARY_CHOICES, **DETECTION_CHOICES}
        self._schemas: dict[int, _Schema] = {}
        self.storages: list[_Growing] = []
        self.operators: list[Operator] = []
        self.program: list[Moment] = []
        self._live: dict[int, int] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self.assumptions = Assumptions()
        self.asked: Asked | None = None  # who listens to what is asked about sizes
        self._falling = itertools.count(1)
        self._known = KnownValues()
        self._results = MetaCache()
        self._nowhere: set[int] = set()
        self._making_nowhere = False
        self._sparse = False  # the program has made a sparse tensor
        self._bounds: set[int] = set()  # sizes that are bounds of what only data tells
        self._bounded = False  # what is made now may be of such a size
        self._fan_in = FanIn()
        self._origin: dict[int, tuple[str, str]] = {}
        self._segment_node = 0
        # By the code's identity, which is cheaper than its hash: what `_user_name` says, and the code, which stays alive.
        self._user_code: dict[int, tuple[str | None, CodeType]] = {}
        self._closed = False
        self.notes: list[str] = []
        self.caveats: list[str] = []
        self.stood_in = False  # the program has read a value that stands in for a real one
        self._library_folders: tuple[str, ...] = _LIBRARY_FOLDERS
        if memory is not None:
            memory.attach(self)

    def whole_program(self, folders: tuple[str, ...], alone: bool = True) -> None:
        """A program is followed that asks for values; lines in these folders are a library's too, not the user's.

        alone: it is the only rank.
        """
        self.stands_in = True
        self._known.effort = Effort() if alone else Effort(SMALL_ELEMENTS)
        self._library_folders = (*_LIBRARY_FOLDERS, *folders)

    @property
    def modules(self) -> list[str]:
        """Paths of the modules that run in this thread, the innermost last."""
        return self.here.modules

    # -- what the step tells -------------------------------------------------------------------------------------

    def mark(self, name: str) -> None:
        """A named event is over."""
        self.happened(Mark(name))

    def happened(self, moment: Moment) -> None:
        """The next moment of the program. Raises torch.OutOfMemoryError where the device has no room for it."""
        self.program.append(moment)
        if self.memory is not None:
            try:
                self.memory.follow(moment)
            except Exception as error:
                if not hasattr(error, "requested"):
                    raise
                raise out_of_memory(error, self.memory) from None

    def choose(
        self, choices: Mapping[Any, Callable[..., Any]], by_name: Mapping[str, Callable[..., Any]]
    ) -> None:
        """These operators do what is given instead of themselves; it calls `record` where the operator counts as one.

        by_name: those of libraries that may not be imported yet ("namespace::name.overload").
        """
        self._choices.update(choices)
        self._choices_by_name.update(by_name)
        self._schemas.clear()

    def record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """An operator has run; values it changed have been told already."""
        self._record(func, self._schema(func), args, kwargs, out, values=False)

    def plain(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operator with a choice of its own does without it."""
        with _disable_current_modes():
            out = func(*args, **kwargs)
        self._record(func, self._schema(func), args, kwargs, out)
        return out

    def known(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The tensor's value, where it is known; of a sparse one only its parts' are."""
        return None if sparse.has_parts(tensor) else self._known.twin(tensor)

    def filled(self, parts: list[torch.Tensor]) -> None:
        """All of these are about to be written with known values."""
        self._known.filled(parts)

    def forget(self, tensor: torch.Tensor) -> None:
        """The tensor's value is something nobody knows from now on."""
        if tensor.device.type == "meta":
            self._known.forget(tensor.untyped_storage()._cdata)

    def wait(self, stream: int | None = None, by: int | None = None) -> None:
        """The host, or the stream `by`, waits for a stream, or for all of them."""
        if self._shared:
            self.happened(Wait(stream, by))

    def _waits_here(self) -> None:
        """The host waits for the stream that is current: it reads, or copies without `non_blocking`."""
        if self._shared:
            self.wait(self.streams.now())

    def use(self, tensor: torch.Tensor, stream: int) -> None:
        """Another stream uses the tensor."""
        index = self._live.get(tensor.untyped_storage()._cdata)
        if index is not None and self.storages[index].on_device:
            self._shared = True
            self.happened(Use(index, stream))

    def host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Register a meta tensor that stands for one in host memory; returns it."""
        self._index(tensor, "host tensor", Category.INPUT, on_device=False)
        return tensor

    def in_host_memory(self, tensor: torch.Tensor) -> bool:
        """Whether a meta tensor stands for one in host memory."""
        index = self._live.get(next(inside(tensor)).untyped_storage()._cdata)
        return index is not None and not self.storages[index].on_device

    def place_of(self, storage: Any) -> bool | None:
        """Whether a storage without memory stands for one on the device; None: the program itself made it a meta tensor's."""
        index = self._live.get(storage._cdata)
        return None if index is None or index in self._nowhere else self.storages[index].on_device

    def nowhere(self, tensor: torch.Tensor) -> bool:
        """Whether the program itself made it a meta tensor: it has no memory anywhere."""
        return self._live.get(next(inside(tensor)).untyped_storage()._cdata) in self._nowhere

    @contextlib.contextmanager
    def making_nowhere(self) -> Iterator[None]:
        """While open, what operators make are the program's own meta tensors."""
        before, self._making_nowhere = self._making_nowhere, True
        try:
            yield
        finally:
            self._making_nowhere = before

    def on_host(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in host memory, with values or without."""
        return tensor.device.type != "meta" or self.in_host_memory(tensor)

    def label(self, tensor: torch.Tensor, name: str, category: Category) -> None:
        """Name a storage and say what it is for."""
        for part in inside(tensor):
            storage = self.storages[self._index(part, name, category)]
            if storage.category is not Category.PARAMETER:
                storage.category = category
            if not storage.name or storage.name.startswith("aten::"):
                storage.name = name

    def to_device(
        self, tensor: torch.Tensor, dtype: Any = None, layout: Any = None, waits: bool = True
    ) -> torch.Tensor:
        """The host-to-device copy of a tensor, same strides unless a layout is asked for; the host `waits` until it is there.

        A copy into another layout goes through a contiguous tensor on the device (`copy_requires_temporaries`,
        `aten/src/ATen/native/cuda/Copy.cu`); the result is made first.
        """
        if layout not in (None, torch.preserve_format) and not tensor.is_contiguous(memory_format=layout):
            result = aten.empty.memory_format(
                tensor.shape, dtype=dtype or tensor.dtype, device=META, memory_format=layout
            )
            return aten.copy_.default(result, self.to_device(tensor, dtype, waits=waits))  # type: ignore[no-any-return]
        kwargs = {
            "device": META,
            **({"dtype": dtype} if dtype else {}),
            **({"memory_format": layout} if layout else {}),
        }
        copy: torch.Tensor = aten._to_copy.default(tensor, **kwargs)
        if waits:
            self._waits_here()
        return copy

    def to_host(self, tensor: torch.Tensor, dtype: Any = None) -> torch.Tensor:
        """The device-to-host copy: a real tensor where the value is known, else a meta tensor in host memory."""
        if sparse.has_parts(tensor):
            return sparse.to_host(self, tensor, dtype)
        self._gathered(tensor, dtype in (None, tensor.dtype))
        self._waits_here()
        value = self._known.twin(tensor)
        if value is None and self.stands_in and tensor.numel() <= _SMALL:
            value = self.host_value(tensor.detach())
        if value is not None:
            return value.clone() if dtype is None else value.to(dtype, copy=True)
        with _disable_current_modes():
            copy = torch.empty_like(tensor.detach(), dtype=dtype or tensor.dtype)
        self._index(copy, "host copy", Category.ACTIVATION, on_device=False)
        return copy

    def _gathered(self, tensor: torch.Tensor, same: bool) -> None:
        """A copy to the host that is no plain copy of memory reads from a contiguous tensor on the device, made for it
        (`copy_requires_temporaries`, `aten/src/ATen/native/cuda/Copy.cu`). same: the copy has its type and layout.

        Types are converted on the host, as in every copy that waits.
        """
        if tensor.is_contiguous() or tensor.device.type != "meta" or _unwraps_itself(type(tensor)):
            return
        with _disable_current_modes():
            # Without gaps and overlaps a tensor like it has its strides.
            if same and torch.empty_like(tensor.detach()).stride() == tensor.stride():
                return
            if self.in_host_memory(tensor):
                return
            made = torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
        self.record(aten.clone.default, (tensor.detach(),), {"memory_format": torch.contiguous_format}, made)

    def host_value(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor's value. Raises CaptureError naming the source line if it cannot be known."""
        self._waits_here()
        value = self._known.twin(tensor)
        if value is not None and tensor.dtype is torch.bool:
            self._decides(tensor)
        if value is None and (said := self._said()) is not None:
            return torch.full(tensor.shape, said, dtype=tensor.dtype, device="cpu")
        if value is None and self.stands_in:
            return self._stand_in(tensor)
        if value is None:
            raise self._unknown(
                f"needs the value of a tensor of shape {tuple(tensor.shape)} and type {_DTYPE_NAMES[tensor.dtype]}, "
                "which is not known before the model runs"
            )
        return value

    def host_array(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor's value for an array of it: many values nobody knows are zeros, in memory the operating system maps
        only where it is written to."""
        if not self.stands_in or tensor.numel() <= _LARGEST_STAND_IN or self._known.twin(tensor) is not None:
            return self.host_value(tensor)
        self.note(ZEROS)
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return torch.from_numpy(numpy.zeros(tensor.shape, dtype=str(tensor.dtype)[6:]))

    def where(self) -> str:
        """File and line of the user's code that runs; empty where none does."""
        return self._source()

    def learn(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """All of the tensor has been written with this value, a host tensor of its shape and type."""
        with _disable_current_modes():
            if tensor.device.type != "meta":
                tensor.copy_(value)
                return
            self._known.overwritten(tensor, value)
            twin = self._known.twin(tensor)
            if twin is not None:
                twin.copy_(value)

    def learn_flags(self, flags: torch.Tensor, value: bool) -> None:
        """These flags, which nobody can know, all have one value in a healthy run."""
        if flags.numel() <= _SMALL and self._known.twin(flags) is None:
            self.note("numbers are taken to be finite where the program asks whether they are")
            with _disable_current_modes():
                self._known.learn(
                    flags,
                    torch.empty_strided(flags.shape, flags.stride(), dtype=torch.bool, device="cpu").fill_(
                        value
                    ),
                )

    def _copied_to_host(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """A CUDA tensor copied into a real one: its value where that is known, zeros otherwise (saved files, metrics)."""
        value = self._known.twin(source)
        if value is not None:
            return target.copy_(value)
        self.note(ZEROS)
        return target.zero_()

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """A value for one only a real run has: ones; false for flags, which programs watch for what goes wrong or ends.

        Noted with its line. Raises CaptureError for tensors too large to make up.
        """
        if tensor.numel() > _LARGEST_STAND_IN:
            raise self._unknown(f"reads {tensor.numel():,} values only a real run has")
        flag = tensor.dtype is torch.bool
        self.stood_in = True
        self.note(
            f"{self._source() or 'the program'} reads a value only a real run has; {'false' if flag else 'one'} is assumed"
        )
        make = torch.zeros if flag else torch.ones
        return make(tensor.shape, dtype=tensor.dtype, device="cpu")

    def _unknown(self, what: str) -> CaptureError:
        """The error of code that depends on data."""
        inside = f" (in module {self.modules[-1]})" if self.modules and self.modules[-1] else ""
        return CaptureError(
            f"{self._source() or 'the model'} {what}{inside}",
            "make the branch independent of data, replace the value by a constant upper bound for the analysis, or say it: "
            f"--assume {self._source() or 'FILE.py:LINE'}=VALUE",
        )

    def _scalar(self, tensor: torch.Tensor) -> Any:
        """`item()`. An unknown float is taken for 1.0, and noted: floats scale values, integers and flags shape programs."""
        self._waits_here()
        if self._known.twin(tensor) is None and (said := self._said()) is not None:
            return torch.tensor(said, dtype=tensor.dtype, device="cpu").item()
        if self._known.twin(tensor) is None:
            if tensor.is_floating_point() and falls():
                self.note("the losses that L-BFGS reads are assumed to fall from step to step")
                return 1 / next(self._falling)
            if tensor.is_floating_point():
                self.stood_in = True
                self.note(
                    f"{self._source() or 'the optimizer'} reads a value only a real run has; 1.0 is assumed"
                )
                return 1.0
            length = longest()
            if length is not None:
                self.note("beam searches are assumed to go on to the longest length they may")
                return tensor.dtype is torch.bool or length
            branch = assumed() if tensor.dtype is torch.bool else None
            if branch is not None:
                self.note(branch[1])
                return branch[0]
        return self.host_value(tensor).item()

    def note(self, text: str) -> None:
        """Something the estimate's reader should know, said once."""
        if text not in self.notes:
            self.notes.append(text)

    def caveat(self, text: str) -> None:
        """What the figures are not of, said beside the verdict."""
        if text not in self.caveats:
            self.caveats.append(text)

    # -- what PyTorch tells --------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(_unwraps_itself, types)):
            return NotImplemented  # what it is made of comes here next
        if torch._C._get_dispatch_mode(_FAKE) is not None:
            # PyTorch asks fake tensors for a shape: nothing runs.
            return args[0] if self._schema(func).fills else func(*args, **(kwargs or {}))
        # In the backward pass nobody has left the torch-function mode before coming here.
        with torch._C.DisableTorchFunction():
            try:
                if not self.several_threads:
                    return self._called(func, args, kwargs or {})
                if self._closed:
                    raise SystemExit  # a daemon's thread that the program has outlived
                with self._one_at_a_time:
                    return self._called(func, args, kwargs or {})
            except Exception as error:
                if self.failed_call is None or self.failed_call.error != id(error):
                    self.failed_call = FailedCall.of(error, func, args, kwargs or {})
                raise

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        schema = self._schemas.get(id(func)) or self._schema(func)
        if schema.skip or not (_reaches_device(args, kwargs) or self._exchanges(schema)):
            if args and type(args[0]) in _NUMBERS:
                args = _tensors_again(func, args)
            return func(*args, **kwargs)
        if self.phases is not None:
            self.phase = self.phases()
        if schema.choice is not None:
            with self, self._standing_in():
                return schema.choice(*args, **kwargs)
        if schema.composite:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func is aten.copy_.default and _is_meta(args[1]) and self.on_host(args[0]):
            target, source = args[:2]
            self._gathered(source, source.dtype is target.dtype and source.stride() == target.stride())
            if target.device.type == "cpu" and (self.stands_in or self._known.twin(source) is not None):
                return self._copied_to_host(target, source)
        if (
            func is aten._to_copy.default
            and self.stands_in
            and kwargs.get("device") == _CPU
            and _is_meta(args[0])
            and not self.in_host_memory(args[0])
        ):
            return self.to_host(args[0], kwargs.get("dtype"))
        if func is aten._local_scalar_dense.default:
            return self._scalar(args[0])
        if func in INDEXING and not self.on_host(args[0]):
            with self:
                func, args = on_device(self, func, args)
            schema = self._schema(func)
        if func in sparse.MAKERS or ((self._sparse or func is aten._to_copy.default) and sparse.among(args)):
            self._sparse = True
            with self._standing_in():
                return sparse.call(self, func, args, kwargs)
        if self.phase is Phase.BACKWARD:
            func, args = self._fan_in.on_cuda(func, args)
            schema = self._schema(func)
        if "device" in kwargs and kwargs["device"] is not None and kwargs["device"].type == "cuda":
            kwargs = {**kwargs, "device": META}
        try:
            out = None
            if schema.sized_by_values:
                out = self._sized(Call(func, args, kwargs))
            if out is None:
                kernel = schema.kernel or func
                if schema.remembered:
                    out = self._results.call(kernel, args, kwargs)
                else:
                    out = kernel(*args, **kwargs)
        except RuntimeError as error:  # NotImplementedError is one
            if "expected device" in str(error) and (mixed := self._on_host(args, kwargs)) is not None:
                out = func(*mixed[0], **mixed[1])
            elif not isinstance(error, NotImplementedError) and "no fake impl" not in str(error):
                raise
            else:
                out = self._without_meta_kernel(func, args, kwargs)
        self._record(func, schema, args, kwargs, out)
        return out

    @contextlib.contextmanager
    def _standing_in(self) -> Iterator[None]:
        """While open, what is left empty is the result of an operator, which nobody has computed."""
        before, self._known.standing_in = self._known.standing_in, True
        try:
            yield
        finally:
            self._known.standing_in = before

    @staticmethod
    def _exchanges(schema: _Schema) -> bool:
        """Whether an operator exchanges messages with other ranks, which host tensors may carry too."""
        return schema.choice is not None and schema.func.namespace == "c10d"

    def _on_host(self, args: Any, kwargs: Any) -> Any:
        """The arguments of a call among host tensors, none of them real any more; None where one is on the device."""
        tensors = [t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor)]
        if not all(map(self.on_host, tensors)):
            return None
        return tree_map(
            lambda t: torch.empty_like(t, device=META) if isinstance(t, torch.Tensor) else t, (args, kwargs)
        )

    def _without_meta_kernel(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Results of an operator that cannot say their shapes: each as large as its largest input, and noted.

        Raises CaptureError for results whose shapes depend on data, NotImplementedError where there is nothing to go by.
        """
        if torch.Tag.dynamic_output_shape in func.tags:
            raise self._unknown(
                f"calls {func.name()}, whose result's shape depends on data not known before the model runs"
            )
        inputs = [
            t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor) and t.device.type == "meta"
        ]
        returns = func._schema.returns
        plain = all(isinstance(r.type, torch.TensorType) for r in returns)
        if func.namespace == "aten" or not inputs or not plain:
            raise NotImplementedError(f"{func} cannot be followed without data")
        largest = max(inputs, key=lambda t: t.numel() * t.element_size())
        self.note(
            f"{func.name()} has no meta kernel: each result is taken to be as large as its largest input"
        )
        results = [torch.empty_like(largest) for _ in returns]
        return results[0] if len(results) == 1 else tuple(results)

    def _of_unknown_size(self, call: Call) -> Any:
        """The results of an operator whose size depends on data, at the size that was said, else the largest; noted."""
        if everybody() and (count := unknown_sizes.most(call)) is not None:
            return unknown_sizes.result(call, count)
        most = unknown_sizes.most(call, self._known.at_most) if self.stands_in else None
        count = self.how_many(f"results {call.name.partition('::')[2]} has", most)
        if count is None:
            if unknown_sizes.unbounded(call):
                raise self._unknown(
                    f"calls {call.func.name()}, whose result's size depends on data nobody has yet"
                )
            return None
        return unknown_sizes.result(call, count)

    def _sized(self, call: Call) -> Any:
        """The results of an operator whose size depends on values: those that are known, else those of unknown size."""
        out = self._known.sized(call)
        if out is None:
            return self._of_unknown_size(call)
        for value in tree_iter(call.args):
            if isinstance(value, torch.Tensor):
                self._decides(value)
        return out

    def _decides(self, tensor: torch.Tensor) -> None:
        """The program, or a size, follows from this value, which is known."""
        if self._known.asked(tensor):
            self.note(BY_NUMBERS)

    def how_many(self, what: str, most: int | None, counted: str = "at its bound") -> int | None:
        """How many there are of what only data tells: what was said, else the most there can be, which is noted."""
        said = self._said()
        if said is not None:
            return int(said)
        if most is not None:
            self.note(
                f"{self._source() or 'the program'}: how many {what} depends on data; "
                f"counted {counted} (--assume {self._source() or 'FILE.py:LINE'}=COUNT says another)"
            )
            self._bounds.add(most)
            self._bounded = True
        return most

    def _said(self) -> bool | int | float | None:
        """What the user assumes for the line that is running."""
        if not self.assumptions:
            return None
        frame = self._user_frame()
        return None if frame is None else self.assumptions.at(frame.f_code.co_filename, frame.f_lineno)

    def _schema(self, func: Any) -> _Schema:
        schema = self._schemas.get(id(func))
        if schema is None:
            name = func._schema.name + f".{func._schema.overload_name or 'default'}"
            if name in self._choices_by_name:
                self._choices[func] = self._choices_by_name[name]
            schema = self._schemas[id(func)] = _Schema(func, self._choices.get(func))
        return schema

    def _record(
        self, func: Any, schema: _Schema, args: Any, kwargs: Any, out: Any, *, values: bool = True
    ) -> None:
        results = (
            [out]
            if isinstance(out, torch.Tensor)
            else [t for t in tree_iter(out) if t is None or isinstance(t, torch.Tensor)]
        )
        if any(t is not None and _unwraps_itself(type(t)) for t in results):
            results = [part for t in results if t is not None for part in inside(t)]
        written = (
            [
                t
                for i in schema.writes
                for t in self._tensors_at(func, args, kwargs, i)
                if t.device.type == "meta"
            ]
            if schema.writes
            else _NONE_WRITTEN
        )
        for tensor in written:
            self.resized(tensor.untyped_storage())
        inputs: list[torch.Tensor] = []
        seen: list[TensorMeta] = []
        arguments = tuple([self._argument(value, inputs, seen) for value in args])
        keywords = (
            {name: self._argument(value, inputs, seen) for name, value in kwargs.items()}
            if kwargs
            else _NO_KWARGS
        )
        if self._making_nowhere:
            self._host_results(results, True)
            return
        storages = self.storages
        if (
            seen
            and not storages[seen[0].storage].on_device
            and "device" not in kwargs
            and not any(storages[meta.storage].on_device for meta in seen)
        ):
            nowhere = any(t.device.type == "meta" and self.nowhere(t) for t in inputs)
            self._host_results(results, nowhere)
            return
        if values and (self._known or not inputs or schema.from_nothing):
            tensors = [t for t in results if t is not None and t.device.type == "meta"]
            self._follow(schema, args, kwargs, inputs, tensors, written)
        if self._bounds and not self._bounded:
            self._bounded = any(self._is_bounded(tensor) for tensor in inputs)
        module, source = self._place()
        outputs = tuple(
            [None if t is None or t.device.type != "meta" else self._meta(t, schema.name) for t in results]
        )
        operator = Operator(
            len(self.operators),
            schema.name,
            arguments,
            outputs,
            keywords,
            tuple([self._live[t.untyped_storage()._cdata] for t in written]) if written else (),
            self.phase,
            self.step,
            module,
            source,
            stream=self.streams.now(),
            settings=settings_of(func) if schema.convolves else _NO_SETTINGS,
            handle=self.handle(schema.name) if self.several_threads else 0,
            names=schema.names,
        )
        self._bounded = False
        self.operators.append(operator)
        self.happened(Run(operator.index))

    def _is_bounded(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in memory whose size is only bounded."""
        index = self._live.get(tensor.untyped_storage()._cdata)
        return index is not None and self.storages[index].bounded

    def _sized_by_bound(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor that is being made has a size in its shape that is a bound, or a multiple of one."""
        return self._bounded and any(
            size and size % bound == 0 for size in tensor.shape for bound in self._bounds if bound > 1
        )

    def _host_results(self, results: Any, nowhere: bool) -> None:
        for result in results:
            if result is not None and result.device.type == "meta":
                index = self._index(result, "host tensor", _CATEGORY[self.phase], on_device=False)
                if nowhere:
                    self._nowhere.add(index)

    def _follow(
        self, schema: _Schema, args: Any, kwargs: Any, inputs: Any, results: Any, written: Any
    ) -> None:
        func = schema.func
        if not (schema.from_nothing or schema.decides) and self._known.lacks(inputs):
            # What an unknown value goes into is unknown.
            for tensor in written or (results if schema.mutable else ()):
                self._known.forget(tensor.untyped_storage()._cdata)
            return
        if func is aten._amp_foreach_non_finite_check_and_unscale_.default:
            for gradient in args[0]:  # taken to be finite: the optimizer's step runs
                self.forget(gradient)
            return
        self._known.generating(self.phase is Phase.GENERATION)
        if func is aten.copy_.default and written:
            self._known.overwritten(args[0], args[1])
        if written and any(self._known.twin(t) is None for t in inputs):
            for tensor in written:
                self._known.forget(tensor.untyped_storage()._cdata)
            return
        self._known.follow(func, args, kwargs, inputs, results, written)

    @staticmethod
    def _tensors_at(func: Any, args: Any, kwargs: Any, position: int) -> list[torch.Tensor]:
        value = args[position] if position < len(args) else kwargs.get(func._schema.arguments[position].name)
        return [t for t in tree_iter(value) if isinstance(t, torch.Tensor)]

    # -- storages ------------------------------------------------------------------------------------------------

    def _index(
        self, tensor: torch.Tensor, name: str, category: Category, on_device: bool = True, born: bool = False
    ) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        index = self._live.get(key)
        if index is not None:
            return index
        on_device = on_device and tensor.device.type == "meta"
        growing = _Growing(
            storage.nbytes(), category, name, on_device, self.phase, bounded=self._sized_by_bound(tensor)
        )
        index = self._begin(key, growing, born)

        def died(reference: Any, key: int = key) -> None:
            if self._closed or self._references.get(key) is not reference:
                return
            del self._references[key]
            self._known.forget(key)
            self.happened(Death(self._live.pop(key)))

        self._references[key] = weakref.ref(storage, died)
        return index

    def _begin(self, key: int, growing: _Growing, born: bool = False) -> int:
        """The memory of a storage begins; its number. born: an operator that is recorded next makes it."""
        index = self._live[key] = len(self.storages)
        self.storages.append(growing)
        if not born:
            self.happened(Birth(index, self.streams.now()))
        return index

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage has another size now: new memory is taken, then the old given back (`cuda/Resize.cpp`)."""
        key = storage._cdata
        index = self._live.get(key)
        if index is None or storage.nbytes() == self.storages[index].nbytes:
            return
        self._known.resized(key, storage.nbytes())
        self._begin(key, replace(self.storages[index], nbytes=storage.nbytes()))
        self.happened(Death(index))

    def _meta(self, tensor: torch.Tensor, name: str, born: bool = True) -> TensorMeta:
        index = self._live.get(tensor.untyped_storage()._cdata)
        if index is None:
            index = self._index(tensor, name, _CATEGORY[self.phase], born=born)
        elif self.phase is Phase.BACKWARD and not born:
            self.storages[index].read_in_backward = True
        return TensorMeta(
            index,
            tuple(tensor.shape),
            tensor.stride(),
            _DTYPE_NAMES[tensor.dtype],
            int(tensor.storage_offset()),
        )

    def _argument(self, value: Any, found: list[torch.Tensor], seen: list[TensorMeta]) -> Argument:
        """An argument as the operator keeps it. found, seen: the tensors so far, and what is kept of them."""
        if type(value) in _PLAIN:
            return value  # type: ignore[no-any-return]
        if isinstance(value, torch.Tensor):
            found.append(value)
            meta = self._meta(value, "" if value.is_meta else "host tensor", born=False)
            seen.append(meta)
            return meta
        if isinstance(value, (bool, int, float, str, complex)):
            return value
        if isinstance(value, (list, tuple)):
            return tuple([self._argument(part, found, seen) for part in value])
        if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):  # whose text is its contents
            return type(value).__name__
        return str(value)

    # -- where an operator comes from ----------------------------------------------------------------------------

    def _place(self) -> tuple[str, str]:
        if self.phase is Phase.BACKWARD and not self.modules:  # no checkpointed module that runs again
            node = torch._C._current_autograd_node()
            if node is not None:
                known = self._origin.get(node._sequence_nr())
                if known is not None:
                    return known
        place = (self.modules[-1] if self.modules else "", self._source())
        if torch.is_grad_enabled():
            # Any node this operator belongs to has been made just before the call arrives here.
            sequence = torch._C._autograd._get_sequence_nr() - 1
            if (
                sequence not in self._origin
            ):  # else the node was made by an operator before this one, on its stream
                self._origin[sequence] = place
                self.streams.made(sequence)
        return place

    def is_library(self, filename: str) -> bool:
        """Whether a file is PyTorch's or this project's, rather than the user's."""
        return filename.startswith(self._library_folders)

    def _source(self) -> str:
        """The user's line that runs; module calls remember the one they were made from."""
        frame: FrameType | None = sys._getframe(1)
        known, callers = self._user_code, self.here.callers
        depth, source = len(callers), ""
        while frame is not None:
            code = frame.f_code
            told = known.get(id(code))
            if told is None:
                told = known[id(code)] = (self._user_name(code.co_filename), code)
            if told[0]:
                source = f"{told[0]}:{frame.f_lineno}"
                break
            if told[0] is None:
                break
            if code is self.calling:
                depth -= 1
                if (caller := callers[depth]) is not None:
                    source = caller
                    break
            frame = frame.f_back
        for outer in range(depth, len(callers)):
            callers[outer] = source
        return source

    def _user_frame(self) -> FrameType | None:
        """The innermost frame that runs the user's code."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = self._user_name(frame.f_code.co_filename)
            if name:
                return frame
            if name is None:
                break
            frame = frame.f_back
        return None

    def _user_name(self, filename: str) -> str | None:
        """A file's name if it is the user's, "" if it is a library's, None where whoever asked for the analysis begins."""
        if filename == _STEP_FILE:
            return None
        return "" if filename.startswith(self._library_folders) else Path(filename).name

    # -- what repeats --------------------------------------------------------------------------------------------

    def alive(self) -> Iterable[int]:
        """Every storage that lives now."""
        return self._live.values()

    def position(self) -> Position:
        """How much there is of everything now."""
        events = 0 if self.memory is None else self.memory.position
        return Position(len(self.operators), len(self.storages), len(self.program), events)

    def cut(self, position: Position, names: Mapping[int, int]) -> None:
        """Forget what was recorded since; storages alive now are known by other numbers from then on."""
        for key, storage in self._live.items():
            if storage in names:
                self._live[key] = names[storage]
        del self.operators[position.operators :], self.storages[position.storages :]
        del self.program[position.moments :]

    def segment_over(self) -> None:
        """Nodes of autograd made before the last segment are taken to be gone: where they came from is forgotten."""
        first, self._segment_node = self._segment_node, torch._C._autograd._get_sequence_nr()
        self._origin = {node: place for node, place in self._origin.items() if node >= first}

    # -- the result ----------------------------------------------------------------------------------------------

    def finish(self, batch: int | None) -> Graph:
        """Stop recording; the frozen, checked graph. Storages alive now stay alive in it."""
        self._closed = True
        self._references.clear()
        storages = []
        for index, growing in enumerate(self.storages):
            saved = growing.read_in_backward and growing.phase in (Phase.FORWARD, Phase.LOSS)
            category = growing.category
            if saved and category is Category.ACTIVATION:
                category = Category.SAVED
            storages.append(
                Storage(
                    index, growing.nbytes, category, growing.name, saved, growing.on_device, growing.bounded
                )
            )
        return Graph(
            framework="pytorch",
            storages=tuple(storages),
            operators=tuple(self.operators),
            program=tuple(self.program),
            batch=batch,
            notes=tuple(self.notes),
            questions=() if self.asked is None else tuple(self.asked.questions),
            alike=self.alike.capabilities,
        ).check()


def _reaches_device(args: Any, kwargs: Any) -> bool:
    """Whether a call has to do with the pretended device: by a tensor among its arguments, or the device it names."""
    for value in args:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                return True
        elif isinstance(value, (list, tuple)) and any(_is_meta(part) for part in value):
            return True
    if not kwargs:
        return False
    device = kwargs.get("device")
    return (device is not None and device.type in ("cuda", "meta")) or _reaches_device(
        tuple(kwargs.values()), _NO_KWARGS
    )


@functools.cache
def _unwraps_itself(kind: type) -> bool:
    """Whether tensors of this type are wrappers that say what operators do to what they wrap."""
    return hasattr(kind, "__tensor_flatten__")


def inside(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold a tensor's memory: itself, or those a wrapper is made of (a rank's shard of a `DTensor`), or a
    sparse one's indices and values."""
    if sparse.has_parts(tensor):
        yield from sparse.all_parts(tensor)
        return
    if not _unwraps_itself(type(tensor)):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
        part = getattr(tensor, name)
        if isinstance(part, torch.Tensor):
            yield from inside(part)


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_meta


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
