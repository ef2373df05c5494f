"""Calls of PyTorch's own test lists that had another history: biases of one row, groups of one number a channel, weights that are
drawn from."""

import torch
import torch.nn.functional as F

first, second = torch.randn(4, 32, device="cuda"), torch.randn(32, 24, device="cuda")
for rows in (1, 4):
    for bias in (
        torch.randn(24, device="cuda"),
        torch.randn(1, 24, device="cuda"),
        torch.randn(rows, 24, device="cuda"),
    ):
        torch.addmm(bias, first[:rows], second)
        torch.addmm(bias, first[:rows], second, beta=2)
    torch.randn(rows, 24, device="cuda").addmm_(first[:rows], second)

x = torch.randn(4, 12, device="cuda", requires_grad=True)
weight = torch.randn(12, device="cuda", requires_grad=True)
F.group_norm(x, 3, weight).backward(torch.ones_like(x))

for shape in ((24,), (5000,), (24, 32)):
    weights = torch.rand(shape, device="cuda")
    torch.multinomial(weights, 1)
    torch.multinomial(weights, 3)
    torch.multinomial(weights, 3, replacement=True)
