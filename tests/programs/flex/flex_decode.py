"""Few rows beside a long cache: pieces."""

import torch
from torch.nn.attention.flex_attention import flex_attention

attend = torch.compile(flex_attention)
q = torch.randn(2, 32, 16, 128, device="cuda", dtype=torch.bfloat16)
k, v = (torch.randn(2, 8, 16384, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
with torch.no_grad():
    for _ in range(3):
        out = attend(q, k, v, enable_gqa=True)
