"""How the results of CUDA's kernels lie: formats and types that several of them share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from analyzer.graph import contiguous_strides, lies_channels_last
from analyzer.graph.strides import expanded_strides, iteration_order, without_gaps

META = torch.device("meta")
_NUMBER = torch.empty((), device=META)
_RESULT = re.compile(r"(?:(\d)\?)?(\w+)([!~]?)(?: (\w+))?")
_ONE_DIMENSION, _IMAGES, _VOLUMES = 3, 4, 5  # batch, channels, then one length, two or three


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


def iterator_strides(shape: Sequence[int], operands: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return the strides, in elements, of an elementwise kernel's new result of a shape.

    Operands that are all contiguous, or all channels-last, or dense with equal strides, are followed as they
    lie (`TensorIteratorBase::compute_fast_setup_type`). Else the result's dimensions descend as the operands'
    do, the first operand counting most; which of two equal strides comes first goes by the sizes
    (`reorder_dimensions`). A number beside a tensor is an operand of another shape: the latter holds there.
    """
    if all(tuple(one.shape) == tuple(shape) for one in operands):
        if all(one.is_contiguous() for one in operands):
            return contiguous_strides(shape)
        innermost = torch.channels_last  # of four dimensions alone: there is no such way for five
        if len(shape) == _IMAGES and all(one.is_contiguous(memory_format=innermost) for one in operands):
            return tuple(torch.empty(shape, device=META, memory_format=innermost).stride())
        strides = {one.stride() for one in operands}
        if len(strides) == 1 and is_dense(operands[0]):
            return tuple(strides.pop())
    expanded = [
        [step * one.element_size() for step in expanded_strides(one.shape, one.stride(), shape)]
        for one in operands
    ]
    return contiguous_strides(shape, iteration_order(shape, expanded))


def is_dense(x: torch.Tensor) -> bool:
    """Return whether a tensor's elements lie side by side in some order (`is_non_overlapping_and_dense`)."""
    return without_gaps(sorted(zip(x.stride(), x.shape, strict=True)))


# A number beside the tensor is an operand without dimensions (`BinaryOps.cpp`: `wrapped_scalar_tensor`).
_WITH_NUMBER = frozenset(
    """
    add sub rsub mul div floor_divide remainder fmod eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor
    xlogy copysign
    """.split()  # noqa: SIM905
)
# Composites of others, whose results lie otherwise: `masked_fill` copies, `isinf` compares an absolute value,
# `mvlgamma` sums over a range.
_NOT_ITERATED = frozenset(("masked_fill", "isinf", "mvlgamma", "rrelu", "ldexp.Tensor"))
# A tensor like the first, or a kernel that writes into such a one.
_LIKE = frozenset(
    """
    clone _to_copy empty_like zeros_like ones_like full_like rand_like randn_like randint_like hardtanh relu6
    nan_to_num deg2rad rad2deg conj_physical _conj_physical
    """.split()  # noqa: SIM905
)


def as_laid(func: Any, kernel: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return a function whose result has the strides of CUDA's also in dimensions of size 1, where PyTorch's
    functions for meta tensors have others; None for an operator of no such kind.

    Those strides decide whether a batch of one image counts as channels-last (`suggest_memory_format`), and
    so what a convolution converts: in the decoder of one image after its attention.
    """
    name, overloaded = func._schema.name.removeprefix("aten::"), func._schema.overload_name
    returns = func._schema.returns
    if func.namespace != "aten" or func._schema.is_mutable or len(returns) != 1:
        return None
    if returns[0].alias_info is not None or str(returns[0].type) != "Tensor":
        return None  # a view, or no tensor
    if not func._schema.arguments or str(func._schema.arguments[0].type) != "Tensor":
        return None  # of a number first: contiguous (`Pow.cpp`)
    if name in _LIKE:
        return _laid_like(kernel)
    if torch.Tag.pointwise not in func.tags or not _NOT_ITERATED.isdisjoint((name, f"{name}.{overloaded}")):
        return None
    beside = name in _WITH_NUMBER or overloaded.endswith("_scalar")

    def result(*args: Any, **kwargs: Any) -> Any:
        plain = kernel(*args, **kwargs)
        if plain.dim() not in (_IMAGES, _VOLUMES) or 1 not in plain.shape:
            return plain
        operands = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        if beside and len(operands) == 1:
            operands.append(_NUMBER)
        return _with_strides(plain, iterator_strides(plain.shape, operands))

    return result


def _laid_like(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for a tensor like another: a dense one's strides are kept as they are, where no
    format is asked (`empty_like`, `clone`: `TensorFactories.cpp`; `_to_copy`: `TensorConversions.cpp`)."""

    def result(x: Any, *args: Any, **kwargs: Any) -> Any:
        plain = kernel(x, *args, **kwargs)
        kept = kwargs.get("memory_format") in (None, torch.preserve_format)
        if plain.dim() not in (_IMAGES, _VOLUMES) or 1 not in plain.shape or not kept or not is_dense(x):
            return plain
        return _with_strides(plain, x.stride())

    return result


def _with_strides(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    if x.stride() == strides:
        return x
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
