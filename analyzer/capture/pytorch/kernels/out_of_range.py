"""Indices out of range, where their values are known: a kernel on a GPU ends the program there.

A CPU's kernel raises an error that names the index; CUDA's asserts, and the next call that waits for the
device raises "device-side assert triggered" (`CUDA_KERNEL_ASSERT`). Nothing of that shows in shapes. It is a
caveat beside the verdict, with the line, and the figures go on: the index may be one number in a million.

1. Rows of an embedding, places of `index_select`, `gather`, `scatter`, `index_add`: from 0 to one below their
   dimension's size.
2. Classes of a loss (`nll_loss`): the same, or the one that is ignored.
3. Indexing (`x[i]`) also takes negative ones, from the end.

Only values the program has itself made or read are looked at: not after one was assumed for it.

Source: `aten/src/ATen/native/cuda/Indexing.cu` (`indexSelectLargeIndex`, `indexFuncLargeIndex`),
`ScatterGatherKernel.cu`, `IndexKernel.cu`, `NLLLoss2d.cu`, `Loss.cu`, `EmbeddingBag.cu`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from analyzer.capture.pytorch.recording.recorder import OperatorHandler, Recorder
from analyzer.values.calls import DispatchedCall
from analyzer.values.sizes import is_mask

aten = torch.ops.aten
_CLASSES = 1  # the dimension of a loss's input


def _says(recorder: Recorder, index: Any, size: int, *, least: int = 0, ignored: int | None = None) -> None:
    """Add a caveat if a known index lies outside `least` to `size` - 1."""
    if not isinstance(index, torch.Tensor) or index.dtype.is_floating_point:
        return
    value = recorder.values.known(index) if index.numel() else None
    if value is None:
        return
    with _disable_current_modes():
        if ignored is not None:
            value = value[value != ignored]
        if not value.numel():
            return
        smallest, largest = (int(end) for end in value.aminmax())
    if smallest < least or largest >= size:
        wrong = smallest if smallest < least else largest
        where = recorder.places.line()
        recorder.caveat(
            f"{where or 'the program'}: index {wrong:,} is out of range of {size:,}: on a GPU the program"
            " ends there (device-side assert triggered)"
        )


def of_indexing(recorder: Recorder, source: torch.Tensor, indices: Any) -> None:
    """Look at what a tensor is indexed with."""
    if not _looks(recorder) or any(is_mask(index) for index in indices):
        return
    for place, index in enumerate(indices):
        if index is not None:
            size = int(source.shape[place])
            _says(recorder, index, size, least=-size)


def _looks(recorder: Recorder) -> bool:
    return recorder.values.stands_in and not recorder.values.stood_in


def _of_rows(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if _looks(recorder):
        call = DispatchedCall(func, args, kwargs)
        _says(recorder, call.argument("indices"), int(call.argument("weight").shape[0]))
    return NotImplemented


def _of_dimension(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if _looks(recorder):
        call = DispatchedCall(func, args, kwargs)
        source, dim = call.argument("self"), call.argument("dim")
        _says(recorder, call.argument("index"), int(source.shape[dim]) if source.dim() else 1)
    return NotImplemented


def _of_classes(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if _looks(recorder):
        call = DispatchedCall(func, args, kwargs)
        source = call.argument("self")
        classes = int(source.shape[_CLASSES if source.dim() > 1 else 0])
        _says(recorder, call.argument("target"), classes, ignored=call.argument("ignore_index", -100))
    return NotImplemented


HANDLERS: dict[Any, OperatorHandler] = {
    **dict.fromkeys(
        (aten.embedding.default, aten._embedding_bag.default, aten._embedding_bag_forward_only.default),
        _of_rows,
    ),
    **dict.fromkeys(
        (
            *(
                aten.index_select.default,
                aten.gather.default,
                aten.index_add.default,
                aten.index_add_.default,
            ),
            *(aten.scatter.value, aten.scatter_.value, aten.scatter.src, aten.scatter_.src),
            *(aten.scatter_add.default, aten.scatter_add_.default),
        ),
        _of_dimension,
    ),
    **dict.fromkeys((aten.nll_loss_forward.default, aten.nll_loss2d_forward.default), _of_classes),
}
