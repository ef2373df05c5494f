"""torchvision's own operators, where its library is built for CUDA and PyTorch is not: then it cannot be
loaded.

1. When torchvision asks for its library, its operators are declared instead, with what its C++ registers for
   them: the gradients (`csrc/ops/autograd`) and autocast's casts to float32 and back (`csrc/ops/autocast`).
   Shapes come from torchvision itself (`_meta_registrations.py`).
2. Operators that are made of others on CUDA are followed into their parts: `nms`
   (`csrc/ops/cuda/nms_kernel.cu`: sort, sorted boxes, a bit for every pair of boxes, a flag for every box)
   and `deform_conv2d` (`deform_conv2d_kernel.cu`: at most 32 images at a time through a matrix of columns, a
   product for each group). The others fill their results (`inert.py`).
3. Boxes in host memory are kept as `csrc/ops/cpu/nms_kernel.cpp` keeps them; the other operators on real host
   tensors have no kernel here.

Not modelled: torchvision before 0.22, which decides on the host what to keep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from analyzer.capture.pytorch.patches import declared

aten = torch.ops.aten
_LIBRARY = "torchvision"
_MOST_IMAGES = 32  # kMaxParallelImgs
_BITS = 64
_ROI = "Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_IMAGES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_STEPS = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w,"
    " SymInt groups, SymInt offset_groups, bool use_mask"
)
_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": f"(Tensor input, {_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    "qroi_align": f"(Tensor input, {_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    "_roi_align_backward": f"(Tensor grad, {_ROI}, {_IMAGES}, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": f"(Tensor input, {_ROI}) -> (Tensor, Tensor)",
    "_roi_pool_backward": f"(Tensor grad, {_ROI.replace(', ', ', Tensor argmax, ', 1)}, {_IMAGES}) -> Tensor",
    "ps_roi_align": f"(Tensor input, {_ROI}, int sampling_ratio) -> (Tensor, Tensor)",
    "_ps_roi_align_backward": (
        f"(Tensor grad, {_ROI.replace(', ', ', Tensor channel_mapping, ', 1)}, int sampling_ratio, {_IMAGES})"
        " -> Tensor"
    ),
    "ps_roi_pool": f"(Tensor input, {_ROI}) -> (Tensor, Tensor)",
    "_ps_roi_pool_backward": (
        f"(Tensor grad, {_ROI.replace(', ', ', Tensor channel_mapping, ', 1)}, {_IMAGES}) -> Tensor"
    ),
    "deform_conv2d": (
        f"(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_STEPS}) -> Tensor"
    ),
    "_deform_conv2d_backward": (
        f"(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_STEPS}) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
    "_cuda_version": "() -> int",
}
_declared: list[torch.library.Library] = []  # what a library declared goes with it


def loading() -> Callable[[Any, str], None]:
    """Return the replacement of `torch.ops.load_library`, which declares torchvision's operators where its
    library does not load."""
    load = torch.ops.load_library

    def load_library(path: Any) -> None:
        try:
            load(path)  # type: ignore[no-untyped-call]
        except OSError:
            if _LIBRARY not in str(path):
                raise
            _declare()

    return load_library  # type: ignore[return-value]


def _declare() -> None:
    """Declare torchvision's operators, once."""
    library, new = declared(_LIBRARY, _SCHEMAS)
    _declared.append(library)
    if "roi_align" not in new:
        return
    library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    library.impl("nms", _kept_on_host, "CPU")
    for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"):
        torch.library.register_autograd(
            f"{_LIBRARY}::{name}", _backward_of(name), setup_context=_remember, lib=library
        )
    torch.library.register_autograd(
        f"{_LIBRARY}::deform_conv2d", _deform_backward, setup_context=_remember, lib=library
    )
    for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"):
        library.impl(name, _in_float32(name), "AutocastCUDA")


def _in_float32(name: str) -> Callable[..., Any]:
    """Return an operator as autocast calls it: in float32, its results in the input's type again."""
    kept = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

    def call(first: torch.Tensor, *rest: Any) -> Any:
        def cast(value: Any) -> Any:
            return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        with torch._C._ExcludeDispatchKeyGuard(kept):
            result = getattr(torch.ops.torchvision, name)(cast(first), *map(cast, rest))
            if name == "nms":
                return result
            if isinstance(result, tuple):
                return result[0].to(first.dtype), result[1].to(first.dtype)
            return result.to(first.dtype)

    return call


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    """Save the tensors the gradient needs (`csrc/ops/autograd`)."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    ctx.steps = [value for value in inputs if not isinstance(value, torch.Tensor)]
    if len(tensors) == 2:  # regions of an image: of the image only the shape
        extra = output[1:] if isinstance(output, tuple) else ()
        ctx.mark_non_differentiable(*extra)
        ctx.shape = tensors[0].shape
        tensors = [tensors[1], *extra]
    ctx.save_for_backward(*tensors)


def _backward_of(name: str) -> Callable[..., Any]:
    """Return the backward function of an operator on regions of an image."""

    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        rois, *extra = ctx.saved_tensors
        scale, height, width, *rest = ctx.steps
        call = getattr(torch.ops.torchvision, f"_{name}_backward")
        if name == "roi_align":
            image = call(grad, rois, scale, height, width, *ctx.shape, *rest)
        else:
            image = call(grad, rois, *extra, scale, height, width, *rest, *ctx.shape)
        return image, None, *(None for _ in ctx.steps)

    return backward


def _deform_backward(ctx: Any, grad: torch.Tensor) -> Any:
    gradients = torch.ops.torchvision._deform_conv2d_backward(grad, *ctx.saved_tensors, *ctx.steps)
    return *gradients, *(None for _ in ctx.steps)


def _kept_on_host(dets: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Non-maximum suppression on the host: return indices of the boxes kept, best score first."""
    order = torch.sort(scores, stable=True, dim=0, descending=True)[1]
    boxes, areas = dets[order], ((dets[:, 2] - dets[:, 0]) * (dets[:, 3] - dets[:, 1]))[order]
    alive = torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if alive[i]:
            low = torch.maximum(boxes[i, :2], boxes[i + 1 :, :2])
            high = torch.minimum(boxes[i, 2:], boxes[i + 1 :, 2:])
            overlap = (high - low).clamp(min=0).prod(1)
            alive[i + 1 :] &= overlap / (areas[i] + areas[i + 1 :] - overlap) <= iou_threshold
    return order[alive]


def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """`nms_kernel`, `nms_kernel.cu`."""
    if dets.numel() == 0:
        return torch.empty(0, dtype=torch.long, device=dets.device)
    order = aten.sort.stable(scores, stable=None, dim=0, descending=True)[1]
    boxes = dets.index_select(0, order)
    count = dets.size(0)
    bits = torch.empty(count * -(-count // _BITS), dtype=torch.long, device=dets.device)
    keep = torch.empty(count, dtype=torch.bool, device=dets.device)  # what it holds, only data tells
    kept = order.masked_select(keep)
    del boxes, bits
    return kept


def _images_at_once(batch: int) -> int:
    """`get_greatest_divisor_below_bound`."""
    return next(n for n in range(min(batch, _MOST_IMAGES), 0, -1) if batch % n == 0)


def deform_conv2d(
    x: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    """`deform_conv2d_forward_kernel`."""
    x, offset, weight, mask, bias = (t.contiguous() for t in (x, offset, weight, mask, bias))
    batch, outs, (height, width) = x.size(0), weight.size(0), offset.shape[2:]
    result = torch.zeros((batch, outs, height, width), dtype=x.dtype, device=x.device)
    at_once = _images_at_once(batch)
    rounds, area = batch // at_once, at_once * height * width
    buffer = torch.zeros((rounds, groups, outs // groups, area), dtype=x.dtype, device=x.device)
    rows = x.size(1) * weight.size(2) * weight.size(3)
    columns = torch.zeros((groups, rows // groups, area), dtype=x.dtype, device=x.device)
    filters = weight.view(groups, outs // groups, -1)
    for turn in range(rounds):
        for group in range(groups):
            buffer[turn][group].addmm_(filters[group], columns[group])
    result.view(rounds, at_once, outs, height, width).copy_(
        buffer.view(rounds, outs, at_once, height, width).transpose(1, 2)
    )
    return result + bias.view(1, outs, 1, 1)


def deform_conv2d_backward(
    grad: Any,
    x: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    """`deform_conv2d_backward_kernel`: gradients of the inputs, then of the filters."""
    grad, x, offset, weight, mask, bias = (t.contiguous() for t in (grad, x, offset, weight, mask, bias))
    batch, outs, (height, width) = x.size(0), weight.size(0), offset.shape[2:]
    at_once = _images_at_once(batch)
    rounds, area = batch // at_once, at_once * height * width
    rows = x.size(1) * weight.size(2) * weight.size(3)
    filters = weight.view(groups, outs // groups, -1)
    grad_x, grad_offset, grad_mask = torch.zeros_like(x), torch.zeros_like(offset), torch.zeros_like(mask)
    parts = grad.view(rounds, at_once, groups, outs // groups, height, width).permute(0, 2, 3, 1, 4, 5)
    columns = torch.empty((groups, rows // groups, area), dtype=x.dtype, device=x.device)
    for turn in range(rounds):
        columns.zero_()
        for group in range(groups):
            columns[group].addmm_(filters[group].t(), parts[turn][group].flatten(1))
    del columns
    grad_weight = torch.zeros_like(weight)
    parts = parts.contiguous()
    columns = torch.empty((groups, rows // groups, area), dtype=x.dtype, device=x.device)
    for turn in range(rounds):
        for group in range(groups):
            grad_weight.view(groups, outs // groups, -1)[group].addmm_(
                parts[turn][group].flatten(1), columns[group].t()
            )
    del columns, parts
    grad_bias = torch.ones_like(bias) * grad.sum((0, 2, 3))
    return grad_x, grad_weight, grad_offset, grad_mask, grad_bias


CHOICES: dict[str, Callable[..., Any]] = {
    "torchvision::nms.default": nms,
    "torchvision::deform_conv2d.default": deform_conv2d,
    "torchvision::_deform_conv2d_backward.default": deform_conv2d_backward,
}
