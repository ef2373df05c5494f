"""Part `attention`: cuDNN's attention forward and backward, and what PyTorch allocated for it.

Rows: type, batch, heads, heads of keys, queries, keys, size of a head, size of a value, causal, dropout, mask (sizes of batch, heads,
queries; 0: none), heads before positions in memory, then the requests of the forward pass, of the backward pass, or an error.
"""

from __future__ import annotations

import random
from typing import Any


def cases() -> list[tuple[Any, ...]]:
    """A fixed draw of calls: everyday shapes, and odd ones."""
    drawn, found = random.Random(3), []
    for _ in range(6000):
        heads, groups = drawn.choice(
            ((8, 8), (12, 12), (16, 16), (4, 4), (1, 1), (3, 3), (8, 2), (32, 8), (16, 1))
        )
        size = drawn.choice((64, 64, 128, 32, 96, 80, 16, 8, 40, 256, 192, 160))
        queries = drawn.choice(
            (1, 2, 16, 49, 64, 100, 127, 128, 129, 197, 200, 256, 257, 384, 512, 577, 1000, 1024, 2048, 4096)
        )
        keys = (
            queries if drawn.random() < 0.6 else drawn.choice((1, 7, 64, 77, 128, 129, 256, 300, 1024, 2048))
        )
        batch = drawn.choice((1, 2, 3, 4, 8, 16, 32))
        causal, dropout = drawn.random() < 0.4, drawn.choice((0.0, 0.0, 0.1))
        kinds = (
            (0, 0, 0),
            (0, 0, 0),
            (1, 1, queries),
            (batch, 1, queries),
            (batch, heads, queries),
            (batch, 1, 1),
        )
        mask = (0, 0, 0) if causal else drawn.choice(kinds)
        if batch * heads * queries * max(keys, size) > 2**29:
            continue
        values = size if drawn.random() < 0.9 else drawn.choice((64, 128))
        order = drawn.random() < 0.5
        found.append(
            (
                drawn.choice(("float16", "bfloat16")),
                batch,
                heads,
                groups,
                queries,
                keys,
                size,
                values,
                int(causal),
                dropout,
                mask,
                int(order),
            )
        )
    return found


def _run(case: tuple[Any, ...]) -> list[Any]:
    import torch
    from torch.nn import functional
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from benchmarks.libraries.measure import Recorded

    name, batch, heads, groups, queries, keys, size, values, causal, dropout, mask_shape, order = case
    dtype = getattr(torch, name)

    def made(count: int, length: int, width: int) -> Any:
        shape = (batch, count, length, width) if order else (batch, length, count, width)
        tensor = torch.zeros(shape, device="cuda", dtype=dtype, requires_grad=True)
        return tensor if order else tensor.transpose(1, 2)

    q, k, v = made(heads, queries, size), made(groups, keys, size), made(groups, keys, values)
    mask = torch.zeros(*mask_shape, keys, device="cuda", dtype=dtype) if any(mask_shape) else None
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        with Recorded() as forward:
            out = functional.scaled_dot_product_attention(
                q, k, v, mask, dropout_p=dropout, is_causal=bool(causal), enable_gqa=heads != groups
            )
        gradient = torch.zeros_like(out)
        with Recorded() as backward:
            try:
                out.backward(gradient)
            except RuntimeError as refused:
                return [forward, str(refused)[:100]]
    return [forward, backward]


def measure(rows: Any) -> None:
    """Run until the time is over."""
    from benchmarks.libraries.measure import about

    rows.add(about())
    for case in rows.mine(cases()):
        if not rows.left():
            return
        try:
            rows.add([*case, *_run(case)])
        except RuntimeError as refused:
            rows.add([*case, str(refused)[:100]])
