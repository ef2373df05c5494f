"""Host memory while a whole program runs: small tensors are real, large ones have no memory behind them.

1. A tensor made on the CPU with at least `LARGE_BYTES` becomes a meta tensor that the recorder knows to be in
   host memory: a model of 7 billion parameters made there needs none of it here. Small ones keep their
   values.
2. A real tensor whose `data` becomes a CUDA tensor (`module.to("cuda")`) stays the same Python object, as it
   does in a CUDA build: its implementation is swapped.
3. One without memory that was filled (`torch.zeros`, `ones`, `rand`, `randn`) becomes real, up to
   `REAL_BYTES`, where the program first takes or writes single rows or elements of it (`x[i]`, `x[i, 0, a] =
   1`), as programs do that make or read their samples one by one, or assigns a number to a part, or a
   function reads all of it for a few numbers or for zeros (`READERS`): how many there are decides the size of
   a sparse matrix. So does one of a single dimension that is computed with, which may become a sparse
   tensor's values, and one that is multiplied by a real mask. An operator on a real host tensor is followed
   by nobody, and costs what it costs.
4. Where gradients are followed through a call of tensors with and without memory, all go without: what real
   ones are worth is lost from there on, and the gradients they get are zeros.
5. Pinned memory is host memory. Other processes have all their tensors real (`workers.py`).
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map

from analyzer.capture.pytorch.device.host_draws import HostDraws, even_numbers, normal_numbers
from analyzer.capture.pytorch.device.workers import WorkerTensors

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.capture.pytorch.recording.storages import Storages

LARGE_BYTES = 1 << 20
REAL_BYTES = 1 << 28
_META = torch.device("meta")
_PINNED = "_analyzer_pinned"  # how a tensor remembers it
# Functions that make a tensor of the size they are given; the type of `torch.full` would depend on its value.
_FILLED = (torch.zeros, torch.ones, torch.rand, torch.randn)
SIZED = frozenset({torch.empty, *_FILLED})
# Functions that read every element: for a few numbers a program may check, to compare it, after which some of
# it is zero, or to make a sparse tensor.
_READING = "sum mean prod max min amax amin any all std var norm equal allclose"
_COMPARING = "lt le gt ge eq ne abs relu bernoulli nonzero count_nonzero"
_OPERATORS = "__lt__ __le__ __gt__ __ge__ __eq__ __ne__"
_LAYOUTS = "coo csr csc bsr bsc compressed"
MAKING_SPARSE = frozenset(getattr(torch, f"sparse_{layout}_tensor") for layout in _LAYOUTS.split())
READERS = frozenset(
    {
        *(
            getattr(where, name)
            for where in (torch, torch.Tensor)
            for name in (*_READING.split(), *_COMPARING.split())
        ),
        *(getattr(torch.Tensor, name) for name in _OPERATORS.split()),
        torch.Tensor.to_sparse,
        *(getattr(torch.Tensor, f"to_sparse_{layout}") for layout in ("csr", "csc", "bsr", "bsc")),
        *MAKING_SPARSE,
    }
)
_ARITHMETIC = "mul div add sub true_divide pow sqrt exp log neg reciprocal clone"
_OF_OPERATORS = "__mul__ __rmul__ __truediv__ __rtruediv__ __add__ __radd__ __sub__ __rsub__ __neg__ __pow__"
# Functions that compute with numbers, one by one.
COMPUTING = frozenset(
    {
        *(getattr(where, name) for where in (torch, torch.Tensor) for name in _ARITHMETIC.split()),
        *(getattr(torch.Tensor, name) for name in _OF_OPERATORS.split()),
    }
)
_DRAWN = {torch.rand: even_numbers, torch.randn: normal_numbers}


class HostMemory:
    """Which factories make large host tensors."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._process = os.getpid()
        self.draws = HostDraws()
        self.workers = WorkerTensors(recorder, self)
        # By the tensor's identity: the tensor, weakly, and what fills it. Numbers come from a generator
        # apart, so that the program's own are the same whenever they are drawn.
        self.untouched: dict[int, tuple[weakref.ref[torch.Tensor], Callable[..., torch.Tensor]]] = {}
        self._numbers = torch.Generator().manual_seed(0)
        self._room = REAL_BYTES

    def is_followed_process(self) -> bool:
        """Return whether this is the process that is followed."""
        return os.getpid() == self._process

    def make(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a large tensor of `func`, one of `SIZED`, without memory; None if it must be real."""
        shape = _shape(args, kwargs)
        if shape is None or not self.is_followed_process():
            return None
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        if math.prod(shape) * dtype.itemsize < LARGE_BYTES:
            return None
        plain = {
            name: value
            for name, value in kwargs.items()
            if name not in ("device", "pin_memory", "generator", "size")
        }
        with _disable_current_modes():
            tensor = torch.empty(shape, **{**plain, "device": _META, "requires_grad": False})
        self._recorder.storages.host(tensor)
        if func in _DRAWN:
            self.draws.take(_DRAWN[func](tensor), kwargs.get("generator"))
        if kwargs.get("requires_grad"):
            return tensor.requires_grad_()
        if func in _FILLED and tensor.layout is torch.strided:
            self._remember(tensor, func)
        return tensor

    def _remember(self, tensor: torch.Tensor, func: Callable[..., Any]) -> None:
        """Remember how an untouched host tensor was made, until it is freed."""
        key = id(tensor)

        def gone(reference: weakref.ref[torch.Tensor]) -> None:
            if self.untouched.get(key, (None,))[0] is reference:
                del self.untouched[key]

        self.untouched[key] = weakref.ref(tensor, gone), func

    def filled_with(self, tensor: torch.Tensor) -> Callable[..., torch.Tensor] | None:
        """Return what filled a tensor that nobody has written to since, None if that is not known."""
        reference, func = self.untouched.get(id(tensor), (None, None))
        return func if reference is not None and reference() is tensor and not tensor._version else None

    def read(self, values: Iterable[Any]) -> None:
        """Make tensors real, as `touched` does, which a function is about to read whole."""
        for value in values:
            if id(value) in self.untouched:
                self.touched(value, 0)

    def computed_with(self, values: tuple[Any, ...]) -> None:
        """Make tensors real that a function computes with: of one dimension, or beside a real mask."""
        for value in values:
            if id(value) in self.untouched and (value.dim() == 1 or any(map(_is_real_mask, values))):
                self.touched(value, 0)

    def bare(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the parts of a sparse tensor in host memory, none of them real where one is not."""
        bare = [value for value in values if isinstance(value, torch.Tensor) and value.is_meta]
        if not bare or not all(map(self._recorder.storages.in_host_memory, bare)):
            return values
        with _disable_current_modes():
            return tuple(
                self._recorder.storages.host(torch.empty_like(value, device=_META))
                if isinstance(value, torch.Tensor) and value.is_cpu
                else value
                for value in values
            )

    def touched(self, tensor: torch.Tensor, index: Any) -> bool:
        """Rows or elements of a tensor without memory are taken or written: whether it is a real one now."""
        place = self.untouched.pop(id(tensor), None)
        if place is None or place[0]() is not tensor or not self.is_followed_process():
            return False
        nbytes = tensor.numel() * tensor.element_size()
        if tensor._version or not (tensor.dim() == 1 or _single(index)) or nbytes > self._room:
            return False
        if torch._C._storage_Use_Count(tensor.untyped_storage()._cdata) > _ALONE:
            return False  # others look at its memory
        self._room -= nbytes
        func = place[1]
        drawn = {"generator": self._numbers} if func in _DRAWN else {}
        with _disable_current_modes():
            real = func(tensor.shape, dtype=tensor.dtype, **drawn)
        torch._C._swap_tensor_impl(tensor, real)
        weakref.finalize(tensor, self._give_back, nbytes)
        return True

    def _give_back(self, nbytes: int) -> None:
        """Count the room again of a real tensor that is gone."""
        self._room += nbytes

    def together(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call that gradients are followed through, none of them real where one in
        host memory is not; as they are where the call writes into its first one."""
        if not _mixed(args, kwargs) or _writes(func):
            return args, kwargs
        tensors = [value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor)]
        in_host_memory = self._recorder.storages.in_host_memory
        if not all(map(in_host_memory, filter(_is_bare, tensors))) or not any(
            t.requires_grad for t in tensors
        ):
            return args, kwargs

        def without(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not _is_filled(value):
                return value
            return _WithoutNumbers.apply(value, self._recorder.storages)  # type: ignore[no-untyped-call]

        return tree_map(without, args), tree_map(without, kwargs)


# A subclass has ways of its own, and a tracer's would write down what it is asked.
PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


def _is_real_mask(value: Any) -> bool:
    return type(value) is torch.Tensor and value.is_cpu and value.dtype is torch.bool


def _mixed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether there are both tensors without memory and real floating-point ones."""
    filled = bare = False
    for value in (*args, *kwargs.values()) if kwargs else args:
        for part in value if type(value) in (tuple, list) else (value,):
            if type(part) in PLAIN_TENSORS:
                bare = bare or _is_bare(part)
                filled = filled or _is_filled(part)
    return filled and bare


def _writes(func: Any) -> bool:
    """Return whether a function is one that writes into its first argument."""
    name = getattr(func, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _is_bare(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and tensor.layout is torch.strided


def _is_filled(tensor: torch.Tensor) -> bool:
    """Return whether it is a real floating-point host tensor; other types may decide shapes."""
    return tensor.is_cpu and tensor.is_floating_point()


class _WithoutNumbers(torch.autograd.Function):
    """A real host tensor as one without memory; its gradient is zeros."""

    @staticmethod
    def forward(ctx: Any, real: torch.Tensor, storages: Storages) -> torch.Tensor:
        ctx.like = real.shape, real.dtype
        with _disable_current_modes():
            empty = torch.empty_like(real, device=_META)
        return storages.host(empty)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        shape, dtype = ctx.like
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return torch.zeros(shape, dtype=dtype, device="cpu"), None


# References to the storage of a tensor without views, while Python holds the storage too.
_ALONE = 2


def _single(index: Any) -> bool:
    """Return whether an index names single rows or elements."""
    if isinstance(index, tuple):
        return any(isinstance(part, (int, numpy.integer)) for part in index)
    return isinstance(index, (int, numpy.integer)) and not isinstance(index, bool)


class Pinned:
    """Pinned memory: host memory that remembers that it was asked to be pinned."""

    @staticmethod
    def pin(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:  # noqa: ARG004
        """`Tensor.pin_memory`: another tensor than the one that is pinned, unless that is pinned already."""
        if tensor.is_cuda:
            raise RuntimeError(f"cannot pin '{tensor.type()}' only dense CPU tensors can be pinned")
        if getattr(tensor, _PINNED, False):
            return tensor
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return Pinned.mark(tensor.detach())

    @staticmethod
    def mark(tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, known to be pinned."""
        setattr(tensor, _PINNED, True)
        return tensor

    def functions(self) -> dict[str, Any]:
        """Name below `torch` -> replacement."""
        return {
            "Tensor.pin_memory": self.pin,
            "Tensor.is_pinned": lambda tensor, device=None: getattr(tensor, _PINNED, False),
        }


class Gradients:
    """`tensor.data = value`, also where one is real and the other a CUDA tensor; what was its gradient stays
    that.

    A gradient lies on another device than its tensor from the moment the tensor has moved (`module.cpu()`)
    until it has moved itself. PyTorch's C++ refuses such a pair where one is real and the other has no
    memory, so it is kept here so long.
    """

    def __init__(self) -> None:
        # By the tensor's identity: the tensor itself, so that the number stays its own, and its gradient.
        self._apart: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return `tensor.grad`, also where it is kept apart from the tensor."""
        kept = self._apart.get(id(tensor)) if self._apart else None
        return tensor.grad if kept is None else kept[1]

    def forget(self, tensor: torch.Tensor) -> None:
        """Drop the separately kept gradient of a tensor about to get another or none."""
        self._apart.pop(id(tensor), None)

    def set_data(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Carry out `tensor.data = value`, also between host and device."""
        if value.is_inference() and not tensor.is_inference():
            value = _of_no_mode(value)
        if tensor.device.type == value.device.type:
            tensor.data = value
            return
        gradient = self.of(tensor)
        new = value.detach()
        new.requires_grad_(tensor.requires_grad)
        if gradient is not None:
            self._apart[id(tensor)] = (tensor, gradient)
            tensor.grad = None
        torch._C._swap_tensor_impl(tensor, new)
        del new
        for owner, other in list(self._apart.values()):
            if (other is tensor or owner is tensor) and owner.device.type == other.device.type:
                self.forget(owner)
                owner.grad = other


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor.data`, empty for an uninitialized parameter, whose shape cannot be read."""
    if not is_lazy(tensor):
        return tensor.data
    with _disable_current_modes():
        return tensor.data


def _of_no_mode(value: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a tensor made outside inference mode: PyTorch gives data of one kind to the
    other, but not among meta tensors (`TensorImpl::has_compatible_shallow_copy_type`)."""
    with torch.inference_mode(False), _disable_current_modes():
        plain = torch.empty(0, dtype=value.dtype, device=value.device)
        return plain.set_(value.untyped_storage(), value.storage_offset(), value.shape, value.stride())


def _shape(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the shape a factory makes; None if not on the CPU."""
    device = kwargs.get("device")
    if kwargs.get("out") is not None or (device is not None and torch.device(device).type != "cpu"):
        return None
    size = kwargs.get("size", args[0] if args else None)
    if "size" not in kwargs and all(isinstance(part, int) for part in args):
        size = args
    if not isinstance(size, (tuple, list)) or not all(isinstance(part, int) for part in size):
        return None
    return tuple(size)
