"""Operators that `torch.library.custom_op` makes of a Python function: the function's body is what is
followed.

1. It is the one PyTorch would call for CUDA tensors: the one registered for CUDA, else the one for every
   device. It runs as it would on the GPU, below autograd, and believes in the GPU as the program around it
   does; its operators are recorded in the place of the whole.
2. An operator with a rule (`analyzer.rule`) is recorded as one. So is one that cannot be followed, such as a
   body that calls compiled code: it has the results its fake kernel says, and its other memory is unknown.

Source: `torch/_library/custom_ops.py` (`CustomOpDef.register_kernel`).

Not modelled: kernels in Python that are given to `torch.library.Library.impl`, which keeps none of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from analyzer.capture.pytorch.recording.recorder import Recorder


def followed(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a custom operator's Python body and return its result; NotImplemented if there is none to run. The
    program's own errors pass through."""
    definition = OPDEFS.get(func.name())
    kernels = {} if definition is None else definition._backend_fns
    body = kernels.get("cuda", kernels.get(None))
    if body is None or recorder.described(func.name()):
        return NotImplemented
    before = recorder.failed_call
    try:
        with torch._C._EnableTorchFunction(), recorder.believing():
            return body(*args, **kwargs)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        failed = recorder.failed_call
        if failed is not None and failed.error == id(error) and failed.fails_on_a_cpu():
            raise
        recorder.failed_call = before
        return NotImplemented
