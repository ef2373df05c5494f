"""One row a sequence beside a cache, grouped heads: five tokens."""

import torch
from torch.nn.attention.flex_attention import flex_attention

attend = torch.compile(flex_attention)
k, v = (torch.randn(4, 4, 8192, 128, device="cuda", dtype=torch.float16) for _ in range(2))
with torch.no_grad():
    for _ in range(5):
        q = torch.randn(4, 32, 1, 128, device="cuda", dtype=torch.float16)
        out = attend(q, k, v, enable_gqa=True)
