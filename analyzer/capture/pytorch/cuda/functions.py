"""What functions without a tensor among their arguments say while a program is captured: they answer for the device profile.

Nothing is initialised, no GPU is asked. Why each is replaced stands in `patches.py`.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.cuda.generators import defaults, generator_class
from analyzer.capture.pytorch.cuda.memory import answers
from analyzer.capture.pytorch.cuda.streams import streams
from analyzer.capture.pytorch.patches import replaced

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recorder import Recorder
    from analyzer.devices import DeviceProfile

_CUDNN_VERSION = 91900  # of the measurements (cuDNN 9.19)
_CUDA_VERSION, _NCCL_VERSION = "13.0", (2, 28, 9)
_SILENT = (
    "set_device",
    "empty_cache",
    "reset_peak_memory_stats",
    "nvtx.range_push",
    "nvtx.range_pop",
    "nvtx.mark",
)
_SEEDING = ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all")
_STATE_BYTES = 16  # seed and offset: `CUDAGeneratorImpl::get_state`, `CUDAGeneratorImpl.cpp`
CUDA_TYPE = torch.device("cuda")
_RNN_MODES = {"RNN_RELU": 0, "RNN_TANH": 1, "LSTM": 2, "GRU": 3}  # cudnnRNNMode_t


@contextlib.contextmanager
def cuda_functions(device: DeviceProfile, recorder: Recorder) -> Iterator[None]:
    """While open, `torch.cuda` and its kin speak of `device`, and of the memory the recorder has, if it has one."""
    found = {**_answers(device, recorder), **streams(recorder)}
    if recorder.memory is not None:
        asked = answers(recorder.memory, recorder.happened)
        found |= {f"cuda.{name}": answer for name, answer in asked.items()}
    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        resize(storage, size)
        recorder.resized(storage)
        return storage

    found |= {"UntypedStorage.resize_": resized, "Generator": generator_class(recorder)}
    with replaced({f"torch.{name}": answer for name, answer in found.items()}):
        yield


def _answers(device: DeviceProfile, recorder: Recorder) -> dict[str, Any]:
    """Name below `torch` -> replacement."""
    properties = types.SimpleNamespace(
        name=device.name,
        major=device.compute_capability[0],
        minor=device.compute_capability[1],
        total_memory=device.capacity_bytes,
        multi_processor_count=device.sm_count,
        max_threads_per_multi_processor=device.max_threads_per_sm,
        warp_size=32,
    )
    grouped = torch._C._group_tensors_by_device_and_dtype

    def grouped_on_cuda(*arguments: Any) -> dict[Any, Any]:
        return {
            (recorder.gpu if where.type == "meta" else where, dtype): group
            for (where, dtype), group in grouped(*arguments).items()
        }

    def state(*_: Any) -> torch.Tensor:
        return torch.empty(_STATE_BYTES, dtype=torch.uint8)

    random = {
        "get_rng_state": state,
        "get_rng_state_all": lambda: [state() for _ in range(recorder.gpu_count)],
        "initial_seed": lambda: 0,
        **{name: lambda *a, **k: None for name in _SEEDING},
    }
    return {
        "cuda.is_available": lambda: True,
        "cuda.is_initialized": lambda: True,
        "cuda.device_count": lambda: recorder.gpu_count,
        "cuda.current_device": lambda: recorder.gpu.index,
        "cuda.get_device_name": lambda *a: device.name,
        "cuda.get_device_capability": lambda *a: device.compute_capability,
        "cuda.get_device_properties": lambda *a: properties,
        "cuda.is_bf16_supported": lambda *a, **k: device.compute_capability >= (8, 0),
        "cuda.is_current_stream_capturing": lambda: False,
        "accelerator.current_accelerator": lambda check_available=False: CUDA_TYPE,
        "Tensor.pin_memory": lambda t, *a: t,
        "_C._get_accelerator": lambda *a: CUDA_TYPE,
        "version.cuda": _CUDA_VERSION,
        "cuda.nccl.version": lambda: _NCCL_VERSION,
        "accelerator.is_available": lambda: True,
        "accelerator.device_count": lambda: recorder.gpu_count,
        "accelerator.current_device_index": lambda: recorder.gpu.index,
        "accelerator.set_device_index": lambda *a: None,
        "cuda.memory_allocated": lambda *a: 0,
        "cuda.max_memory_allocated": lambda *a: 0,
        "cuda.memory_reserved": lambda *a: 0,
        "cuda.max_memory_reserved": lambda *a: 0,
        "cuda.mem_get_info": lambda *a: (device.capacity_bytes, device.capacity_bytes),
        "cuda.default_generators": defaults(recorder.gpu_count),
        # Also by the names of their own module, whose functions ask a GPU that is there for its count.
        **{
            f"{module}.{name}": answer
            for module in ("cuda", "cuda.random")
            for name, answer in random.items()
        },
        # A function of its own for each: PyTorch's compiler, if a program brings it in, knows functions by identity.
        **{f"cuda.{name}": lambda *a, **k: None for name in _SILENT},
        **{f"cuda.{name}": lambda *a: contextlib.nullcontext() for name in ("device_of", "device")},
        "backends.cudnn.is_acceptable": lambda t: (
            t.is_cuda and t.dtype in torch.backends.cudnn.CUDNN_TENSOR_DTYPES
        ),
        "backends.cudnn.version": lambda: _CUDNN_VERSION,
        "backends.cudnn.rnn.get_cudnn_mode": _RNN_MODES.__getitem__,
        "_C._cuda_getCurrentRawStream": lambda *a: 0,
        "_has_compatible_shallow_copy_type": lambda *a: True,
        "_use_cudnn_rnn_flatten_weight": lambda: True,
        "_C._group_tensors_by_device_and_dtype": grouped_on_cuda,
        "overrides.has_torch_function": lambda _: False,
        "autograd.has_torch_function": lambda _: False,
    }
