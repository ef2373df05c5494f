"""The device that PyTorch puts new tensors on where none is named: each thread has a default of its own.

`torch.set_default_device` and `with torch.device(...)` push a mode onto the thread's own stack, below all
others; a thread that is started begins without. (`torch.utils._device.CURRENT_DEVICE` is that of whichever
thread chose last.)

Source: `torch/utils/_device.py` (`DeviceContext.__enter__`), `torch/__init__.py` (`set_default_device`,
`get_default_device`).
"""

from __future__ import annotations

import torch
from torch.utils._device import DeviceContext

_len_torch_function_stack = torch._C._len_torch_function_stack
_get_function_stack_at = torch._C._get_function_stack_at


def default_device() -> torch.device | None:
    """Return this thread's default device, None where it has chosen none."""
    if not _len_torch_function_stack():
        return None
    lowest = _get_function_stack_at(0)
    return lowest.device if isinstance(lowest, DeviceContext) else None
