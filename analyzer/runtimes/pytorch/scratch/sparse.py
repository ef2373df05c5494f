"""Sparse tensors: sorting their entries, and products by cuSPARSE.

1. **coalesce** sorts the flattened indices with their positions by comparison and keeps the first of each run, both with
   thrust; then the values' result is made, and values that are not contiguous are copied.
2. **Products** with a dense matrix give cuSPARSE a buffer of 8 bytes for every 512 entries.
3. **Bags of embeddings** make, in this order, the bags' sizes, which bag each index is of, the result and, for the maximum,
   where it was.

Source: `aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu` (`_coalesce_sparse_cuda`), `cuda/EmbeddingBag.cu`; order and
sizes as in the recorded runs of `tests/programs/word_vectors.py` and `sparse_matrices.py`, up to 792,052 entries (H200, torch
2.11, `tests/data/h200`).

Not modelled: cuSPARSE on other GPUs.

The dense parts sparse operators consist of are told in `capture/pytorch/cuda/sparse.py`.
"""

from __future__ import annotations

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator
from analyzer.runtimes.pytorch.scratch.cub import merge_sort_bytes, thrust_unique_bytes
from analyzer.runtimes.pytorch.scratch.layout import contiguous_copy_bytes, tensor_at
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, rule


@rule("aten::_coalesce", name="coalesce")
def coalesce(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Thrust sorts the indices with their positions by merging, then keeps one of each: temporaries one after the other.
    The result follows; values that are not contiguous are copied.

    Arguments: (flat indices, values, positions, offsets)
    """
    flat, values = tensor_at(operator, 0), tensor_at(operator, 1)
    if flat is None or values is None:
        return
    count = flat.element_count
    script.release(script.temporary(merge_sort_bytes(count)))
    script.release(script.temporary(thrust_unique_bytes(count)))
    script.outputs()
    script.temporary(contiguous_copy_bytes(values))


@rule("aten::_sparse_mm", name="sparse-product", sure=Basis.MEASURED)
def sparse_product(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """cuSPARSE's buffer while it multiplies, of 8 bytes for every 512 entries and 7 more.

    Arguments: (result, row offsets, columns, values, dense matrix)
    """
    values = tensor_at(operator, 3)
    if values is not None and values.element_count:
        script.temporary(8 * -(-values.element_count // 512) + 7, Basis.MEASURED)


@rule("aten::_embedding_bag", name="embedding-bag")
def embedding_bag(_operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The bags' sizes, which bag each index is of, the result, and where the maximum was.

    Arguments: (weight, indices, offsets, ...); results: (result, bag of each index, sizes, places)
    """
    for result in (2, 1, 0, 3):
        script.output(result)
