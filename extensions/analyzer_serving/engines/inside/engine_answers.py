"""Answers, in their process, to the serving engines' libraries that bypass the loader to reach the GPU.

1. The CUDA runtime is opened by its name, or linked into cuda-python: functions of the emulated runtime
   replace it, the rest is the library's.
2. FlashInfer compiles kernels for the GPU at hand on first use, which takes a compiler and minutes. Kernels
   compute nothing here: each function of such a module is one launch on the current stream, and writes where
   its caller said.
3. Inductor times each way of compiling a kernel, and keeps the fastest. Nothing takes time here: each is run
   as few times as possible, with the memory that timing takes, and the first is kept.

Source: FlashInfer 0.6, `comm/cuda_ipc.py`, `jit/core.py` (`JitSpec.build_and_load`); torch 2.10,
`_inductor/runtime/benchmarking.py` (`InductorBenchmarker`). Not modelled: the modules' own memory.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

_BENCHMARKS = "torch._inductor.runtime.benchmarking"
# How often Inductor runs what it times; 5 and 100 of its own.
_SELDOM = {"estimation_iters": 1, "memory_warmup_iters": 1, "benchmark_iters": 1}


notes: list[str] = []  # what is not as on a GPU, for who reads the figures


def note(text: str) -> None:
    """Say on stderr, and keep for the report, what is not as on a GPU."""
    if text not in notes:
        notes.append(text)
        print(f"analyze serve: {text}", file=sys.stderr)


def answer_libraries() -> None:
    """Install every replacement below for the libraries this environment has."""
    answer_cuda_python()
    answer_flashinfer()
    answer_benchmarks()


def answer_openers(openers: Iterable[tuple[str, ...]]) -> None:
    """Replace classes that open a library by its path: module, class, the function that finds the path, and
    what it is called with."""
    for module, name, finder, *arguments in openers:
        where, _, function = finder.partition(":")
        try:
            library = getattr(importlib.import_module(module), name)
            path = getattr(importlib.import_module(where), function)(*arguments)
        except ImportError:
            continue
        answer_opened(library, path)


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
        original = getattr(answered if has else own, function.name)
        original.restype, original.argtypes = function.restype, function.argtypes
        functions[function.name] = original
    library.path_to_library_cache[path] = answered
    library.path_to_dict_mapping.setdefault(path, {})
    for wrapper in library.path_to_dict_mapping.values():  # one that was made before keeps its own
        wrapper.update(functions)


def answer_cuda_python() -> None:
    """cuda-python has the runtime linked into it. The engines use it only to choose a device, and to ask
    whether a stream is captured."""
    for name in ("cuda.bindings.runtime", "cuda.cudart"):
        try:
            module: Any = importlib.import_module(name)
        except ImportError:
            continue
        module.cudaSetDevice = functools.partial(_set_device, module)
        module.cudaStreamGetCaptureInfo = functools.partial(_capture_info, module)


def _set_device(module: Any, index: int) -> tuple[Any]:
    return (module.cudaError_t(ctypes.CDLL(None).cudaSetDevice(ctypes.c_int(index))),)


def _capture_info(module: Any, stream: int) -> tuple[Any, Any, int]:
    """Return the error, the status of a stream's capture, and its number."""
    status, number = ctypes.c_int(), ctypes.c_ulonglong()
    code = ctypes.CDLL(None).cudaStreamGetCaptureInfo_v2(
        ctypes.c_void_p(int(stream)), ctypes.byref(status), ctypes.byref(number), None, None, None
    )
    return module.cudaError_t(code), module.cudaStreamCaptureStatus(status.value), number.value


class Launches:
    """A module that nobody compiled: whatever is called of it is one launch, and a plan is empty, which only
    its own kernels would read. name: its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function.startswith("__"):
            raise AttributeError(function)
        return planned if function == "plan" else launched


def planned(*_: Any, **__: Any) -> list[int]:
    """Return a plan of nothing, as FlashInfer's attention makes one on the host before it is launched."""
    return []


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
        note(not_compiled("FlashInfer's", self.name))
        return Launches(self.name)

    JitSpec.build_and_load = build_and_load


def not_compiled(whose: str, name: str) -> str:
    """Return the note on a module that nobody compiled."""
    return f"{whose} {name} is not compiled and does nothing: memory of its own is not counted"


def answer_benchmarks() -> None:
    """Let every way of compiling a kernel take the same time, so that the first one is kept."""
    try:
        benchmarker: Any = importlib.import_module(_BENCHMARKS).InductorBenchmarker
    except (ImportError, AttributeError):
        return
    timed = benchmarker.benchmark_gpu

    @functools.wraps(timed)
    def benchmark_gpu(self: Any, *arguments: Any, **named: Any) -> Any:
        seconds = timed(self, *arguments, **{**named, **_SELDOM})
        return [1.0] * len(seconds) if isinstance(seconds, list) else 1.0

    benchmarker.benchmark_gpu = benchmark_gpu
