"""Jagged nested tensors: their own Python code runs as it is, and asks which attention kernels a GPU has.

Source: `torch/nested/_internal/sdpa.py` (`_select_sdp_backend`),
`aten/src/ATen/native/transformers/cuda/sdp_utils.cpp` (`can_use_flash_attention`,
`can_use_mem_efficient_attention`): what they ask of a tensor besides, the Python code asks again.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from analyzer.capture.pytorch.importing import once_imported
from analyzer.capture.pytorch.patches import replaced

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.compatible import CompatibleDevices

MODULE = "torch.nested._internal.sdpa"
_WIDEST = 256
_HALF = (torch.float16, torch.bfloat16)


@contextlib.contextmanager
def nested_attention(compatible: CompatibleDevices) -> Iterator[None]:
    """While open, jagged tensors find the attention kernels of the GPU."""
    backends = torch.backends.cuda

    def has_flash(params: Any, debug: bool = False) -> bool:
        fits = params.query.dtype in _HALF and params.query.size(-1) <= _WIDEST and params.attn_mask is None
        return fits and backends.flash_sdp_enabled() and compatible.decided(lambda gpu: gpu.ampere)

    def has_efficient(params: Any, debug: bool = False) -> bool:
        wide = params.query.dtype is not torch.bfloat16 or compatible.decided(lambda gpu: gpu.ampere)
        return params.query.dtype in (*_HALF, torch.float32) and wide and backends.mem_efficient_sdp_enabled()

    with contextlib.ExitStack() as stack:

        def imported(_: ModuleType) -> None:
            importlib.import_module("torch.utils.flop_counter")  # whose name it looks up while any mode is on
            answers = {"can_use_flash_attention": has_flash, "can_use_efficient_attention": has_efficient}
            stack.enter_context(replaced({f"{MODULE}.{name}": answer for name, answer in answers.items()}))

        stack.enter_context(once_imported(MODULE, imported))
        yield
