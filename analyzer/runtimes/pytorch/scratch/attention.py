"""Scaled dot-product attention: the memory-efficient, flash and cuDNN kernels, forward and backward.

1. **Random state.** The efficient kernel returns its seed and offset in host memory; from torch 2.14 on those
   of a call without dropout are on the device, and come first. cuDNN's are on the device and come first,
   flash's, a pair and a scalar, after its accumulators; flash takes one pair more when it drops out.
2. **Which kernel** (block_i × block_j): 64 × 64 up to head size 64; above, 128 × 64 on GPUs with enough
   shared memory (compute capability 8.0 and 9.0), and 128 × 128 in half precision up to 128; half precision
   accumulates gradients in registers up to the larger of the two.

Source: `aten/src/ATen/native/transformers/cuda/attention.cu`, `attention_backward.cu`,
`mem_eff_attention/kernel_backward.h` (`workspace_size`) and `kernels/generate_kernels.py`;
`flash_attn/flash_api.cpp` (`mha_fwd`, `mha_bwd`, `set_params_splitkv`); `aten/src/ATen/native/cudnn/MHA.cpp`.
The sizes of cuDNN's workspaces are its own: read off recorded workspaces (H200, cuDNN 9.19; head sizes 32 to
256, sequences 49 to 4,096).

Not modelled: deterministic mode.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.devices import DeviceProfile
from analyzer.graph import Operator, TensorMeta
from analyzer.libraries.cudnn.attention import backward_bytes, forward_bytes, frontend_bytes
from analyzer.releases import Span
from analyzer.runtimes.pytorch.scratch.layout import bytes_of, permuted
from analyzer.runtimes.pytorch.scratch.reduction import sum_over
from analyzer.runtimes.pytorch.scratch.script import Basis, Script, present, rule

_FLOAT = 4
_HALF = frozenset({"float16", "bfloat16"})
_FLASH_STATE_BYTES = 16
_MANY_HEADS, _FEW_BLOCKS, _MOST_PARTS = 256, 2, 200
_BATCHED = 4  # dimensions of a batch; rows behind each other have one less


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _swapped(tensor: TensorMeta) -> TensorMeta:
    """(batch, heads, sequence, size) seen as (batch, sequence, heads, size)."""
    return permuted(tensor, (0, 2, 1, 3))


def _random_state(operator: Operator) -> list[int]:
    """Indices of the results that hold random-number state: scalars, or the pair, of 64-bit integers."""
    return [
        index
        for index, result in enumerate(operator.outputs)
        if result is not None and result.dtype in ("int64", "uint64") and result.shape in ((), (1,), (2,))
    ]


def _dropout(operator: Operator) -> float:
    value = operator.argument("dropout_p", default=0.0)
    return float(value) if isinstance(value, int | float) else 0.0


# The releases of torch whose efficient kernel makes the seeds it has no use for on the device (seen in the
# binaries of 2.6 to
# 2.15: `tests/data/releases`).
_SEEDS_ON_DEVICE = Span(since=(2, 14))
# Seen in 2.6; 2.7 has it on the device (`tests/data/releases`).
_FLASH_STATE_ON_HOST = Span(until=(2, 6))


@rule(
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_efficient_attention_forward",
    name="mem-eff-attention",
)
def efficient(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """The memory-efficient kernel's seed and offset stay in host memory (from torch 2.14 on, without dropout,
    they are allocated before the other results); above head size 128 in half precision it accumulates in
    float32 beside the output.
    """
    dropout = _dropout(operator)
    for index in _random_state(operator):
        if script.torch_release in _SEEDS_ON_DEVICE and not dropout:
            script.output(index)
        else:
            script.on_host(index)
    script.outputs()
    value, result = present(operator, "value"), present(operator, 0)
    if value.shape[-1] > 128 and result.dtype in _HALF:
        script.temporary(result.element_count * _FLOAT)


def _heads_first(operator: Operator, tensors: list[TensorMeta]) -> list[TensorMeta]:
    """Tensors of attention as (batch, heads, sequence, size): the kernels themselves, which
    `scaled_dot_product_attention` calls, have the sequence before the heads."""
    direct = "_scaled_dot_product_" not in operator.name
    return [_swapped(tensor) for tensor in tensors] if direct else tensors


def _jagged(operator: Operator, query: TensorMeta, key: TensorMeta) -> tuple[int, int, int]:
    """Return the number of packed sequences, and the longest of queries and of keys."""
    rows = operator.tensor("cu_seqlens_q")
    if rows is None or not rows.element_count:
        return query.shape[0], query.shape[2], key.shape[2]
    return rows.shape[0] - 1, operator.integer("max_seqlen_q"), operator.integer("max_seqlen_k")


@rule(
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_efficient_attention_backward",
    name="mem-eff-attention-grad",
)
def efficient_backward(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Before the three gradients, a copy of an incoming gradient that is not contiguous as (batch, sequence,
    heads, size); after them `delta`, one float32 a query and head (for float32: through a product of the
    outputs' size), and the kernel's workspace: tiles with locks per query block, and float32 accumulators
    where the gradients do not fit registers. Below compute capability 7 keys are not split, and float32 needs
    no workspace (`kEnableSplitKeys`, `kernel_backward.h`).
    """
    names = ("grad_out_", "query", "key", "value", "out")
    grad, query, key, value, out = _heads_first(operator, [present(operator, name) for name in names])
    script.copies(_swapped(grad))
    direct = "_scaled_dot_product_" not in operator.name
    wants_bias = (
        bool(operator.argument("bias_requires_grad")) if direct else operator.flags("grad_input_mask", 4)[3]
    )
    for index in range(4 if wants_bias else 3):
        if index < len(operator.outputs):
            script.output(index)
    batch, heads, queries, _ = query.shape
    delta_bytes = batch * heads * queries * _FLOAT
    half = query.dtype in _HALF
    if half:
        delta = script.temporary(delta_bytes)
    else:
        product = replace(_swapped(out), offset=0, dtype="float32")
        product_token = script.temporary(bytes_of(product))
        delta = script.temporary(delta_bytes)
        sum_over(script, device, product, (3,))
        if heads > 1 and queries > 1:
            sums, delta = delta, script.temporary(delta_bytes)
            script.release(sums)
        script.release(product_token)
    sequences = _jagged(operator, query, key)
    if half or device.architecture.volta:
        limit = operator.argument("num_splits_key") if direct else None
        most = limit if isinstance(limit, int) else None
        script.temporary(_efficient_workspace(query, value, sequences, device, most))
    script.release(delta)


def _efficient_workspace(
    query: TensorMeta,
    value: TensorMeta,
    sequences: tuple[int, int, int],
    device: DeviceProfile,
    most_parts: int | None = None,
) -> int:
    """Return the bytes of the backward kernel's workspace: per batch and head, a float32 tile of block_i x
    block_j with 16 bytes of locks for each tile of the query gradient, and float32 accumulators for key and
    value gradients that do not fit registers. Blocks are 64 x 64 up to head size 64, above that as shared
    memory and precision allow. most_parts: into how many the caller lets keys be split.
    """
    _, heads, _, size = query.shape
    (batch, queries, keys), value_size = sequences, value.shape[3]
    largest, half = max(size, value_size), query.dtype in _HALF
    architecture = device.architecture
    roomy = architecture.roomy_tiles == "all" or (architecture.roomy_tiles == "half" and half)
    block_i = 128 if largest > 64 and roomy else 64
    most = next((limit for limit in (32, 64, 128) if largest <= limit), 1 << 16)
    in_registers = half and most <= block_i
    block_j = 128 if in_registers and architecture.ampere and most > 64 else 64
    elements = -(-queries // block_i) * -(-size // block_j) * (block_i * block_j + 4)
    if half and not in_registers:
        parts = _key_parts(-(-keys // block_j), batch * heads, most_parts) if architecture.volta else 1
        elements += parts * block_j * (_round_up(size, block_i) + _round_up(value_size, block_i))
    return batch * heads * _round_up(elements, 4) * _FLOAT


def _key_parts(blocks: int, heads: int, most: int | None) -> int:
    """Return into how many parts keys are split that accumulate their gradients: one a block, unless all
    heads of all batches are many. blocks: of keys. most: the caller's limit.

    Source: `attention_backward.cu` (`num_splits_key`).
    """
    if most is not None:
        return max(min(blocks, most), 1)
    if heads >= _MANY_HEADS and blocks <= _FEW_BLOCKS:
        return 1
    return max(min(blocks, _MOST_PARTS // max(heads, 1)), 1)


@rule(
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_cudnn_attention_forward",
    name="cudnn-attention",
    sure=Basis.MEASURED,
)
def cudnn(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """cuDNN's attention keeps seed and offset on the device, allocated before the other results, and takes
    256 bytes of workspace; for a single query nothing, or float32 results of every part the keys are split
    into, where batch and heads alone do not fill the GPU (measured: `analyzer/libraries/cudnn/attention.py`).
    """
    script.library("cudnn")
    for index in _random_state(operator):
        script.output(index)
    script.outputs()
    query, key = operator.tensor("query"), operator.tensor("key")
    if query is None or key is None or len(query.shape) != 4:
        script.temporary(backward_bytes(), Basis.MEASURED)
        return
    causal = bool(operator.argument("is_causal"))
    nbytes = forward_bytes(query.shape, key.shape[1], key.shape[2], device.sm_count, causal=causal)
    script.temporary(nbytes, Basis.MEASURED)


@rule(
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_cudnn_attention_backward",
    name="cudnn-attention-grad",
    sure=(Basis.EXACT, Basis.MEASURED),
)
def cudnn_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """One workspace: a float32 query gradient, a float32 sum a query and head, full-head key and value
    gradients when heads are grouped, and 256 bytes (read off recorded workspaces). A gradient whose last
    dimension is not dense is first copied to the output's layout (`run_cudnn_SDP_bprop`, cudnn/MHA.cpp, for
    cuDNN 9.5.1 and newer).
    """
    script.library("cudnn")
    grad, query, key, value = (operator.tensor(name) for name in ("grad_out", "query", "key", "value"))
    script.outputs()
    if query is None:
        query, key, value = operator.outputs[:3]
    if query is None or key is None or value is None:
        return
    if grad is not None and grad.stride and grad.stride[-1] != 1:
        script.temporary(bytes_of(grad))
    batch, heads, queries, size = query.shape
    grouped = [tensor for tensor in (key, value) if tensor.shape[1] != heads]
    full_heads = sum(bytes_of(tensor) // tensor.shape[1] * heads for tensor in grouped)
    script.temporary(frontend_bytes(batch, heads, queries, size) + backward_bytes(full_heads), Basis.MEASURED)


@rule("aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward", name="flash-attention")
def flash(operator: Operator, device: DeviceProfile, script: Script) -> None:
    """Flash attention splits the keys among thread blocks when the queries alone do not fill the GPU: float32
    sums and results of every split, before the result. Its random state, a pair and a scalar, comes last;
    when it drops out, another pair comes first and is given back. torch 2.6 has it in host memory.
    """
    random_state = _random_state(operator)
    for index in range(len(operator.outputs)):
        if index not in random_state:
            script.output(index)
        elif script.torch_release in _FLASH_STATE_ON_HOST:
            script.on_host(index)
    query, key = operator.tensor("query"), operator.tensor("key")
    if query is None or key is None or len(query.shape) != _BATCHED:
        script.outputs()
        return
    if "_scaled_dot_product_" not in operator.name:
        query, key = _swapped(query), _swapped(key)
    batch, heads, queries, size = query.shape
    keys = key.shape[2]
    drops = _dropout(operator) > 0
    padded = _round_up(size, 32 if size <= 128 else 64)
    block_keys = 256 if padded <= 64 else (128 if padded <= 128 else 64)
    blocks = batch * heads * -(-queries // 64)
    splits = 1 if drops else _flash_splits(blocks, device.sm_count * 2, -(-keys // block_keys))
    if splits > 1:
        sums = script.temporary(splits * batch * heads * queries * _FLOAT)
        results = script.temporary(splits * batch * heads * queries * padded * _FLOAT)
        script.outputs()
        script.release(sums, results)
    elif drops and script.torch_release not in _FLASH_STATE_ON_HOST:
        unused = script.temporary(_FLASH_STATE_BYTES)
        for index in reversed(random_state):  # the scalar, then the pair that takes the place of the first
            script.output(index)
        script.release(unused)
    script.outputs()


def _flash_splits(blocks: int, slots: int, key_blocks: int) -> int:
    """Return the split count with at least 85 % of the best occupancy (`num_splits_heuristic`)."""
    if blocks >= 0.8 * slots:
        return 1
    most = min(128, slots, key_blocks)
    eligible = [
        splits
        for splits in range(1, most + 1)
        if splits == 1 or -(-key_blocks // splits) != -(-key_blocks // (splits - 1))
    ]
    occupancy = {}
    for splits in eligible:
        waves = blocks * splits / slots
        occupancy[splits] = waves / -(-blocks * splits // slots)
    best = max(occupancy.values(), default=0.0)
    return next((splits for splits in eligible if occupancy[splits] >= 0.85 * best), 1)


@rule(
    "aten::_scaled_dot_product_flash_attention_backward",
    "aten::_flash_attention_backward",
    name="flash-attention-grad",
)
def flash_backward(operator: Operator, _device: DeviceProfile, script: Script) -> None:
    """Float32 `softmax_d` and a query-gradient accumulator over sequences padded to 128 and head sizes padded
    to 32 (64 above 128), and full-head key and value gradients when heads are grouped; before all, contiguous
    copies of the gradient and of the result (`_flash_attention_backward`,
    transformers/cuda/attention_backward.cu).
    """
    if len(operator.inputs[0].shape) != _BATCHED:
        _ragged_flash_backward(operator, script)
        return
    names = ("grad_out", "query", "key", "value", "out")
    grad, query, key, value, out = _heads_first(operator, [present(operator, name) for name in names])
    script.copies(_swapped(grad), _swapped(out))
    script.outputs()
    batch, heads, queries, size = query.shape
    padded_queries = _round_up(queries, 128)
    padded_size = _round_up(size, 32 if size <= 128 else 64)
    script.temporary(batch * heads * padded_queries * _FLOAT)
    script.temporary(batch * heads * padded_queries * padded_size * _FLOAT)
    if key.shape[1] != heads:
        for tensor in (key, value):
            script.temporary(bytes_of(tensor) // tensor.shape[1] * heads)


def _ragged_flash_backward(operator: Operator, script: Script) -> None:
    """Allocate for packed sequences: an accumulator of all rows and 128 more per sequence (`mha_varlen_bwd`,
    flash_api.cpp)."""
    script.outputs()
    query, rows = present(operator, "query"), present(operator, "cum_seq_q")
    (total, heads, size), batch = query.shape, rows.shape[0] - 1
    padded_size = _round_up(size, 32 if size <= 128 else 64)
    padded = _round_up(operator.integer("max_q"), 128)
    script.temporaries(batch * heads * padded * _FLOAT, (total + 128 * batch) * heads * padded_size * _FLOAT)
