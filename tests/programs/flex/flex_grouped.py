"""Compiled flex_attention between linear layers that are not compiled: grouped heads, transposed, a float32 score_mod, AdamW."""

import torch
from torch.nn.attention.flex_attention import flex_attention

attend = torch.compile(flex_attention)


def near(score, b, h, q, k):  # noqa: ARG001
    return torch.where((q - k).abs() < 512, score, -float("inf"))


class Block(torch.nn.Module):
    def __init__(self, width=2048, heads=16, groups=4):
        super().__init__()
        self.heads, self.groups, self.head = heads, groups, width // heads
        self.q = torch.nn.Linear(width, width)
        self.kv = torch.nn.Linear(width, 2 * groups * self.head)
        self.o = torch.nn.Linear(width, width)

    def forward(self, x):
        b, s, w = x.shape
        q = self.q(x).view(b, s, self.heads, self.head).transpose(1, 2)
        k, v = self.kv(x).view(b, s, 2 * self.groups, self.head).transpose(1, 2).chunk(2, dim=1)
        y = attend(q, k, v, score_mod=near, enable_gqa=True)
        return x + self.o(y.transpose(1, 2).reshape(b, s, w))


model = torch.nn.Sequential(*(Block() for _ in range(4))).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    loss = model(torch.randn(4, 2048, 2048, device="cuda", dtype=torch.bfloat16)).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
