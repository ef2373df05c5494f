"""Answers, in its process, to vLLM where it bypasses the loader to reach the GPU; those to its libraries are
in `engine_answers.py`.

1. NCCL and the CUDA runtime are opened by their names.
2. FlashInfer's experts have a workspace of a size that only they know: vLLM takes Triton's instead, as it
   does where there is no FlashInfer.
3. The engine reads from the weights' files which layers GPTQ quantized. Without files they are the layers of
   the transformer's blocks, GPTQ's default.
4. vLLM inspects a model's class in a process of its own, which imports all of vLLM once more, so that its
   own does not initialize CUDA and can fork. This process does not fork, and imports the class next.

Source: vLLM 0.19, `distributed/device_communicators/pynccl_wrapper.py`, `cuda_wrapper`,
`layers/quantization/gptq_marlin.py` (`maybe_update_config`), `model_executor/models/registry.py`
(`_run_in_subprocess`).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from engine_answers import answer_libraries, answer_openers, note

_REGISTRY = "vllm.model_executor.models.registry"
_FLASHINFER = "vllm.utils.flashinfer"
_EXPERTS = "has_flashinfer_cutlass_fused_moe"
_QUANTIZATION = "vllm.model_executor.layers.quantization"
_VLLM = "vllm.distributed.device_communicators"
_RUNTIME = ("vllm.utils.system_utils:find_loaded_library", "libcudart")
_OPENERS: tuple[tuple[str, ...], ...] = (
    (f"{_VLLM}.pynccl_wrapper", "NCCLLibrary", "vllm.utils.nccl:find_nccl_library"),
    (f"{_VLLM}.cuda_wrapper", "CudaRTLibrary", *_RUNTIME),
    ("flashinfer.comm.cuda_ipc", "CudaRTLibrary", *_RUNTIME),
)


def answer_all() -> None:
    """Install every replacement below for the libraries this environment has."""
    answer_openers(_OPENERS)
    answer_libraries()
    answer_experts()
    answer_gptq()
    answer_registry()


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
