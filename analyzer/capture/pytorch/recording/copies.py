"""Copies between the device and the host, and reading single values: operators for which it matters where
tensors lie.

1. A copy that is no plain copy of memory goes through a contiguous tensor on the device, made for it
   (`copy_requires_temporaries`, `aten/src/ATen/native/cuda/Copy.cu`). Types are converted on the host, as in
   every copy that waits.
2. So does one between GPUs of which neither reads the other's memory; those that do copy by a kernel.
3. On the host a tensor is a real one where its value is known, else without memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.recording.parts import has_parts, unwraps_itself
from analyzer.capture.pytorch.recording.recorder import META, OperatorHandler, Recorder
from analyzer.graph import Category
from analyzer.values.budget import STAND_IN_ELEMENTS

aten = torch.ops.aten
_CPU = torch.device("cpu")


def to_device(
    recorder: Recorder, tensor: torch.Tensor, dtype: Any = None, layout: Any = None, waits: bool = True
) -> torch.Tensor:
    """Copy a host tensor to the device, with its strides unless a layout is given; the host `waits`.

    Where it goes through another tensor, the result is made first.
    """
    if layout not in (None, torch.preserve_format) and not tensor.is_contiguous(memory_format=layout):
        result = aten.empty.memory_format(
            tensor.shape, dtype=dtype or tensor.dtype, device=META, memory_format=layout
        )
        source = to_device(recorder, tensor, dtype, waits=waits)
        return aten.copy_.default(result, source)  # type: ignore[no-any-return]
    kwargs = {
        "device": META,
        **({"dtype": dtype} if dtype else {}),
        **({"memory_format": layout} if layout else {}),
    }
    copy: torch.Tensor = aten._to_copy.default(tensor, **kwargs)
    if waits:
        recorder.storages.wait_here()
    return copy


class _Between(torch.autograd.Function):
    """A copy from one GPU to another; its gradient goes back."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, recorder: Recorder, gpu: int, kwargs: Any, waits: bool
    ) -> torch.Tensor:
        ctx.recorder, ctx.gpu, ctx.dtype = recorder, recorder.storages.gpu_of(tensor), tensor.dtype
        ctx.waits, ctx.sent_from = waits, gpu
        return _copied(recorder, tensor, gpu, kwargs, waits)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        nothing = (None,) * 4
        if ctx.recorder.storages.gpu_of(gradient) == ctx.gpu:
            return gradient, *nothing
        kwargs = {} if ctx.dtype is gradient.dtype else {"dtype": ctx.dtype}
        back: Any = _Between.apply
        return back(gradient, ctx.recorder, ctx.gpu, kwargs, ctx.waits), *nothing


def between(
    recorder: Recorder, tensor: torch.Tensor, gpu: int, dtype: Any, layout: Any, waits: bool
) -> torch.Tensor:
    """Copy a tensor to another GPU of the process. waits: the host does."""
    kwargs = {**({"dtype": dtype} if dtype else {}), "memory_format": layout}
    if tensor.requires_grad and torch.is_grad_enabled():
        apply: Any = _Between.apply
        copy: torch.Tensor = apply(tensor, recorder, gpu, kwargs, waits)
        return copy
    return _copied(recorder, tensor, gpu, kwargs, waits)


def _copied(recorder: Recorder, tensor: torch.Tensor, gpu: int, kwargs: Any, waits: bool) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), recorder.gpus.placing(gpu):  # which believes in one "meta"
        copy: torch.Tensor = aten._to_copy.default(tensor, device=META, **kwargs)
        _pass_on(recorder, copy, tensor, waits)
    return copy


def _pass_on(recorder: Recorder, target: torch.Tensor, source: torch.Tensor, waits: bool) -> None:
    """Record the contiguous tensors that a copy to another GPU goes through, where neither reads the other's
    memory and it is no plain copy. Types are converted on the source's GPU, or behind the copy where
    the host waits."""
    same = target.dtype is source.dtype
    if recorder.gpus.peers or (same and target.stride() == source.stride() and _is_dense(target)):
        return
    kept = []  # both live until the copy is done
    if not target.is_contiguous() or (waits and not same):
        dtype = source.dtype if waits else target.dtype
        kept.append(aten.empty.memory_format(target.shape, dtype=dtype, device=META))
    if not waits and not same:
        source = aten._to_copy.default(source, dtype=target.dtype)
        kept.append(source)
    if not source.is_contiguous():
        kept.append(aten.clone.default(source, memory_format=torch.contiguous_format))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether it has neither gaps nor overlaps: then a tensor like it has its strides."""
    with _disable_current_modes():
        return torch.empty_like(tensor.detach()).stride() == tensor.stride()


def to_host(recorder: Recorder, tensor: torch.Tensor, dtype: Any = None) -> torch.Tensor:
    """Return the device-to-host copy: a real tensor if its value is known, else a meta tensor on the host."""
    if has_parts(tensor):
        return recorder.composites.to_host(recorder, tensor, dtype)
    _gathered(recorder, tensor, dtype in (None, tensor.dtype))
    recorder.storages.wait_here()
    values = recorder.values
    value = values.known(tensor)
    if value is None and values.stands_in and tensor.numel() <= STAND_IN_ELEMENTS:
        value = values.host_value(tensor.detach())
    if value is not None:
        return value.clone() if dtype is None else value.to(dtype, copy=True)
    with _disable_current_modes():
        copy = torch.empty_like(tensor.detach(), dtype=dtype or tensor.dtype)
    recorder.storages.number(copy, "host copy", Category.ACTIVATION, on_device=False)
    return copy


def _gathered(recorder: Recorder, tensor: torch.Tensor, same: bool) -> None:
    """Record the contiguous device copy that a copy to the host reads. A copy without conversion (`same`)
    makes none where the tensor is dense."""
    if tensor.is_contiguous() or tensor.device.type != "meta" or unwraps_itself(type(tensor)):
        return
    with _disable_current_modes():
        if same and _is_dense(tensor):
            return
        if recorder.storages.in_host_memory(tensor):
            return
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=META)
    recorder.record(aten.clone.default, (tensor.detach(),), {"memory_format": torch.contiguous_format}, copy)


def _copy(recorder: Recorder, _: Any, args: Any, __: Any) -> Any:
    """Handle a copy from the device into a host tensor."""
    target, source, *more = args
    if recorder.gpus.several and not recorder.gpus.peers:
        gpu, other = recorder.storages.gpu_of(target), recorder.storages.gpu_of(source)
        if gpu is not None and other not in (None, gpu):
            with recorder, recorder.gpus.placing(gpu):
                _pass_on(recorder, target, source, not any(more))
            return NotImplemented
    if not (source.is_meta and recorder.storages.on_host(target)):
        return NotImplemented
    _gathered(recorder, source, source.dtype is target.dtype and source.stride() == target.stride())
    values = recorder.values
    if target.device.type == "cpu" and (values.stands_in or values.known(source) is not None):
        return values.copied(target, source)
    return NotImplemented


def _to_copy(recorder: Recorder, _: Any, args: Any, kwargs: Any) -> Any:
    """Handle a copy to the host."""
    (tensor,) = args
    to_cpu = kwargs.get("device") == _CPU
    if to_cpu and tensor.is_meta and not recorder.storages.in_host_memory(tensor):
        return to_host(recorder, tensor, kwargs.get("dtype"))
    return NotImplemented


def _item(recorder: Recorder, _: Any, args: Any, __: Any) -> Any:
    (tensor,) = args
    return recorder.values.item(tensor)


def _equal(recorder: Recorder, _: Any, args: Any, __: Any) -> Any:
    """`cuda_equal` (`aten/src/ATen/native/cuda/Equal.cpp`): of one shape, whether all are equal is read."""
    one, other = args
    if one.shape != other.shape or not one.numel():
        return one.shape == other.shape
    with recorder:
        compatible = aten.eq.Tensor(one, other)
        every = compatible.all()
        equal = bool(aten._local_scalar_dense.default(every))
        del every, compatible  # in the order of C++
        return equal


HANDLERS: dict[Any, OperatorHandler] = {
    aten.equal.default: _equal,
    aten.copy_.default: _copy,
    aten._to_copy.default: _to_copy,
    aten._local_scalar_dense.default: _item,
}
