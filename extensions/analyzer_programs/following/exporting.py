"""`torch.export` called by a program that is followed (`torch.distributed.pipelining.pipeline` splits a model
so).

Exporting makes fake tensors of the model's own, which must not be taken for those of the pretended device: it
runs outside all that watches the program, as it takes no memory of a device. A model with large parameters in
host memory, which have no memory here (`host.py`), is exported with all of its tensors like that, and its
examples too.

Not modelled: models that are on the device already when they are exported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import _pop_mode_temporarily
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

if TYPE_CHECKING:
    from analyzer.capture.pytorch.recording.recorder import Recorder


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """While open, nothing is recorded."""
    with contextlib.ExitStack() as modes:
        while torch._C._len_torch_function_stack():
            modes.enter_context(_pop_mode_temporarily())
        modes.enter_context(_disable_current_modes())
        yield


def exporting(recorder: Recorder) -> Callable[..., Any]:
    """Return the replacement of `torch.export.export`, which exports on meta tensors."""
    export = torch.export.export

    def call(model: torch.nn.Module, args: Any = (), kwargs: Any = None, **named: Any) -> Any:
        with outside():
            if any(tensor.is_meta for tensor in model.state_dict(keep_vars=True).values()):
                _without_memory(model, recorder)
                args, kwargs = tree_map_only(torch.Tensor, lambda t: t.to("meta"), (args, kwargs))
            return export(model, args, kwargs, **named)

    return call


def _without_memory(model: torch.nn.Module, recorder: Recorder) -> None:
    """Replace a model's parameters and buffers by meta tensors in host memory."""
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and not tensor.is_meta:
                    on_host: Any = recorder.storages.host(tensor.detach().to("meta"))
                    if isinstance(tensor, torch.nn.Parameter):
                        on_host = torch.nn.Parameter(on_host, tensor.requires_grad)
                    tensors[name] = on_host
