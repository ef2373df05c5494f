"""The workspace of cuDNN's plan for attention, with the part its frontend lays out in it for itself.

1. A plan takes 256 bytes, forward and backward.
2. Backward, where heads are grouped: key and value gradients of all query heads, in the inputs' type, before
   they are summed.
3. The frontend adds to that, backward: the query gradient in float32 and a float32 sum a query and head
   (`CompositeSDPABackwardNode`, cudnn_frontend 1.18: `dQ_accum_size`, `softmax_sum_size`).
4. Forward with a single query, as in generation, takes nothing, or, where batch and heads alone do not fill
   the GPU and no causal mask is asked for, splits the keys: a float32 result and two float32 sums for every
   split, each rounded up to 128 bytes, and 128 bytes. The heads of a group are computed together, 16 at once;
   there are as many splits, a power of two from 4 to 64, as give at most two thread blocks a multiprocessor
   and each split 128 keys or more; up to 512 keys are not split.

Measured: all of 680 random calls, forward and backward, of an H100 (torch 2.11, cuDNN 9.19; head sizes 8 to
256, 1 to 4,096 positions, grouped heads, masks, dropout; `tests/data/h100/attention.jsonl.gz`); rule 4: all
of 3,094 of an H200 (`tests/data/h200/attention_single_query.json.gz`, by `benchmarks/cudnn/formulas.py`).
Not modelled: ragged batches. Not measured: a single query on 513 to 999 keys (taken by rule 4).
"""

from __future__ import annotations

from typing import Any

from analyzer.libraries.cudnn.convolution import up

_CONTROL_BYTES = 256
_SPLIT_CONTROL_BYTES = _ALIGNMENT_BYTES = 128
_FLOAT = 4
_HEADS_AT_ONCE = 16
_BLOCKS_PER_SM = 2
_SPLITS = (4, 8, 16, 32, 64)
_KEYS_PER_SPLIT = 128
_UNSPLIT_KEYS = 512
_LEAST_MEASURED_KEYS = 1000


def frontend_bytes(batch: Any, heads: Any, queries: Any, size: Any) -> Any:
    """Workspace bytes of the frontend in the backward pass: float32 query gradients and sums."""
    return batch * heads * queries * (size + 1) * _FLOAT


def backward_bytes(full_head_bytes: Any = 0) -> Any:
    """Workspace bytes of the backward plan. full_head_bytes: of key and value gradients of all query heads,
    where heads are grouped."""
    return _CONTROL_BYTES + full_head_bytes


def forward_bytes(
    query: tuple[Any, ...], key_heads: Any, keys: Any, sm_count: int, *, causal: bool = False
) -> Any:
    """Workspace bytes of the forward plan. query: (batch, heads, queries, size of a head).

    >>> forward_bytes((1, 32, 1, 128), 8, 4096, 132)
    532608
    """
    batch, heads, queries, size = query
    if queries != 1:
        return _CONTROL_BYTES
    if causal or keys <= _UNSPLIT_KEYS:
        return 0
    blocks = batch * key_heads * -(-(heads // key_heads) // _HEADS_AT_ONCE)
    possible = [
        count
        for count in _SPLITS
        if blocks * count <= _BLOCKS_PER_SM * sm_count and keys // _KEYS_PER_SPLIT >= count
    ]
    if not possible:
        return 0
    rows = max(possible) * batch * heads * _FLOAT
    return _SPLIT_CONTROL_BYTES + up(rows * size, _ALIGNMENT_BYTES) + 2 * up(rows, _ALIGNMENT_BYTES)


def is_measured(queries: Any, keys: Any) -> bool:
    """Return whether the number of queries and keys is among those that were measured."""
    return bool(queries != 1 or keys <= _UNSPLIT_KEYS or keys >= _LEAST_MEASURED_KEYS)
