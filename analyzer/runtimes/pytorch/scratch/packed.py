"""Kernels that copy many tensors at once and read where they lie from a table on the device.

1. `split_with_sizes_copy` into given tensors copies every part in one kernel, where all are contiguous and of
   one type: a table of 64-bit numbers has two addresses and a size for each part, a running count of blocks
   with one entry more than there are parts, and an entry for each block. A block copies 128 x 16 bytes, or as
   many times that as keep the number of blocks below what the GPU holds twice over.
2. `_chunk_cat` pads and gathers every tensor in one kernel: six numbers for each tensor, two more, and an
   entry for each block of 128 x 16 bytes of a tensor's part. Where one is not contiguous all are padded, or
   copied, one by one, and concatenated.

FSDP2 unshards parameters with the first and reduces gradients with the second (`_fsdp_collectives.py`), where
they are called `fsdp::split_with_sizes_copy` and `fsdp::chunk_cat`.

Source: `aten/src/ATen/native/cuda/TensorShape.cu` (`split_with_sizes_copy_out_cuda_contiguous_no_cast`,
`get_chunk_cat_metadata`, `pack_vecs`), `aten/src/ATen/native/TensorShape.cpp` (`_pad_chunk`).
Not modelled: parts that are not contiguous, which PyTorch copies one by one without a table.
"""

from __future__ import annotations

import math

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta, dtype_bytes
from analyzer.graph.model import tensors_in
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, is_contiguous, is_one_row
from analyzer.runtimes.pytorch.scratch.script import Script, rule

_TILE_BYTES = 128 * 16
_ENTRY_BYTES = 8


@rule("fsdp::split_with_sizes_copy", "aten::split_with_sizes_copy", name="split-table")
def split_with_sizes_copy(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """A table of addresses, sizes and blocks while the kernel is launched."""
    gathered = operator.tensor("all_gather_output", "self")
    sizes = operator.integers("all_gather_input_split_sizes", "split_sizes")
    out = tuple(tensors_in(operator.argument("out")))
    script.outputs()
    if gathered is None or sizes is None or not out:
        return
    dim = operator.integer("dim") % max(1, len(gathered.shape))
    row_bytes = math.prod(gathered.shape[dim + 1 :]) * dtype_bytes(gathered.dtype)
    chunk_bytes = [size * row_bytes for size in sizes]
    chunks = math.prod(gathered.shape[:dim])
    blocks = sum(-(-size // _TILE_BYTES) for size in chunk_bytes)
    most = device.sm_count * device.max_threads_per_sm // 128 * 2
    factor = max(1, -(-blocks * chunks // most))
    together = min(math.ceil(math.sqrt(factor)), max(1, chunks))
    times = -(-factor // together)
    blocks = sum(-(-size // (_TILE_BYTES * times)) for size in chunk_bytes)
    script.temporary((4 * len(chunk_bytes) + 1 + blocks) * _ENTRY_BYTES)


@rule("fsdp::chunk_cat", "aten::_chunk_cat", name="chunk-cat-table")
def chunk_cat(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """A table of addresses, sizes and blocks while the kernel is launched; it is made after the result. Of
    tensors that are not all contiguous the padded ones and copies, which come before it."""
    tensors = tuple(tensors_in(operator.argument("tensors")))
    if not all(map(is_contiguous, tensors)):
        _padded(operator, script, tensors)
        return
    script.outputs()
    out = next(tensors_in(operator.argument("out")), None)
    if tensors:
        dim = operator.integer("dim") % max(1, len(tensors[0].shape))
        chunks = max(1, operator.integer("num_chunks", default=1))
        element = dtype_bytes(out.dtype if out is not None else tensors[0].dtype)
        blocks = sum(
            -(
                -(-(-tensor.shape[dim] // chunks) * math.prod(tensor.shape[dim + 1 :]) * element)
                // _TILE_BYTES
            )
            for tensor in tensors
        )
        script.temporary((6 * len(tensors) + 2 + blocks) * _ENTRY_BYTES)


def _padded(operator: Operator, script: Script, tensors: tuple[TensorMeta, ...]) -> None:
    """A tensor whose dimension the chunks do not divide is padded; another one is copied unless a chunk's
    dimensions can be viewed as one."""
    dim = operator.integer("dim") % max(1, len(tensors[0].shape))
    chunks = max(1, operator.integer("num_chunks", default=1))
    held = []
    for tensor in tensors:
        size = tensor.shape[dim]
        if size % chunks:
            held.append(script.temporary(bytes_of(tensor) // size * (-(-size // chunks) * chunks)))
        elif not is_one_row((size // chunks, *tensor.shape[dim + 1 :]), tensor.stride[dim:]):
            held.append(script.temporary(bytes_of(tensor)))
    script.outputs()
    script.release(*held)
