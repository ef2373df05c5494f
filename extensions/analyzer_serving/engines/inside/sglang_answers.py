"""Answers, in its process, to SGLang where it bypasses the loader to reach the GPU; those to its libraries
are in `engine_answers.py`.

1. NCCL and the CUDA runtime are opened by their names.
2. It reads the GPU's memory, on which its defaults depend, from `nvidia-smi`: NVML reports the same.
3. It compiles its own kernels on first use (`load_jit`, by nvcc), and normalization is written in CUTLASS's
   Python (CuTe), which compiles it and has a CUDA runtime linked into it. Kernels compute nothing here: each
   call is one launch on the current stream, and writes where its caller said.

Source: SGLang 0.5.14, `srt/utils/common.py` (`get_nvgpu_memory_capacity`: MiB, the smallest of the GPUs),
`jit_kernel/utils.py` (`load_jit`), 0.5.17, `kernels/jit/utils/compile.py`; nvidia-cutlass-dsl 4.5,
`base_dsl/compiler.py` (`CompileCallable`). Not modelled: the kernels' own memory.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from engine_answers import Launches, answer_libraries, answer_openers, launched, not_compiled, note

_COMMON = "sglang.srt.utils.common"
_SMI = "get_nvgpu_memory_capacity"
_COMPILER = "cutlass.base_dsl.compiler"
# Where a release has the function that compiles its kernels.
_JIT = ("sglang.jit_kernel.utils", "sglang.kernels.jit.utils.compile", "sglang.kernels.jit.utils")
_SGLANG = "sglang.srt.distributed.device_communicators"
_RUNTIME = (f"{_SGLANG}.cuda_wrapper:find_loaded_library", "libcudart")
_OPENERS: tuple[tuple[str, ...], ...] = (
    (f"{_SGLANG}.pynccl_wrapper", "NCCLLibrary", f"{_SGLANG}.pynccl_wrapper:find_nccl_library"),
    (f"{_SGLANG}.cuda_wrapper", "CudaRTLibrary", *_RUNTIME),
    ("flashinfer.comm.cuda_ipc", "CudaRTLibrary", *_RUNTIME),
)


def answer_all() -> None:
    """Install every replacement below, before anything of SGLang has a function by its name."""
    answer_jit()
    answer_smi()
    answer_cute()
    answer_openers(_OPENERS)
    answer_libraries()


def answer_jit() -> None:
    """Launch SGLang's own kernels without compiling them, and report them."""
    for place in _JIT:
        try:
            module: Any = importlib.import_module(place)
        except ImportError:
            continue
        if hasattr(module, "load_jit"):
            module.load_jit = _loaded


def _loaded(*words: Any, **_: Any) -> Launches:
    name = "_".join(map(str, words))
    note(not_compiled("SGLang's", name))
    return Launches(name)


def answer_smi() -> None:
    """Let NVML say what `nvidia-smi` would."""
    module: Any = importlib.import_module(_COMMON)
    if hasattr(module, _SMI):
        setattr(module, _SMI, listed_mib)


def listed_mib() -> float:
    """Return the memory of the smallest GPU in MiB, as `nvidia-smi` lists it."""
    import pynvml

    pynvml.nvmlInit()
    devices = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    return float(min(pynvml.nvmlDeviceGetMemoryInfo(device).total for device in devices) // 2**20)


def answer_cute() -> None:
    """Launch CuTe's kernels without compiling them, and report them."""
    try:
        compiler: Any = importlib.import_module(_COMPILER).CompileCallable
    except (ImportError, AttributeError):
        return

    def compiled(_: Any, kernel: Any, *__: Any, **___: Any) -> Callable[..., None]:
        note(not_compiled("CuTe's", getattr(kernel, "__name__", type(kernel).__name__)))
        function: Callable[..., None] = launched
        return function

    compiler.__call__ = compiled
