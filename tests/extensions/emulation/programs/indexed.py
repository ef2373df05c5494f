"""Indices that are not side by side, written to with accumulation
both engines ask for the same in the same order."""

import torch

x = torch.zeros(64, 128, 32, device="cuda")
i = torch.zeros(70, device="cuda", dtype=torch.int64)
a = torch.ops.aten
v = torch.randn(70, 128, device="cuda")
u = torch.randn(70, device="cuda")
w = torch.randn(64, 70, device="cuda")
a.index_put_(x, [i, None, i], v, True)
a.index_put_(x, [None, i, i], w, True)
a.index_put_(x, [i, i], torch.randn(70, 32, device="cuda"), True)
a.index_put_(x.transpose(0, 1), [i, None, i], torch.randn(70, 64, device="cuda"), True)
z = torch.zeros(64, 128, 32, device="cuda", requires_grad=True)
y = z[i, :, i]
y.backward(torch.randn_like(y))
z = torch.zeros(64, 128, 32, device="cuda", requires_grad=True)
y = z[:, i, :][:, :, i]
y.sum().backward()
z = torch.zeros(64, 128, 32, device="cuda", requires_grad=True)
y = z[i[:64], :, i[:64]]
y.sum().backward()
