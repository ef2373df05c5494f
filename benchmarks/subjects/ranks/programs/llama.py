"""A Llama-shaped transformer written plainly, for the distributed programs."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, d, heads, kv):
        super().__init__()
        self.heads, self.kv, self.head = heads, kv, d // heads
        self.wq, self.wk, self.wv = (
            nn.Linear(d, d, bias=False),
            nn.Linear(d, kv * self.head, bias=False),
            nn.Linear(d, kv * self.head, bias=False),
        )
        self.wo = nn.Linear(d, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, -1, self.head).transpose(1, 2)
        k = self.wk(x).view(b, t, -1, self.head).transpose(1, 2)
        v = self.wv(x).view(b, t, -1, self.head).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class FeedForward(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.w1, self.w3, self.w2 = (
            nn.Linear(d, hidden, bias=False),
            nn.Linear(d, hidden, bias=False),
            nn.Linear(hidden, d, bias=False),
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, d, heads, kv, hidden):
        super().__init__()
        self.attention, self.feed_forward = Attention(d, heads, kv), FeedForward(d, hidden)
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.n1(x), cos, sin)
        return x + self.feed_forward(self.n2(x))


class Llama(nn.Module):
    def __init__(self, vocab=32000, d=1024, layers=8, heads=16, kv=8, hidden=2816, length=1024):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads, kv, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, vocab, bias=False)
        head = d // heads
        f = 1.0 / 10000 ** (torch.arange(0, head, 2).float() / head)
        t = torch.outer(torch.arange(length).float(), f)
        self.register_buffer("cos", torch.cat((t.cos(), t.cos()), -1), persistent=False)
        self.register_buffer("sin", torch.cat((t.sin(), t.sin()), -1), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        cos, sin = self.cos[: ids.shape[1]].to(x.dtype), self.sin[: ids.shape[1]].to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))
