"""Selection by values: where something is not zero, and what a mask selects or writes.

A mask as an **index** is looked through by `nonzero`, whose positions live until the kernel is done; how
many there are is told by the result, or by the values written; where neither tells, it is as many as the
mask has elements.

Source: `aten/src/ATen/native/cuda/Nonzero.cu`, `IndexingUtils.h` (`expandTensors`), `cuda/IndexKernel.cpp`
(`masked_select_out_cuda_impl`, `masked_scatter__cuda`); CUB's `dispatch_reduce.cuh`, `dispatch_select_if.cuh`
(`cub.py`). Orders and sizes as recorded (H200, torch 2.11, `tests/data/h200/operators_masks.json.gz`).

Not modelled: more than 2^31 elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta
from analyzer.runtimes.pytorch.scratch.cub import count_bytes, scan_bytes, select_bytes
from analyzer.runtimes.pytorch.scratch.layout import (
    broadcast_shape,
    contiguous_copy_bytes,
    expanded,
    is_contiguous,
)
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, filled, present, rule

MASKS = ("bool", "uint8")
# nonzero_static: elements a block looks at in one turn; 4 bytes a block of counts, 8 of their sums.
_STATIC_ELEMENTS, _STATIC_BYTES = 8192, (4, 8)
_POSITION_BYTES = _COUNT_BYTES = 8


def _positions(
    script: Script, device: DeviceProfile, mask: TensorMeta, count: int | None, result: int | None = None
) -> int:
    """`nonzero`: where `count` elements are not zero (all, if that is not known), as a temporary or as a
    result; the temporary's token."""
    elements = mask.element_count
    copy = script.temporary(contiguous_copy_bytes(mask))
    counted = script.temporary(4)
    script.release(script.temporary(count_bytes(device, elements)))
    position = -1
    if result is not None:
        script.output(result)
    elif mask.shape:
        most = elements if count is None else count
        basis = Basis.BOUNDED if count is None else Basis.EXACT
        position = script.temporary(most * len(mask.shape) * _POSITION_BYTES, basis)
    if mask.shape:
        script.release(script.temporary(select_bytes(device, elements)))
    script.release(counted, copy)
    return position


def looked_through(
    script: Script, device: DeviceProfile, indices: Sequence[TensorMeta | None], count: int | None
) -> tuple[tuple[TensorMeta | None, ...], list[int]]:
    """Indices with positions in place of masks, one a dimension, and the tokens of what holds them."""
    converted, tokens = list[TensorMeta | None](), list[int]()
    for index in indices:
        if index is None or index.dtype not in MASKS:
            converted.append(index)
            continue
        tokens.append(_positions(script, device, index, count))
        count_through = index.element_count if count is None else count
        converted += [replace(index, shape=(count_through,), stride=(1,), offset=0, dtype="int64")] * len(
            index.shape
        )
    return tuple(converted), tokens


def selected(
    source: TensorMeta, indices: Sequence[TensorMeta | None], values: TensorMeta, written: bool = False
) -> int | None:
    """Return how many positions a mask among the indices selects, from the shape of `values`; None where the
    values written are broadcast over all of them."""
    covered = [1 if index is None or index.dtype not in MASKS else len(index.shape) for index in indices]
    behind = len(source.shape) - sum(covered)
    dims = [place for place, index in enumerate(indices) if index is not None]
    together = bool(dims) and dims[-1] - dims[0] + 1 == len(dims)
    at = dims[0] if together else 0  # indices that are apart come first in the result
    rest = behind + sum(index is None for index in indices[at:])
    if len(values.shape) <= rest:
        return None
    count = values.shape[len(values.shape) - rest - 1]
    return None if written and count == 1 else count


@rule("aten::nonzero")
def nonzero(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """How many elements are not zero is summed up, then where they are is written: 8 bytes each and
    dimension."""
    _positions(script, device, present(operator, "self"), None, result=0)


@rule("aten::masked_select", name="masked-select")
def masked_select(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The mask is looked through, then its positions are taken. A mask that is broadcast is copied first, a
    single flag is a row of one (`masked_select_out_cuda_impl`)."""
    source, mask, result = present(operator, "self"), present(operator, "mask"), present(operator, 0)
    shape = broadcast_shape((mask, source)) or (1,)
    _positions(script, device, expanded(mask, shape), result.element_count)
    script.output(0)


@rule("aten::nonzero_static")
def nonzero_static(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """An input that is not contiguous is copied; every block counts, and the counts are summed up. There are
    at most as many blocks as multiprocessors: each takes as many turns as it needs.

    Source: `aten/src/ATen/native/cuda/Nonzero.cu` (`nonzero_static_cuda_out_impl`); sizes as PyTorch's own
    code asks for them (torch 2.11).
    """
    source, positions = filled(operator, "self"), present(operator, 0)
    script.outputs()
    if not positions.element_count:
        script.copies(source)
        return
    tiles = -(-source.element_count // _STATIC_ELEMENTS)
    blocks = -(-tiles // -(-tiles // device.sm_count))
    with script.function():
        script.copies(source)
        for nbytes in _STATIC_BYTES:
            script.temporary(blocks * nbytes)


@rule("aten::masked_scatter", "aten::masked_scatter_", name="masked-scatter")
def masked_scatter(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """The mask's running sum says which value goes where: 8 bytes an element, and CUB's scan. Mask and values
    are copied where they are not contiguous, a mask also where it is broadcast. The target has the result's
    shape, to which a tensor that is not changed itself is broadcast first.
    """
    mask, source = operator.tensor("mask"), operator.tensor("source")
    target = operator.outputs[0] or operator.tensor("self")
    script.outputs()
    if target is not None and mask is not None and target.element_count:
        script.temporary(target.element_count * _COUNT_BYTES)
        plain = mask.shape == target.shape and is_contiguous(mask)
        script.temporary(0 if plain else target.element_count)
        script.release(script.temporary(scan_bytes(device, target.element_count)))
        script.copies(source)
