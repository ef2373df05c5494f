"""A convolution differentiated twice: what PyTorch makes contiguous on CUDA alone, before it convolves.

`_convolution_double_backward` calls `contiguous()` on what it hands on as weights where that `is_cuda`: the
weight itself, its gradient, and the gradient of the result, transposed. Tensors without memory are not, so
the kernel would make the copy, behind its result.

Source: `aten/src/ATen/native/Convolution.cpp` (`_convolution_double_backward`).
"""

from __future__ import annotations

from typing import Any

import torch

from analyzer.capture.pytorch.recording.recorder import OperatorHandler, Recorder, ReplacementCall

aten = torch.ops.aten
_NODE = "ConvolutionBackwardBackward0"
_MADE = "analyzer: contiguous weights"


def _contiguous_weight(recorder: Recorder, func: Any, args: tuple[Any, ...], _: Any) -> Any:
    """Make the weight contiguous before a convolution of the second backward pass."""
    x, weight, *rest = args
    if weight.is_contiguous():
        return NotImplemented
    node: Any = torch._C._current_autograd_node()
    if node is None or node.name() != _NODE:
        return NotImplemented
    if weight.shape != node._saved_weight.shape:  # a variable of this convolution alone
        with recorder:
            return ReplacementCall(func, (x, weight.contiguous(), *rest))
    made = node.metadata.get(_MADE)
    if made is None:
        made = node.metadata[_MADE] = {}
        node.register_hook(lambda *_: made.clear())
    place = (weight.untyped_storage()._cdata, weight.storage_offset(), weight.stride())
    if place not in made:
        with recorder:
            made[place] = weight.contiguous()
    return ReplacementCall(func, (x, made[place], *rest))


HANDLERS: dict[Any, OperatorHandler] = {aten.convolution.default: _contiguous_weight}
