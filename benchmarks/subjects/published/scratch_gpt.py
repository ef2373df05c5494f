"""What "PyTorch Performance Tips for Faster LLM Training" trains (rasbt/LLMs-from-scratch, ch05/10): `scratch_gpt.py CHANGES`.

A GPT of 124 million parameters, 1,024 tokens, eight texts a batch, AdamW. CHANGES is how many of its changes are in, one after the other:
1 a mask made on the fly, 2 tensor cores, 3 a fused optimizer, 4 pinned memory, 5 bfloat16, 6 PyTorch's own normalization and GELU,
7 scaled_dot_product_attention. An epoch evaluates on a batch of each set now and then and ends with 50 tokens of a sample.
"""

import sys

import torch
from torch import nn

CHANGES = int(sys.argv[1])
WIDTH, HEADS, LAYERS, LENGTH, WORDS, BATCH, DROPOUT = 768, 12, 12, 1024, 50257, 8, 0.1


class Norm(nn.Module):
    """Normalization written out."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        mean, spread = x.mean(dim=-1, keepdim=True), x.var(dim=-1, keepdim=True, unbiased=False)
        normal = (x - mean) / torch.sqrt(spread + 1e-5)
        return self.scale * normal + self.shift


class Gelu(nn.Module):
    """The activation written out."""

    def forward(self, x):
        return (
            0.5
            * x
            * (1 + torch.tanh(torch.sqrt(torch.tensor(2.0 / torch.pi)) * (x + 0.044715 * torch.pow(x, 3))))
        )


class Attention(nn.Module):
    """Attention written out, its mask a buffer or made on the fly."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(DROPOUT)
        if CHANGES < 1:
            self.register_buffer("mask", torch.triu(torch.ones(LENGTH, LENGTH), diagonal=1))

    def forward(self, x):
        batch, length, _ = x.shape
        keys, queries, values = self.key(x), self.query(x), self.value(x)
        keys, values, queries = (
            one.view(batch, length, HEADS, -1).transpose(1, 2) for one in (keys, values, queries)
        )
        scores = queries @ keys.transpose(2, 3)
        if CHANGES < 1:
            hidden = self.mask.bool()[:length, :length]
        else:
            hidden = torch.triu(torch.ones(length, length, device=x.device), diagonal=1).bool()
        scores.masked_fill_(hidden, -torch.inf)
        weights = self.dropout(torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1))
        context = (weights @ values).transpose(1, 2)
        return self.out(context.reshape(batch, length, WIDTH))


class Flash(nn.Module):
    """Attention by PyTorch's own function."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        queries, keys, values = self.qkv(x).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        context = nn.functional.scaled_dot_product_attention(
            queries, keys, values, dropout_p=DROPOUT if self.training else 0.0, is_causal=True
        )
        return self.out(context.transpose(1, 2).contiguous().view(batch, length, WIDTH))


def norm():
    return nn.LayerNorm(WIDTH) if CHANGES >= 6 else Norm()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Flash() if CHANGES >= 7 else Attention()
        gelu = nn.GELU(approximate="tanh") if CHANGES >= 6 else Gelu()
        self.forth = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), gelu, nn.Linear(4 * WIDTH, WIDTH))
        self.first, self.second, self.dropout = norm(), norm(), nn.Dropout(DROPOUT)

    def forward(self, x):
        kept = x
        x = self.first(x)
        x = self.attention(x)
        x = self.dropout(x)
        x = x + kept
        kept = x
        x = self.second(x)
        x = self.forth(x)
        x = self.dropout(x)
        return x + kept


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.dropout, self.norm = nn.Dropout(DROPOUT), norm()
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        words = self.words(ids)
        places = self.places(torch.arange(ids.shape[1], device=ids.device))
        x = words + places
        x = self.dropout(x)
        x = self.blocks(x)
        x = self.norm(x)
        return self.head(x)


def batch_loss(model, ids, wanted):
    ids, wanted = ids.to("cuda"), wanted.to("cuda")
    logits = model(ids)
    return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def batch():
    ids = torch.randint(0, WORDS, (2, BATCH, LENGTH))
    return (ids[0].pin_memory(), ids[1].pin_memory()) if CHANGES >= 4 else (ids[0], ids[1])


def evaluated(model):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            batch_loss(model, *batch()).item()
    model.train()


def sample(model):
    model.eval()
    ids = torch.randint(0, WORDS, (1, 4)).to("cuda")
    with torch.no_grad():
        for _ in range(50):
            logits = model(ids[:, -LENGTH:])
            logits = logits[:, -1, :]
            ids = torch.cat((ids, torch.argmax(logits, dim=-1, keepdim=True)), dim=1)
        ids.squeeze(0).tolist()
    model.train()


if CHANGES >= 2:
    torch.set_float32_matmul_precision("high")
model = Model()
model.to("cuda").to(torch.bfloat16 if CHANGES >= 5 else torch.float32)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=5e-4, weight_decay=0.1, **({"fused": True} if CHANGES >= 3 else {})
)
for step in range(5):
    ids, wanted = batch()
    optimizer.zero_grad()
    loss = batch_loss(model, ids, wanted)
    loss.backward()
    optimizer.step()
    if step % 3 == 0:
        evaluated(model)
sample(model)
print(f"PEAKS {torch.cuda.memory_allocated()} {torch.cuda.memory_reserved()}")
