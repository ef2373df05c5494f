"""Indices and values that lie on the host, of a tensor on the GPU: what is copied to it before the kernel
runs.

1. A number written through a mask alone (`x[mask] = 0`) fills by the mask: nothing is looked up
   (`canDispatchToMaskedFill`).
2. Any other number on the host is copied to the GPU first, then the indices. A mask on the host is looked
   through there: the positions where it is true are copied, all dimensions in one piece.
3. Rows that are written through a mask alone say how many of it are true.

Masks on the GPU are looked through by the kernel itself (`runtimes/pytorch/scratch/selection.py`).

Source: `aten/src/ATen/native/TensorAdvancedIndexing.cpp` (`_index_put_impl_`, `make_info`),
`TensorAdvancedIndexingUtils.h`, `IndexingUtils.h` (`expandTensors`); recorded calls (H200, torch 2.11,
`tests/data/h200/operators_masks.json.gz`: "indices on the host").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import compute_elementwise_output_strides

from analyzer.capture.pytorch.kernels.out_of_range import of_indexing
from analyzer.capture.pytorch.recording.copies import to_device
from analyzer.capture.pytorch.recording.recorder import OperatorHandler, Recorder, ReplacementCall
from analyzer.values.counts import rows
from analyzer.values.sizes import is_mask

aten = torch.ops.aten
_FILLS = {
    aten.index_put.default: aten.masked_fill.Scalar,
    aten.index_put_.default: aten.masked_fill_.Scalar,
    aten._index_put_impl_.default: aten.masked_fill_.Scalar,
    aten._unsafe_index_put.default: aten.masked_fill.Scalar,
}


def _on_device(recorder: Recorder, func: Any, args: tuple[Any, ...], _: Any) -> Any:
    """Return the call as the kernel gets it. args: a GPU tensor, indices, and values if written."""
    target, indices, *rest = args
    if recorder.storages.on_host(target):
        return NotImplemented
    of_indexing(recorder, target, indices)
    if rest and len(indices) == 1 and is_mask(mask := indices[0]):
        count = rows(target, mask, rest[0])
        if count is not None:
            recorder.values.selects(mask, count)
    with recorder:
        if rest and rest[0].dim() == 0 and recorder.storages.on_host(rest[0]):
            mask = None if any(rest[1:2]) else _alone(recorder, indices, target)
            if mask is not None and rest[0].device.type != "meta":
                return ReplacementCall(_FILLS[func], (target, mask, rest[0].item()))
            rest[0] = to_device(recorder, rest[0])
        if any(index is not None and recorder.storages.on_host(index) for index in indices):
            indices = [part for index in indices for part in _moved(recorder, index)]
        if rest:
            rest[0] = _spread(recorder, target, indices, rest[0])
    return ReplacementCall(func, (target, indices, *rest))


def _alone(recorder: Recorder, indices: Any, target: torch.Tensor) -> torch.Tensor | None:
    """Return the mask that is the only index, padded with dimensions of one; None otherwise."""
    tensors = [index for index in indices if index is not None]
    if len(tensors) != 1 or not is_mask(tensors[0]) or recorder.storages.on_host(tensors[0]):
        return None
    mask: torch.Tensor = tensors[0]
    before = next(place for place, index in enumerate(indices) if index is not None)
    return mask[(...,) + (None,) * (target.dim() - before - mask.dim())]


def _spread(recorder: Recorder, target: torch.Tensor, indices: Any, values: torch.Tensor) -> torch.Tensor:
    """Expand the values written through a single known mask to the number of elements it selects."""
    place, mask = next((place, index) for place, index in enumerate(indices) if index is not None)
    if not is_mask(mask) or any(index is not None for index in indices[place + 1 :]):
        return values
    value = recorder.values.known(mask)
    if value is None:
        return values
    before, behind = target.shape[:place], target.shape[place + mask.dim() :]
    return values.expand(*before, int(value.count_nonzero()), *behind)


def _moved(recorder: Recorder, index: Any) -> list[Any]:
    """Return an index as used: itself, its copy on the GPU, or one per dimension of a host mask."""
    if index is None or not recorder.storages.on_host(index):
        return [index]
    if not is_mask(index) or index.device.type == "meta":
        return [to_device(recorder, index)]
    positions = to_device(recorder, index.nonzero())
    return list(aten.unbind.int(positions, 1))


def as_iterated(operator: Any) -> Callable[[Any, Any], Any]:
    """Return an indexing operator whose result lies as the source and the indices lie together (`index`'s
    `TensorIterator`); PyTorch's function for meta tensors looks at the source alone."""

    def laid_out(source: Any, indices: Any) -> Any:
        result = operator(source, indices)
        places = [place for place, index in enumerate(indices) if index is not None]
        given = [indices[place] for place in places]
        if not result.numel() or any(is_mask(index) or index.device != result.device for index in given):
            return result
        shape = torch.broadcast_shapes(*(index.shape for index in given))
        given = [index.expand(shape) for index in given]
        if any(index.stride() != given[0].stride() for index in given):
            given = [index.contiguous() for index in given]  # all of them, on CUDA
        together = places[-1] - places[0] < len(places)
        others = [place for place in range(source.dim()) if place not in places]
        before = places[0] if together else 0
        behind = result.dim() - before - len(shape)
        strides = [source.stride(place) for place in others]
        replaced = source.as_strided(result.shape, (*strides[:before], *[0] * len(shape), *strides[before:]))
        ones = (*[1] * before, *shape, *[1] * behind)
        spread = [index.reshape(ones).expand(result.shape) for index in given]
        return result.new_empty_strided(result.shape, compute_elementwise_output_strides(replaced, *spread))

    return laid_out


RESULTS = {operator: as_iterated(operator) for operator in (aten.index.Tensor, aten._unsafe_index.Tensor)}
HANDLERS: dict[Any, OperatorHandler] = dict.fromkeys(
    (*_FILLS, aten.index.Tensor, aten._unsafe_index.Tensor), _on_device
)
