"""Tensors that are not contiguous, and gradients that are differentiated themselves, where kernels or formulas take something besides."""

import torch
import torch.nn.functional as F


def drawn(*shape: int) -> torch.Tensor:
    return torch.rand(shape, device="cuda", requires_grad=True)


volumes = drawn(4, 24, 16, 16, 16).detach().to(memory_format=torch.channels_last_3d).requires_grad_()
for mode, aligned in (("nearest", None), ("nearest-exact", None), ("trilinear", False)):
    F.interpolate(volumes, (3, 3, 3), mode=mode, align_corners=aligned).square().sum().backward()
F.max_pool3d(volumes, 2).square().sum().backward()
images = drawn(16, 24, 16, 32).detach().to(memory_format=torch.channels_last).requires_grad_()
F.glu(images, 3).square().sum().backward()
logits = drawn(8, 12, 40, 21)[..., 1:].log_softmax(1)
target = torch.randint(12, (8, 40, 21), device="cuda")[..., 1:]
F.nll_loss(logits, target, reduction="none").sum().backward()
torch.nonzero_static(drawn(320, 321).detach()[:, 1:], size=0)
torch.multinomial(drawn(80, 24).detach().mT, 3)
torch.linalg.householder_product(drawn(4, 64, 65).detach()[..., 1:], drawn(4, 65).detach()[..., 1:])
factors, pivots = torch.linalg.ldl_factor(drawn(64, 64).detach())
torch.linalg.ldl_solve(factors, torch.stack([pivots, pivots], 1)[:, 0], drawn(64, 5).detach())

below, side = drawn(640, 320), drawn(64, 1, 320)
(slope,) = torch.autograd.grad(torch.atan2(below, side).sum(), below, create_graph=True)
slope.sum().backward()
for reduction in ("none", "mean"):
    guess, truth = drawn(320, 320), drawn(320, 320)
    loss = F.binary_cross_entropy(guess, truth, reduction=reduction)
    found = torch.autograd.grad(
        loss, (guess, truth), torch.ones_like(loss).requires_grad_(), create_graph=True
    )
    torch.autograd.backward(found, [torch.ones_like(one) for one in found])
