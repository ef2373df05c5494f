"""Calls of PyTorch's own test lists that had another history: positions that are indexed with, products' gradients, attention of three
dimensions."""

import torch
import torch.nn.functional as F

values = torch.randn(160, device="cuda", requires_grad=True)
torch.combinations(values, 2, with_replacement=True).sum().backward()
factors = torch.randn(30, 40, device="cuda", requires_grad=True)
factors.prod().backward()
factors.prod(1).sum().backward()

query, key = (torch.randn(32, length, 64, device="cuda", requires_grad=True) for length in (24, 48))
F.scaled_dot_product_attention(query, key, key, is_causal=True).sum().backward()
