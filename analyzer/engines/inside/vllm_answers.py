"""What vLLM's libraries ask of a GPU behind the back of the loader's rules, answered in its process.

1. NCCL and the CUDA runtime are opened by their names, or linked into cuda-python: what the emulated runtime
   answers is taken from there, the rest from the library.
2. FlashInfer compiles kernels for the GPU at hand when they are first asked for, which takes a compiler and
   minutes. Kernels compute nothing here: each function of such a module is one launch on the current stream,
   and writes where its caller said. Its experts have a workspace of a size that only they know: vLLM takes
   Triton's instead, as it does where there is no FlashInfer.
3. Which layers GPTQ quantized the engine reads from the weights' files. Where there are none it is the layers
   of the transformer's blocks, as GPTQ does unless it is told otherwise.
4. What a model's class can do vLLM asks in a process of its own, which imports all of vLLM once more, so that
   its own does not begin to use CUDA, and could fork. This process does not fork, and imports the class next.
5. Inductor times each way of compiling a kernel, and keeps the fastest. Nothing takes time here: each is run
   as seldom as can be, in the memory that timing takes, and the first is kept.

Source: vLLM 0.19, `distributed/device_communicators/pynccl_wrapper.py`, `cuda_wrapper`,
`layers/quantization/gptq_marlin.py` (`maybe_update_config`), `model_executor/models/registry.py`
(`_run_in_subprocess`); FlashInfer 0.6, `comm/cuda_ipc.py`, `jit/core.py` (`JitSpec.build_and_load`); torch
2.10, `_inductor/runtime/benchmarking.py` (`InductorBenchmarker`). Not modelled: memory of their own that
modules of FlashInfer take.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

_REGISTRY = "vllm.model_executor.models.registry"
_BENCHMARKS = "torch._inductor.runtime.benchmarking"
# How often Inductor runs what it times; 5 and 100 of its own.
_SELDOM = {"estimation_iters": 1, "memory_warmup_iters": 1, "benchmark_iters": 1}
_FLASHINFER = "vllm.utils.flashinfer"
_EXPERTS = "has_flashinfer_cutlass_fused_moe"
_QUANTIZATION = "vllm.model_executor.layers.quantization"
_VLLM = "vllm.distributed.device_communicators"
# Classes that open a library by its path: module, class, and the function that finds the path.
_OPENED = (
    (f"{_VLLM}.pynccl_wrapper", "NCCLLibrary", "vllm.utils.nccl:find_nccl_library"),
    (f"{_VLLM}.cuda_wrapper", "CudaRTLibrary", ""),
    ("flashinfer.comm.cuda_ipc", "CudaRTLibrary", ""),
)


notes: list[str] = []  # what is not as on a GPU, for who reads the figures


def note(text: str) -> None:
    """Say on stderr, and keep for the report, what is not as on a GPU."""
    if text not in notes:
        notes.append(text)
        print(f"analyze serve: {text}", file=sys.stderr)


def answer_all() -> None:
    """Install every replacement below for the libraries this environment has."""
    for module, name, finder in _OPENED:
        try:
            library = getattr(importlib.import_module(module), name)
        except ImportError:
            continue
        answer_opened(library, _path(finder))
    answer_cuda_python()
    answer_flashinfer()
    answer_gptq()
    answer_registry()
    answer_benchmarks()


def _path(finder: str) -> str | None:
    """Return the library's path: from the named finder function, or the loaded CUDA runtime's."""
    if finder:
        module, _, name = finder.partition(":")
        found: str = getattr(importlib.import_module(module), name)()
        return found
    from vllm.utils.system_utils import find_loaded_library

    path: str | None = find_loaded_library("libcudart")
    return path


def answer_opened(library: Any, path: str | None) -> None:
    """Replace a class of functions by name (vLLM, FlashInfer) by the emulated runtime's."""
    if path is None:
        return
    answered, own = ctypes.CDLL(None), ctypes.CDLL(path)
    functions = {}
    for function in library.exported_functions:
        has = hasattr(answered, function.name)
        if not has and not hasattr(own, function.name):
            continue
        found = getattr(answered if has else own, function.name)
        found.restype, found.argtypes = function.restype, function.argtypes
        functions[function.name] = found
    library.path_to_library_cache[path] = answered
    library.path_to_dict_mapping.setdefault(path, {})
    for known in library.path_to_dict_mapping.values():  # one that was made before keeps its own
        known.update(functions)


def answer_cuda_python() -> None:
    """cuda-python has the runtime linked into it. Who uses it here chooses a device by it, and no more."""
    for name in ("cuda.bindings.runtime", "cuda.cudart"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        module.cudaSetDevice = functools.partial(_set_device, module)


def _set_device(module: Any, index: int) -> tuple[Any]:
    return (module.cudaError_t(ctypes.CDLL(None).cudaSetDevice(ctypes.c_int(index))),)


class Launches:
    """A module that nobody compiled: whatever is called of it is one launch. name: its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., None]:
        if function.startswith("__"):
            raise AttributeError(function)
        return launched


def launched(*_: Any, **__: Any) -> None:
    """Launch an empty kernel on the current stream."""
    import torch

    stream = torch.cuda.current_stream().cuda_stream
    ctypes.CDLL(None).cuLaunchKernel(None, *(ctypes.c_uint(1),) * 6, 0, ctypes.c_void_p(stream), None, None)


def answer_flashinfer() -> None:
    """Replace modules without binaries, which would be compiled, and report them."""
    try:
        from flashinfer.jit.core import JitSpec
    except ImportError:
        return
    built = JitSpec.build_and_load

    def build_and_load(self: Any) -> Any:
        if self.is_aot:
            return built(self)
        note(f"FlashInfer's {self.name} is not compiled and does nothing: memory of its own is not counted")
        return Launches(self.name)

    JitSpec.build_and_load = build_and_load
    answer_experts()


def answer_experts() -> None:
    """Let vLLM find FlashInfer without its experts, unless they come compiled (`flashinfer-jit-cache`)."""
    try:
        module: Any = importlib.import_module(_FLASHINFER)
        has = getattr(module, _EXPERTS)
    except (ImportError, AttributeError):
        return
    if importlib.util.find_spec("flashinfer_jit_cache") is not None:
        return

    @functools.wraps(has)
    def has_flashinfer_cutlass_fused_moe() -> bool:
        if has():
            note("FlashInfer's experts are compiled where a GPU is: if vLLM prefers them, Triton's are taken")
        return False

    setattr(module, _EXPERTS, has_flashinfer_cutlass_fused_moe)


def answer_gptq() -> None:
    """Let GPTQ quantize every linear layer of a block where weight files are missing."""
    for module, name in (("gptq", "GPTQConfig"), ("gptq_marlin", "GPTQMarlinConfig")):
        try:
            config = getattr(importlib.import_module(f"{_QUANTIZATION}.{module}"), name)
        except (ImportError, AttributeError):
            continue
        config.maybe_update_config = _quantize_all_blocks(config.maybe_update_config)


def _quantize_all_blocks(update: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(update)
    def maybe_update_config(self: Any, *arguments: Any, **named: Any) -> None:
        update(self, *arguments, **named)
        if not self.modules_in_block_to_quantize:
            self.modules_in_block_to_quantize = ["layers."]  # a part of the names of what is in a block

    return maybe_update_config


def answer_registry() -> None:
    """Let models' classes be looked at in this process."""
    try:
        registry: Any = importlib.import_module(_REGISTRY)
    except ImportError:
        return
    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda function: function()


def answer_benchmarks() -> None:
    """Let every way of compiling a kernel take the same time, so that the first one is kept."""
    try:
        benchmarker: Any = importlib.import_module(_BENCHMARKS).InductorBenchmarker
    except (ImportError, AttributeError):
        return
    timed = benchmarker.benchmark_gpu

    @functools.wraps(timed)
    def benchmark_gpu(self: Any, *arguments: Any, **named: Any) -> Any:
        found = timed(self, *arguments, **{**named, **_SELDOM})
        return [1.0] * len(found) if isinstance(found, list) else 1.0

    benchmarker.benchmark_gpu = benchmark_gpu
