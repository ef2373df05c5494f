"""The process's record: every operator that took memory, its place and its results; and the allocator's own
history.

1. The allocator numbers its requests by counting them; an operator is known by how many there were before it
   and after it.
2. Operators are recorded where the dispatcher goes from autograd to the device's kernels (the key
   BackendSelect, which every call passes on every thread). A dispatch mode would be simpler, and would
   change what is allocated: PyTorch avoids working in place under one (`areAnyTensorSubclassLike`,
   aten/src/ATen/TensorSubclassLikeUtils.h; `linear`, for example, adds its bias to a copy).
3. Operators that only make a tensor have a kernel of their own at that key and are not recorded; the one
   that fills it is.
4. A compiled program that runs a part of itself uncompiled has its compiler inspect every function called
   there: these calls are not the program's.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import padding
import torch
from importing import once_imported
from launches import StepLaunches
from places import SourcePlaces
from process_values import ProcessValues
from tensors import tensors
from torch._C._dynamo import eval_frame as _eval_frame

# As many events of the allocator are kept, the last ones: enough for thousands of steps.
MOST_EVENTS = 4_000_000
_RUNTIME = ctypes.CDLL(None)
_COMPILER = "torch._dynamo.eval_frame"
_COMMON = (0, 0)  # the allocator's own pool; CUDA graphs have private ones
# Called by `pow(number, tensor)` with its number on the device, which no Python function can be given
# (torch/csrc/jit/python/pybind_utils.cpp).
_UNSEEN = ("aten::pow.Tensor_Tensor_out",)


def _below() -> Any:
    """Return the dispatch keys below BackendSelect: the device's kernels."""
    keys = torch._C._after_ADInplaceOrView_keyset
    for name in (
        "BackendSelect",
        "Python",
        "PythonTLSSnapshot",
        "FuncTorchDynamicLayerBackMode",
        "Functionalize",
        "Conjugate",
        "Negative",
        "ZeroTensor",
    ):
        keys = keys.remove(getattr(torch._C.DispatchKey, name))
    return keys


def _tensors_again(func: Any, plain: tuple[int, ...], args: Any) -> Any:
    """Return numbers that C++ code had wrapped as tensors, and that arrive here bare, as tensors again: of a
    type that leaves the result's what it is (`wrapped_scalar_tensor`, aten/src/ATen/ScalarOps.h)."""
    other = next((args[i] for i in plain if i < len(args) and isinstance(args[i], torch.Tensor)), None)
    values = list(args)
    for i in plain:
        if i < len(args) and isinstance(args[i], (int, float, complex)):
            dtype = None
            if other is not None and func is not torch.ops.aten.copy_.default:
                dtype = torch.result_type(other, args[i])
            values[i] = torch.tensor(
                args[i], dtype=dtype or (torch.float64 if isinstance(args[i], float) else None), device="cpu"
            )
    return tuple(values)


def _parts(tensor: Any) -> Iterator[torch.Tensor]:
    """Return the device tensors that hold this one's values: a DTensor's local part; () otherwise."""
    if not isinstance(tensor, torch.Tensor):
        return
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        for name in flatten()[0]:
            yield from _parts(getattr(tensor, name))
    elif tensor.is_cuda and tensor.layout == torch.strided:
        yield tensor


def _addresses(tensor: Any) -> list[int]:
    """Return the addresses of the device tensors behind this one; none for an uninitialised parameter or a
    wrapper of `torch.func`."""
    with suppress(NotImplementedError, ValueError):
        return [part.untyped_storage().data_ptr() for part in _parts(tensor)]
    return []


@contextmanager
def _traced(by: Any) -> Iterator[None]:
    """While open, `torch.jit.trace` records into this state; None: nothing."""
    torch_c: Any = torch._C
    before = torch_c._get_tracing_state()
    torch_c._set_tracing_state(by)
    try:
        yield
    finally:
        torch_c._set_tracing_state(before)


class Enough(BaseException):
    """The program has run as far as was asked: it ends here."""


class OfGpu:
    """The record of one GPU of the process. requests: so many were made; steps, freed_by_steps:
    requests and frees until each optimizer step; roles: {request count: {address: category}}."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.requests = 0
        self.operators: list[list[Any]] = []
        self.steps: list[int] = []
        self.freed_by_steps: list[int] = []
        self.roles: dict[str, dict[int, str]] = {}

    def blocks(self, what: str) -> int:
        """Return the number of blocks the allocator has "allocated" or "freed"."""
        if not torch.cuda.is_initialized():
            return 0
        return int(torch._C._cuda_memoryStats(self.number)["allocation"]["all"][what])

    def close(self, snapshot: Any) -> dict[str, Any]:
        """Return the record of this GPU."""
        stats = torch.cuda.memory_stats(self.number)
        return {
            "events": [
                [e["action"], e.get("addr", 0), e["size"], e["stream"]]  # out of memory has none
                for e in snapshot["device_traces"][self.number]
            ],
            "counters": {
                name: stats.get(f"{name}.all.{what}", 0)
                for name, what in (
                    ("allocation", "allocated"),
                    ("allocated_bytes", "current"),
                    ("reserved_bytes", "current"),
                )
            },
            "peak_reserved_bytes": stats.get("reserved_bytes.all.peak", 0),
            "ooms": stats.get("num_ooms", 0),
            "retries": stats.get("num_alloc_retries", 0),
            "operators": self.operators,
            "steps": self.steps,
            "freed_by_steps": self.freed_by_steps,
            "roles": self.roles,
            # Memory that libraries gave back, as NCCL does with its communicators, counts: they held it
            # beside the rest. The driver's own part of the device is no process's.
            "used_bytes": _RUNTIME.emulated_used_bytes(self.number)
            + _RUNTIME.emulated_given_back_bytes(self.number),
        }


class OperatorRecorder:
    """Sees every operator that runs on the device, on every thread.

    until: "end"; a number of optimizer steps; or "steady": the step from which on each asks for as much as
    the one before and leaves as much. history: whether what asks for memory, where and when, is kept. Without
    it values and the driver's memory are followed as ever, and the record has no events and no operators.
    """

    def __init__(
        self,
        kernels: dict[str, list[str]],
        device: int,
        assume: dict[str, Any],
        until: Any = "end",
        history: bool = True,
        gpus: int = 1,
    ) -> None:
        self._device = device
        self._gpus = [OfGpu(device), *(OfGpu(number) for number in range(gpus) if number != device)]
        self._until = until
        self._before: tuple[int, ...] = ()
        self._inside = threading.local()
        self._keys = _below()
        self.places = SourcePlaces(self._remember)
        self.values = ProcessValues(self.places.line, assume)
        self.launches = StepLaunches(self.places.current_place) if history else None
        if self.launches is not None:
            once_imported(padding.MODULE, lambda module: padding.answer(module, self.launches))
        self.failed: list[str] = []  # line, kind and text of the last error of an operator
        self._kernels = kernels
        self._kinds: dict[Any, int] = {}
        self._reduces = False
        self._hidden = False
        # Settings of torch.backends.cudnn that a convolution was called under: cuDNN itself cannot see them.
        self.settings = set[str]()
        if history:
            torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS, context=None, stacks="python")
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._hook = register_optimizer_step_post_hook(self._stepped)

        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._listen()

    def _listen(self) -> None:
        """Register a kernel in front of every ATen operator that runs on CUDA."""
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        for name in torch._C._dispatch_get_all_op_names():
            if not name.startswith("aten::") or name in _UNSEEN or has(name, "BackendSelect"):
                continue
            if not any(has(name, key) for key in ("CUDA", "SparseCUDA", "CompositeExplicitAutograd")):
                continue
            base, _, overload = name[6:].partition(".")
            func = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
            if func is None or not any("Tensor" in str(a.type) for a in func._schema.arguments):
                continue
            if any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
                continue  # a view takes nothing
            plain = tuple(i for i, a in enumerate(func._schema.arguments) if str(a.type) == "Tensor")
            self._library.impl(
                name[6:], functools.partial(self._called, func, plain), "BackendSelect", with_keyset=True
            )

    def _hide(self) -> None:
        """Keep the compiler from tracing `_called`, once it is imported."""
        self._hidden = True
        skip = getattr(sys.modules[_COMPILER], "skip_code", None)
        if skip is not None:
            skip(OperatorRecorder._called.__code__)

    def _called(self, func: Any, plain: tuple[int, ...], keyset: Any, *args: Any, **kwargs: Any) -> Any:
        """Run an operator through `_follow`, outermost calls only."""
        if not self._hidden and _COMPILER in sys.modules:
            self._hide()
        keys = keyset & self._keys
        if any(i < len(args) and isinstance(args[i], (int, float, complex)) for i in plain):
            args = _tensors_again(func, plain, args)
        if getattr(self._inside, "operator", False) or not torch.cuda.is_initialized():
            return func.redispatch(keys, *args, **kwargs)
        self._inside.operator = True
        compiler = _eval_frame.set_eval_frame(None)  # what is done here is not the program's to compile
        collects = gc.isenabled()
        gc.disable()  # the program's garbage is collected when its own objects are many
        run = functools.partial(func.redispatch, keys)
        try:
            traced: Any = torch._C._get_tracing_state()
            if traced is None:
                return self._follow(func, run, args, kwargs)
            with _traced(None):  # torch.jit.trace would take what is asked of tensors here for the program's
                return self._follow(func, _traced(traced)(run), args, kwargs)
        except Exception as error:
            self.failed = [self.places.line(), type(error).__name__, str(error)]
            raise
        finally:
            self._inside.operator = False
            _eval_frame.set_eval_frame(compiler)
            if collects:
                gc.enable()

    def _follow(self, func: Any, run: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and record it with its results if it took memory."""
        if "convolution" in func._schema.name:
            self._note_settings()
        result = self.values.call(func, run, args, kwargs)
        self._launched(func, result)
        if self.launches is None:
            return result
        self.launches.operator(func, args, kwargs, result)
        took = False
        for gpu in self._gpus:
            before, after = gpu.requests, gpu.blocks("allocated")
            if after != before:  # those made since the last operator belong to this one: the tensor it fills
                gpu.requests, took = after, True
                line, module, phase = self.places.current_place()
                outputs = tensors([result])
                made = [
                    [t.data_ptr(), str(t.dtype)[6:], list(t.shape)]
                    for t in outputs
                    if t.is_cuda and t.layout == torch.strided and not t.is_nested
                ]
                gpu.operators.append([before, after, str(func), module, line, phase, made])
        if not took and torch.is_grad_enabled():
            self.places.current_place()
        return result

    def _note_settings(self) -> None:
        cudnn = torch.backends.cudnn
        settings = (
            ("benchmark", cudnn.benchmark),
            ("deterministic", cudnn.deterministic),
            ("no_tf32", not cudnn.allow_tf32),
        )
        self.settings.update(name for name, on in settings if on)

    def served(self) -> tuple[int, int]:
        """Return how many requests the allocator has served, and how many blocks it got back."""
        return self._gpus[0].blocks("allocated"), self._gpus[0].blocks("freed")

    def _launched(self, func: Any, result: Any) -> None:
        """Tell the emulated driver, whose addresses depend on it, which kind of kernel ran: 0 none, 1 plain,
        2 with a stack, 3 with assertions (`runtimes/pytorch/launches.py`, `allocators/process.py`)."""
        kind = self._kinds.get(func)
        if kind is None:
            name = str(func).partition(".")[2]
            kind = self._kinds[func] = next(
                (
                    level
                    for level, names in (
                        (0, self._kernels["none"]),
                        (1, self._kernels["plain"]),
                        (3, self._kernels["asserting"]),
                    )
                    if name.startswith(tuple(names))
                ),
                2,
            )
        if kind > 1 and isinstance(result, torch.Tensor) and result.is_cuda:
            _RUNTIME.emulated_launches(kind)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        """Record the end of an optimizer step; end the program when its memory is steady."""
        _RUNTIME.emulated_stepped()
        if self.launches is not None:
            self.launches.stepped(optimizer)
        for gpu in self._gpus:
            gpu.steps.append(gpu.blocks("allocated"))
            gpu.freed_by_steps.append(gpu.blocks("freed"))
        self._roles(
            [p for group in optimizer.param_groups for p in group["params"]],
            (t for state in optimizer.state.values() for t in state.values()),
        )
        steps = len(self._gpus[0].steps)
        if self._until == "steady" and steps > 1:
            step: tuple[int, ...] = ()
            for gpu in self._gpus:
                stats = torch._C._cuda_memoryStats(gpu.number)
                held = (stats[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes"))
                step += (gpu.steps[-1] - gpu.steps[-2], *held)
            if step == self._before:
                raise Enough
            self._before = step
        if self._until == steps:
            raise Enough

    def _roles(self, parameters: Any, states: Any = (), buffers: Any = ()) -> None:
        """Record tensors' categories by address."""
        roles: dict[int, str] = {}
        for p in parameters:
            roles |= dict.fromkeys(_addresses(p), "parameters")
            roles |= dict.fromkeys(_addresses(p.grad), "gradients")
        for kind, wholes in (("optimizer state", states), ("buffers", buffers)):
            for owner in wholes:
                roles |= dict.fromkeys(_addresses(owner), kind)
        for gpu in self._gpus:  # an address is of one
            gpu.roles.setdefault(str(gpu.blocks("allocated")), {}).update(roles)

    def _remember(self, root: torch.nn.Module) -> None:
        """Remember an outermost module, which may be dead at the end."""
        self._roles(root.parameters(), (), root.buffers())
        parallel = torch.nn.parallel.DistributedDataParallel
        self._reduces |= any(isinstance(module, parallel) for module in root.modules())

    def close(self) -> dict[str, Any]:
        """Stop recording and return the record."""
        self._hook.remove()
        torch.cuda.synchronize()
        for root in self.places.roots():
            self._remember(root)
        snapshot = torch.cuda.memory._snapshot()
        refused: list[str] = []
        _RUNTIME.emulated_refused.restype = ctypes.c_char_p
        while (name := _RUNTIME.emulated_refused(len(refused))) is not None:
            refused.append(name.decode())
        _RUNTIME.emulated_given_back_bytes.restype = ctypes.c_uint64
        _RUNTIME.emulated_used_bytes.restype = ctypes.c_uint64
        first, *others = [gpu.close(snapshot) for gpu in self._gpus]
        own = {gpu.number for gpu in self._gpus}
        return {
            **first,
            **({"gpus": [first, *others]} if others else {}),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "launches": self.launches.last if self.launches is not None else [],
            "reads": dict(self.values.reads),
            "assumed": sorted(self.values.assumptions.used),
            "refused": refused,
            "failed": self.failed,
            "cudnn": sorted(self.settings),
            "pools": any(tuple(s.get("segment_pool_id", _COMMON)) != _COMMON for s in snapshot["segments"]),
            "elsewhere": sum(s["total_size"] for s in snapshot["segments"] if s["device"] not in own),
            "reduces": self._reduces,
            "sends": bool(_RUNTIME.emulated_sent_messages(self._device)),
        }
