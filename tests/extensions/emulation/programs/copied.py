"""Deep copies of parts of a tensor, of tensors that share one, and of what was copied."""

import copy

import torch
from torch import nn

big = torch.randn(300, 4000, device="cuda")
row = big[3]
col = big[:, 7:30]
both = copy.deepcopy({"row": row, "col": col, "t": big.t(), "n": [row, 3]})
assert both["row"] is both["n"][0]
assert both["row"].data_ptr() - both["col"].data_ptr() == (3 * 4000 - 7) * 4
m = nn.BatchNorm1d(5000, device="cuda")
m2 = copy.deepcopy(m)
x = torch.randn(5000, device="cuda", requires_grad=True)
(x * 2).sum().backward()
y = copy.deepcopy(x)
assert y.grad is not x.grad and y.requires_grad
k = torch.arange(1000, device="cuda")
k2 = copy.deepcopy(k)
z = torch.zeros(int(k2.max()), 500, device="cuda")
h = copy.deepcopy(torch.randn(4, 5))
e = copy.deepcopy(torch.randn(30, 40, device="cuda").t())
assert e.stride() == (1, 40)
del big, row, col
f = copy.deepcopy(both)
