"""What the tables of "Build a Large Language Model From Scratch" answer with: `scratch_answer.py llama|qwen|qwen8 [cache]`.

Llama 3.2 1B or Qwen3 0.6B in bfloat16, written as there (a head apart from the embedding, rotation in float32, plain attention), 150 tokens
chosen greedily after the prompt; qwen8: eight prompts at once, whose last logits stay until the next are there. Without a cache every step
runs all words again.
"""

import sys

import torch
from torch import nn

LLAMA, CACHED = sys.argv[1] == "llama", "cache" in sys.argv
BATCH = 8 if sys.argv[1] == "qwen8" else 1
if LLAMA:
    VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, INNER, GROUPS, HEAD, PROMPT = (
        128_256,
        131_072,
        2048,
        32,
        16,
        8192,
        8,
        64,
        27,
    )
else:
    VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, INNER, GROUPS, HEAD, PROMPT = (
        151_936,
        40_960,
        1024,
        16,
        28,
        3072,
        8,
        128,
        18,
    )
TOKENS = 150
BF16 = torch.bfloat16


class Norm(nn.Module):
    """Root mean square in float32, its weight in float32 too."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(dim=-1, keepdim=True)
        scaled = x * torch.rsqrt(variance + 1e-6)
        scaled = scaled * self.scale
        return scaled.to(kind)


def norm(width):
    return nn.RMSNorm(width, eps=1e-5, dtype=BF16) if LLAMA else Norm(width)


def rotated(x, cos, sin, first):
    words = x.shape[2]
    one, two = x[..., : HEAD // 2], x[..., HEAD // 2 :]
    cos, sin = (part[first : first + words, :].unsqueeze(0).unsqueeze(0) for part in (cos, sin))
    turned = torch.cat((-two, one), dim=-1)
    found = (x * cos) + (turned * sin)
    return found.to(dtype=x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, HEADS * HEAD, bias=False, dtype=BF16)
        self.key, self.value = (nn.Linear(WIDTH, GROUPS * HEAD, bias=False, dtype=BF16) for _ in range(2))
        self.out = nn.Linear(HEADS * HEAD, WIDTH, bias=False, dtype=BF16)
        self.norms = nn.ModuleList(() if LLAMA else (Norm(HEAD), Norm(HEAD)))

    def forward(self, x, mask, cos, sin, first, cache):
        words = x.shape[1]
        query, key, value = self.query(x), self.key(x), self.value(x)
        query = query.view(BATCH, words, HEADS, HEAD).transpose(1, 2)
        key, value = (part.view(BATCH, words, GROUPS, HEAD).transpose(1, 2) for part in (key, value))
        if self.norms:
            query, key = self.norms[0](query), self.norms[1](key)
        query, key = rotated(query, cos, sin, first), rotated(key, cos, sin, first)
        if cache is not None:
            key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
        kept = (key, value)
        key, value = (part.repeat_interleave(HEADS // GROUPS, dim=1) for part in (key, value))
        scores = query @ key.transpose(2, 3)
        scores = scores.masked_fill(mask, -torch.inf)
        shares = torch.softmax(scores / HEAD**0.5, dim=-1)
        found = (shares @ value).transpose(1, 2).reshape(BATCH, words, HEADS * HEAD)
        return self.out(found), kept


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(), norm(WIDTH), norm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False, dtype=BF16) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False, dtype=BF16)

    def forward(self, x, *rest):
        found, kept = self.attention(self.norm1(x), *rest)
        x = found + x
        inner = self.norm2(x)
        gate, up = self.gate(inner), self.up(inner)
        inner = nn.functional.silu(gate) * up
        return self.down(inner) + x, kept


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, dtype=BF16)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = norm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=BF16)
        angles = torch.arange(CONTEXT, dtype=torch.float32).unsqueeze(1) * torch.ones(1, HEAD)
        self.register_buffer("cos", torch.cos(angles), persistent=False)
        self.register_buffer("sin", torch.sin(angles), persistent=False)

    def forward(self, ids, first=0, cache=None):
        x, end = self.embedding(ids), first + ids.shape[1]
        mask = torch.triu(torch.ones(end, end, device=x.device, dtype=torch.bool), diagonal=1)[
            first:end, :end
        ]
        for place, block in enumerate(self.blocks):
            x, kept = block(x, mask, self.cos, self.sin, first, None if cache is None else cache[place])
            if cache is not None:
                cache[place] = kept
        return self.head(self.norm(x).to(BF16))


model = Model().to("cuda").eval()
ids = torch.randint(VOCABULARY, (BATCH, PROMPT)).to("cuda")
with torch.no_grad():
    if CACHED:
        cache = [None] * LAYERS
        logits = model(ids, 0, cache)
        for place in range(TOKENS):
            chosen = logits[:, -1].argmax(dim=-1, keepdim=True)
            ids = torch.cat([ids, chosen], dim=1)
            logits = model(chosen, PROMPT + place, cache)
    else:
        for _ in range(TOKENS):
            logits = model(ids)
            logits = logits[:, -1, :]
            if BATCH == 1:
                most, _ = torch.topk(logits, 1)
                logits = torch.where(logits < most[:, -1:], torch.tensor(float("-inf")).to("cuda"), logits)
            ids = torch.cat((ids, torch.argmax(logits, dim=-1, keepdim=True)), dim=1)
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
