"""Convolutions of channels-last tensors by PyTorch's own kernels, which make and leave them contiguous: cuDNN switched off, and transposed
ones whose result is padded by a stride."""

import torch
import torch.nn.functional as F


def convolved(x, weight, *, transposed=False, **how):
    made = (F.conv_transpose2d if transposed else F.conv2d)(x, weight, **how)
    lies = torch.sigmoid(made)  # of the same layout, kept for the gradients
    return torch.autograd.grad(lies.sum(), (x, weight))


x = torch.randn(2, 8, 60, 72, device="cuda").contiguous(memory_format=torch.channels_last).requires_grad_()
plain, own, turned = (
    torch.randn(shape, device="cuda", requires_grad=True)
    for shape in ((12, 8, 3, 3), (8, 1, 3, 3), (8, 12, 3, 3))
)
for half in (x, x.bfloat16()):
    torch.backends.cudnn.enabled = False
    kept = convolved(half, plain.to(half.dtype), padding=1)
    kept = convolved(half, plain.to(half.dtype), dilation=2)
    kept = convolved(half, own.to(half.dtype), groups=8)
    kept = convolved(half, turned.to(half.dtype), transposed=True, stride=2)
    torch.backends.cudnn.enabled = True
    kept = convolved(half, turned.to(half.dtype), transposed=True, dilation=2, output_padding=1)
torch.cuda.synchronize()
