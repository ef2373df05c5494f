"""Modules whose parameters have no memory of their own: stacked by `torch.func`, and not yet initialized."""

import torch
from torch.func import functional_call, stack_module_state, vmap

models = [torch.nn.Linear(64, 32).cuda() for _ in range(3)]
parameters, buffers = stack_module_state(models)
x = torch.randn(8, 64, device="cuda")
out = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
assert out.shape == (3, 8, 32)

lazy = torch.nn.Sequential(torch.nn.LazyLinear(16), torch.nn.ReLU(), torch.nn.LazyLinear(4)).cuda()
lazy(x).sum().backward()
assert lazy[2].weight.grad.shape == (4, 16)
