"""Gradients of a recurrent layer that are not contiguous, or that nobody sent."""

import torch
from torch import nn

enc = nn.GRU(64, 100, 1, bidirectional=True, batch_first=True).cuda()
x = torch.randn(16, 25, 64, device="cuda")
mem, h = enc(x)
h = h.transpose(0, 1).reshape(16, 200)
(mem.sum() + h.pow(2).sum()).backward()
mem, h = enc(x)
h = h.transpose(0, 1).reshape(16, 200)
h.pow(2).sum().backward()
