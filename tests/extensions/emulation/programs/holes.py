"""What once ended an emulated program, or sent it another way: NVRTC's kernels, TorchScript's tracer, `istft`'s check, `torch.equal`, `repeat_interleave`'s check."""

import sys

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).cuda().eval()
image = torch.randn(2, 3, 32, 32, device="cuda")
with torch.no_grad():
    traced = torch.jit.trace(net, image, check_trace=False)
    if "_convolution" not in str(traced.inlined_graph):
        sys.exit("the tracer has not seen the convolution")
    frozen = torch.jit.freeze(traced)
    for _ in range(3):
        frozen(image)

wave = torch.randn(2, 4096, device="cuda")
window = torch.hann_window(256, device="cuda")
spectrum = torch.stft(wave, 256, 64, window=window, return_complex=True)
torch.istft(spectrum, 256, 64, window=window, length=4096)
torch.rand(4, 1024, device="cuda").prod(1)

counted = torch.arange(1000, device="cuda")
changed = counted.clone()
changed[3] = 7
copied = torch.rand(1000).cuda()
if torch.equal(counted, changed) or torch.equal(copied, torch.rand_like(copied)):
    sys.exit("what differs is called equal")
if not (torch.equal(counted, counted.clone()) and torch.equal(copied, copied.view(-1))):
    sys.exit("what is equal is called different")
assert torch.equal(torch.ones(1 << 23).cuda(), torch.ones(1 << 23, device="cuda"))
if torch.equal(torch.ones(1 << 23).cuda(), torch.ones(1 << 23, device="cuda") + 1):
    raise ValueError("what a check refuses is called equal")

counts = torch.tensor([3, 0, 2], device="cuda")
assert torch.repeat_interleave(torch.arange(3, device="cuda"), counts).tolist() == [0, 0, 0, 2, 2]
