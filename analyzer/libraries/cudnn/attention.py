"""What cuDNN's plan for attention takes, beside what its frontend lays out in the same workspace for itself.

1. A plan takes 256 bytes, forward and backward.
2. Backward, where heads are grouped: key and value gradients of all query heads, in the inputs' type, before they are summed.
3. The frontend adds to that, backward: the query gradient in float32 and a float32 sum a query and head
   (`CompositeSDPABackwardNode`, cudnn_frontend 1.18: `dQ_accum_size`, `softmax_sum_size`).

Measured: recorded workspaces (H200, cuDNN 9.19; head sizes 32 to 256, sequences 49 to 4,096).
Not modelled: a single query; ragged batches.
"""

from __future__ import annotations

from typing import Any

CONTROL_BYTES = 256
_FLOAT = 4


def frontend_bytes(batch: Any, heads: Any, queries: Any, size: Any) -> Any:
    """What the frontend takes in the backward pass: float32 query gradients and sums."""
    return batch * heads * queries * (size + 1) * _FLOAT


def plan_bytes(full_head_bytes: Any = 0) -> Any:
    """What the plan takes. full_head_bytes: of key and value gradients of all query heads, where heads are grouped."""
    return CONTROL_BYTES + full_head_bytes
