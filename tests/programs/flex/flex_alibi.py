"""Compiled flex_attention with a bias by head and a sliding mask, three steps of SGD."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

attend = torch.compile(flex_attention)
slopes = torch.rand(12, device="cuda")
project = torch.nn.Linear(768, 3 * 768, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(project.parameters(), lr=0.1, momentum=0.9)
mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 300), None, None, 1536, 1536, device="cuda")


def alibi(score, b, h, q, k):  # noqa: ARG001
    return score + slopes[h] * (k - q)


x = torch.randn(3, 1536, 768, device="cuda", dtype=torch.bfloat16)
for _ in range(3):
    q, k, v = (part.view(3, 1536, 12, 64).transpose(1, 2) for part in project(x).chunk(3, dim=-1))
    attend(q, k, v, score_mod=alibi, block_mask=mask).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
