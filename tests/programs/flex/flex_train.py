"""Compiled flex_attention alone, forward and backward, three steps."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

attend = torch.compile(flex_attention)
mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 2048, 2048, device="cuda")
q, k, v = (
    torch.randn(8, 16, 2048, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
)
for _ in range(3):
    out = attend(q, k, v, block_mask=mask)
    out.backward(torch.ones_like(out))
    q.grad = k.grad = v.grad = None
