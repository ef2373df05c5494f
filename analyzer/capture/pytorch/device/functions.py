"""Functions without a tensor among their arguments, while a program is captured: they answer for the device
profile.

Nothing is initialised, no GPU is asked. Why each is replaced stands in `patches.py`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import compute_elementwise_output_strides

from analyzer.capture.pytorch import build
from analyzer.capture.pytorch.device.communication import Communication
from analyzer.capture.pytorch.device.generators import STATE_BYTES, defaults, generator_class
from analyzer.capture.pytorch.device.graphs import graphs
from analyzer.capture.pytorch.device.host import Pinned
from analyzer.capture.pytorch.device.legacy_types import default_tensor_type, legacy_types
from analyzer.capture.pytorch.device.streams import streams
from analyzer.capture.pytorch.kernels.attention import KEEPS_PROJECTIONS, AttentionChoice, is_scripting
from analyzer.capture.pytorch.kernels.detection import loading
from analyzer.capture.pytorch.patches import replaced
from analyzer.capture.pytorch.recording.gpus import Gpus
from analyzer.capture.pytorch.recording.memory import MemoryAnswers
from analyzer.capture.pytorch.recording.parts import wraps
from analyzer.devices.architectures import Architecture
from analyzer.graph import BETWEEN, STAGE

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder
    from analyzer.devices import DeviceProfile

_STATIC_SHARED_BYTES = 49152  # what a block may have on any GPU, without opting in to more
_SILENT_NAMES = """
    cuda.init cuda._lazy_init cuda.empty_cache cuda.reset_peak_memory_stats
    cuda.reset_max_memory_allocated cuda.reset_max_memory_cached cuda.reset_accumulated_memory_stats
    cuda.reset_accumulated_host_memory_stats cuda.reset_peak_host_memory_stats cuda.ipc_collect
    cuda.set_sync_debug_mode cuda.nvtx.mark cuda.nvtx.range_end cuda.profiler.start cuda.profiler.stop
    _C._cuda_set_cudnn_benchmark_limit cuda.memory._record_memory_history
    accelerator.empty_cache accelerator.empty_host_cache
    accelerator.reset_peak_memory_stats accelerator.reset_accumulated_memory_stats
"""
_SILENT = tuple(_SILENT_NAMES.split())
# The device's load and sensors while nothing runs on it. Percent, degrees Celsius, milliwatts, MHz.
_SENSORS = {"utilization": 0, "memory_usage": 0, "temperature": 30, "power_draw": 75_000, "clock_rate": 345}
_FIGURES = ("memory_allocated", "memory_reserved", "memory_cached")
_NOTHING_HELD = tuple(name for figure in _FIGURES for name in (figure, f"max_{figure}"))
_SEEDING = ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all")
CUDA_TYPE = torch.device("cuda")
_RNN_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}  # cudnnRNNMode_t


def _current_class(gpus: Gpus, of_tensor: bool = False) -> type[Any]:
    """Return the class that replaces `torch.cuda.device`, for which PyTorch asks; of_tensor: `device_of`."""

    class Current:
        """`torch.cuda.device`. idx: the GPU's number, -1 for none."""

        def __init__(self, device: Any = None, obj: Any = None) -> None:
            if of_tensor:
                tensor = device if obj is None else obj
                self.idx = tensor.get_device() if getattr(tensor, "is_cuda", False) else -1
            else:
                none = type(device) is int and device < 0
                self.idx = -1 if none else gpus.first + gpus.chosen(device)
            self.prev_idx = -1

        def __enter__(self) -> None:
            self.prev_idx = gpus.index()
            if self.idx >= 0:
                gpus.current = self.idx - gpus.first

        def __exit__(self, *_: object) -> None:
            gpus.current = self.prev_idx - gpus.first

    return Current


@contextlib.contextmanager
def cuda_functions(device: DeviceProfile, recorder: Recorder) -> Iterator[None]:
    """While open, `torch.cuda` describes `device`, and the recorder's memory if it has one."""
    replacements = {
        **build.answers(),
        **_attention(AttentionChoice(recorder.compatible)),
        **_Answers(device, recorder).functions(),
        **_memory_without_an_allocator(device, recorder),
        **streams(recorder),
        **Communication(recorder).functions(),
        **graphs(recorder),
        **legacy_types(),
        "ops.load_library": loading(),
        "Tensor._make_wrapper_subclass": staticmethod(_wrapper(torch.Tensor._make_wrapper_subclass)),
        **Pinned().functions(),
    }
    if device.releases["torch"] in KEEPS_PROJECTIONS:
        replacements["jit.is_scripting"] = is_scripting
    if recorder.memory is not None:
        replacements |= MemoryAnswers(recorder.memory, recorder.storages.happened, recorder.gpus).functions()
    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        resize(storage, size)
        recorder.storages.resized(storage)
        return storage

    replacements |= {"UntypedStorage.resize_": resized, "Generator": generator_class(recorder)}
    with default_tensor_type() as choose:
        replacements["set_default_tensor_type"] = choose
        with replaced({f"torch.{name}": answer for name, answer in replacements.items()}):
            yield


def _jitted(_code: str, _name: str, _by_ref: bool, count: int, tensors: Any, _more: Any) -> Any:
    """`torch.cuda.jiterator`: results as of any elementwise kernel (`CUDAJitLoops.cuh`)."""
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    deciding = [tensor for tensor in tensors if tensor.dim()] or tensors
    dtype = functools.reduce(torch.promote_types, (tensor.dtype for tensor in deciding))
    stride = compute_elementwise_output_strides(*(tensor.expand(shape) for tensor in tensors))
    parts = [torch.empty_strided(shape, stride, dtype=dtype, device=CUDA_TYPE) for _ in range(count)]
    return parts[0] if count == 1 else tuple(parts)


def _wrapper(make: Callable[..., Any]) -> Callable[..., Any]:
    """Register wrapper types; those on the GPU are made on "meta", as the engine looks for their device."""

    def placed(value: Any) -> Any:
        on_gpu = str(value).startswith("cuda") if isinstance(value, (str, torch.device)) else False
        return torch.device("meta") if on_gpu else value

    def made(cls: type, size: Any, *args: Any, **kwargs: Any) -> Any:
        wraps(cls)
        named = {name: placed(value) for name, value in kwargs.items()}
        return make(cls, size, *map(placed, args), **named)

    return made


class _Answers:
    """Functions that are no topic of their own."""

    def __init__(self, device: DeviceProfile, recorder: Recorder) -> None:
        self._device, self._recorder = device, recorder
        self._to_dlpack, self._from_dlpack = torch._C._to_dlpack, torch.utils.dlpack.from_dlpack
        self._grouped = torch._C._group_tensors_by_device_and_dtype
        self._ranges: list[str] = []  # of NVTX, which are open

    def functions(self) -> dict[str, Any]:
        """Name below `torch` -> replacement."""
        recorder = self._recorder
        return {
            **{f"{module}to_dlpack": self._export for module in ("", "utils.dlpack.")},
            **{f"{module}from_dlpack": self._bring_in for module in ("", "utils.dlpack.")},
            **self._of_the_device(),
            **self._library_answers(),
            **{f"cuda.{name}": _says(value) for name, value in _SENSORS.items()},
            **self._of_the_accelerator(),
            "cuda.default_generators": defaults(recorder.gpus.count),
            "cuda.get_rng_state": _state,
            "cuda.get_rng_state_all": lambda: [_state() for _ in range(recorder.gpus.count)],
            "cuda.initial_seed": _says(0),
            **{f"cuda.{name}": _says(None) for name in _SEEDING},
            **{name: _says(None) for name in _SILENT},
            "cuda.device_of": _current_class(recorder.gpus, of_tensor=True),
            "cuda.device": _current_class(recorder.gpus),
            "cuda.set_device": self._set_current,
            "backends.cudnn.is_acceptable": lambda t: (
                t.is_cuda and t.dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES
            ),
            "backends.cudnn.benchmark_limit": build.table()["_C._cuda_get_cudnn_benchmark_limit()"],
            "backends.cudnn.rnn.get_cudnn_mode": _RNN_MODES.__getitem__,
            "_C._cuda_getDeviceCount": lambda: recorder.gpus.count,
            "_C._cuda_jiterator_compile_and_launch_kernel": _jitted,
            "_C._cuda_CUDAAllocator_AllocatorState": object,
            "_C._cuda_getCurrentRawStream": lambda *a: 0,
            "_has_compatible_shallow_copy_type": lambda *a: True,
            "_use_cudnn_rnn_flatten_weight": lambda: True,
            "_C._group_tensors_by_device_and_dtype": self._grouped_on_cuda,
            "overrides.has_torch_function": lambda _: False,
            "autograd.has_torch_function": lambda _: False,
        }

    def _of_the_device(self) -> dict[str, Any]:
        """Return what answers for functions of `torch.cuda` about the device's name, capability and count."""
        device, recorder, compatible = self._device, self._recorder, self._recorder.compatible
        architectures = build.table()["_C._cuda_getArchFlags()"].split()
        return {
            "cuda.is_available": _says(True),
            "cuda.is_initialized": _says(True),
            "cuda.device_count": lambda: recorder.gpus.count,
            "cuda.current_device": recorder.gpus.index,
            "cuda.get_device_name": compatible.alone(_says(device.name)),
            "cuda.get_device_capability": compatible.alone(_says(device.compute_capability)),
            "cuda.get_device_properties": compatible.alone(_says(_properties(device))),
            "cuda.is_bf16_supported": _takes_bfloat16(recorder),
            "cuda.is_tf32_supported": lambda *_, **__: compatible.decided(_is_ampere),
            "cuda.can_device_access_peer": lambda *_, **__: recorder.gpus.count > 1 and recorder.gpus.peers,
            "cuda.get_arch_list": lambda: list(architectures),
            "cuda.get_gencode_flags": lambda: " ".join(
                f"-gencode {name.replace('sm', 'compute', 1)},code={name}" for name in architectures
            ),
        }

    def _library_answers(self) -> dict[str, Any]:
        """Return what answers for library handles, snapshots and NVTX ranges, which take no device memory."""
        depth = itertools.count(1)
        return {
            "cuda.get_sync_debug_mode": _says(0),
            "cuda.current_blas_handle": _says(1),
            "cuda.current_solver_handle": _says(1),
            "cuda.cudart": lambda: _CudaRuntime,
            "cuda.caching_allocator_enable": self._enable,
            "cuda.memory._dump_snapshot": self._no_snapshot,
            "cuda.memory_snapshot": lambda *_, **__: [],
            "cuda.memory._snapshot": lambda *_, **__: {"segments": [], "device_traces": [[]]},
            "cuda.list_gpu_processes": _says("no processes are running"),
            "cuda.nvtx.range_push": self._begin_range,
            "cuda.nvtx.range_pop": self._end_range,
            "cuda.nvtx.range_start": lambda *_, **__: next(depth),
        }

    def _begin_range(self, name: str, *_: Any, **__: Any) -> int:
        """Begin an NVTX range; one named "stage NAME" becomes a stage of the program (`Estimate.marks`)."""
        if name.startswith(STAGE):
            self._recorder.mark(BETWEEN)
        self._ranges.append(name)
        return len(self._ranges) - 1

    def _end_range(self) -> int:
        name = self._ranges.pop() if self._ranges else ""
        if name.startswith(STAGE):
            self._recorder.mark(name)
        return len(self._ranges)

    def _of_the_accelerator(self) -> dict[str, Any]:
        """Return the same by PyTorch's newer names."""
        recorder = self._recorder
        return {
            "accelerator.current_accelerator": _says(CUDA_TYPE),
            "accelerator.get_device_capability": lambda *_, **__: {
                "supported_dtypes": set(torch.backends.cudnn.CUDNN_TENSOR_DTYPES) | {torch.bfloat16}
            },
            "accelerator.device_index": _current_class(recorder.gpus),
            "accelerator.set_device_index": self._set_current,
            "accelerator.set_device_idx": self._set_current,
            "accelerator.is_available": _says(True),
            "accelerator.device_count": lambda: recorder.gpus.count,
            "accelerator.current_device_index": lambda *_: recorder.gpus.index(),
            "accelerator.current_device_idx": lambda *_: recorder.gpus.index(),
            "_C._get_accelerator": _says(CUDA_TYPE),
        }

    def _set_current(self, device: Any = None) -> None:
        if not (type(device) is int and device < 0):
            self._recorder.gpus.current = self._recorder.gpus.chosen(device)

    def _grouped_on_cuda(self, *arguments: Any) -> dict[Any, Any]:
        """Group tensors by device and type, with meta tensors on their GPUs."""
        groups: dict[Any, Any] = {}
        for (where, dtype), (lists, places) in self._grouped(*arguments).items():
            if where.type != "meta" or not self._recorder.gpus.several:
                groups[self._recorder.gpu if where.type == "meta" else where, dtype] = lists, places
                continue
            # A group is one of tensors in the same places of each list; the first list has no gaps.
            devices = [tensor.device for tensor in lists[0] if tensor is not None]
            for device in dict.fromkeys(devices):
                chosen = [number for number, one in enumerate(devices) if one == device]
                groups[device, dtype] = (
                    [[values[number] for number in chosen] if values else values for values in lists],
                    [places[number] for number in chosen] if places else places,
                )
        return groups

    def _no_snapshot(self, *_: Any, **__: Any) -> None:
        self._recorder.note(
            "no snapshot of the allocator is written: analyze --format snapshot writes the estimate's"
        )

    def _enable(self, value: bool = True) -> None:
        if not value:
            self._recorder.note(
                "the program switches PyTorch's caching allocator off: its requests are counted as if it"
                " had not"
            )

    def _export(self, tensor: torch.Tensor) -> Any:
        return tensor if tensor.is_cuda else self._to_dlpack(tensor)

    def _bring_in(self, ext_tensor: Any, **rest: Any) -> torch.Tensor:
        if isinstance(ext_tensor, torch.Tensor) and ext_tensor.is_cuda:
            return ext_tensor.detach()  # the same memory
        return self._from_dlpack(ext_tensor, **rest)


def _says(answer: Any) -> Any:
    """Return a new function that returns a value: PyTorch's compiler knows functions by identity."""
    return lambda *_, **__: answer


def _state(*_: Any, **__: Any) -> torch.Tensor:
    return torch.zeros(STATE_BYTES, dtype=torch.uint8, device="cpu")


def _properties(device: DeviceProfile) -> types.SimpleNamespace:
    """`torch.cuda.get_device_properties`."""
    shared = device.architecture.block_shared_bytes
    return types.SimpleNamespace(
        name=device.name,
        major=device.compute_capability[0],
        minor=device.compute_capability[1],
        total_memory=device.capacity_bytes,
        multi_processor_count=device.sm_count,
        max_threads_per_multi_processor=device.max_threads_per_sm,
        max_threads_per_block=1024,
        warp_size=32,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=_STATIC_SHARED_BYTES,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName=device.name,
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=1,
        pci_device_id=0,
        pci_domain_id=0,
    )


def _attention(choice: AttentionChoice) -> dict[str, Any]:
    """Return what answers whether one kernel can take a call of attention: name below `torch` -> function."""

    def asks(kernel: str) -> Any:
        return lambda params, debug=False: choice.takes(kernel, params)

    return {f"backends.cuda.can_use_{name}_attention": asks(name) for name in ("flash", "efficient", "cudnn")}


def _is_ampere(architecture: Architecture) -> bool:
    return architecture.ampere


def _takes_bfloat16(recorder: Recorder) -> Callable[..., bool]:
    """`torch.cuda.is_bf16_supported`, the same in every modelled release: where tensor cores lack the type,
    PyTorch makes a tensor of one number once (`_check_bf16_tensor_supported`), which every GPU takes."""

    @functools.cache
    def makes_one() -> bool:
        torch.tensor([1.0], dtype=torch.bfloat16, device=recorder.gpu)
        return True

    def supported(including_emulation: bool = True) -> bool:
        return recorder.compatible.decided(_is_ampere) or (including_emulation and makes_one())

    return supported


def _memory_without_an_allocator(device: DeviceProfile, recorder: Recorder) -> dict[str, Any]:
    """Return replacements for the memory queries, which report an empty device: no allocator is simulated."""
    free = device.usable_bytes - device.context_bytes + device.first_kernel_bytes, device.capacity_bytes
    return {
        **{f"cuda.{name}": lambda *_, **__: 0 for name in _NOTHING_HELD},
        **{f"accelerator.{name}": lambda *_, **__: 0 for name in _NOTHING_HELD[:4]},
        "cuda.mem_get_info": recorder.compatible.alone(lambda *_, **__: free),
        "accelerator.get_memory_info": recorder.compatible.alone(lambda *_, **__: free),
        "cuda.device_memory_used": lambda *_, **__: 0,
        "cuda.get_allocator_backend": lambda: "native",
        "cuda.get_per_process_memory_fraction": lambda *_, **__: 1.0,
        "cuda.host_memory_stats": dict,
        "cuda.host_memory_stats_as_nested_dict": dict,
    }


class _CudaRuntime:
    """`torch.cuda.cudart()`: what programs call of the CUDA runtime by itself."""

    class cudaError:
        """Error codes of the CUDA runtime."""

        success = 0

    @staticmethod
    def cudaProfilerStart() -> int:
        """Return success; no profiler runs."""
        return 0

    @staticmethod
    def cudaProfilerStop() -> int:
        """Return success; no profiler runs."""
        return 0

    @staticmethod
    def cudaMemGetInfo(device: Any = None) -> tuple[int, int]:
        """Return free and total bytes of the device."""
        return torch.cuda.mem_get_info(device)

    @staticmethod
    def cudaGetErrorString(code: int) -> str:
        """Return a text for an error code."""
        return f"error {code}" if code else "no error"
