"""How the results of CUDA's kernels lie: formats and types that several of them share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from analyzer.graph import lies_channels_last

META = torch.device("meta")
_RESULT = re.compile(r"(?:(\d)\?)?(\w+)([!~]?)(?: (\w+))?")
_ONE_DIMENSION, _VOLUMES = 3, 5  # batch, channels, then one length or three


def overload(name: str) -> Any:
    """Return the overload of an operator of `aten`: "sum.dim_IntList"; without one the default."""
    base, _, chosen = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), chosen or "default")


def channels_last_like(tensor: Any) -> bool:
    """Return whether a tensor's strides descend as those of a channels-last one."""
    return lies_channels_last(tensor.shape, tensor.stride())


def convolution_format(
    x: Any,
    weight: Any,
    stride: Any,
    transposed: bool,
    output_padding: Any,
    takes_bfloat16: Callable[[], bool] = lambda: True,
) -> torch.memory_format:
    """Return the format of a convolution's result and gradients. takes_bfloat16: cuDNN is given such ones.

    cuDNN works channels-last as soon as input or weight is (`ConvUtils.h`). A convolution of one dimension is
    one of two, of which the first has size 1: there the weight alone decides (`Convolution.cpp`: "avoid
    accidentally going through NHWC for permuted 3d input"), and the result lies as (N, C, 1, L) does.
    PyTorch's own kernels, which run where cuDNN is switched off, lacks the type or (a transposed convolution
    padded by a stride or more) the shape, work on contiguous tensors (`determine_backend_memory_format`).
    """
    padded_widely = transposed and any(
        more >= step for more, step in zip(output_padding, stride, strict=False)
    )
    if x.dtype is torch.float64 or padded_widely or not torch._C._get_cudnn_enabled():
        return torch.contiguous_format
    deciding = (weight.unsqueeze(2),) if x.dim() == _ONE_DIMENSION else (x, weight)
    layout = next(map(own_format, filter(channels_last_like, deciding)), torch.contiguous_format)
    if layout is not torch.contiguous_format and x.dtype is torch.bfloat16 and not takes_bfloat16():
        return torch.contiguous_format
    return layout


def own_format(x: Any) -> torch.memory_format:
    """Return the format that a tensor itself suggests (`TensorBase::suggest_memory_format`)."""
    if not channels_last_like(x):
        return torch.contiguous_format
    return torch.channels_last_3d if x.dim() == _VOLUMES else torch.channels_last


def like(tensor: Any) -> Any:
    """Return a contiguous tensor of this one's shape and type."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=META)


def in_format(shape: Any, dtype: torch.dtype, layout: torch.memory_format) -> Any:
    """Return a tensor in this format; of one dimension as of two."""
    if len(shape) == _ONE_DIMENSION:
        return in_format((*shape[:2], 1, shape[2]), dtype, layout).squeeze(2)
    return torch.empty(shape, dtype=dtype, device=META, memory_format=layout)


def like_arguments(func: Any, text: str) -> Callable[..., Any]:
    """Return the kernel of an operator whose results are like its arguments.

    text: for each result the argument's name, a `!` behind it where the result is contiguous, a `~` where it
    has the format that argument suggests, then the type where that is another one: its name, or that of the
    argument that says it. In front, `1?`: where that entry of `output_mask` is set. None for an argument that
    is not there.
    """
    places = {argument.name: place for place, argument in enumerate(func._schema.arguments)}
    parts = [_RESULT.fullmatch(part.strip()) for part in text.split(",") if part.strip()]
    each = [part.groups() for part in parts if part is not None]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        def value_of(name: str) -> Any:
            return args[places[name]] if places[name] < len(args) else kwargs.get(name)

        def result(wanted: str | None, name: str, layout: str, kind: str | None) -> Any:
            tensor = value_of(name)
            if tensor is None or (wanted and not value_of("output_mask")[int(wanted)]):
                return None
            dtype = (
                tensor.dtype if kind is None else value_of(kind) if kind in places else getattr(torch, kind)
            )
            formats = {"!": torch.contiguous_format, "~": own_format(tensor), "": torch.preserve_format}
            return torch.empty_like(tensor, dtype=dtype, device=META, memory_format=formats[layout])

        results = tuple(result(*part) for part in each)
        return results[0] if len(results) == 1 else results or None

    return kernel


def statistics(x: Any, *_: Any) -> Any:
    """Two values of each channel, as accumulated."""
    return tuple(torch.empty(x.size(1), dtype=accumulated(x.dtype), device=META) for _ in range(2))


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """`toAccumulateType` on CUDA: float32 for 16-bit floats."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
