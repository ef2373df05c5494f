"""What rasbt/LLMs-from-scratch (ch04, 04 to 06) generates: `grown_cache.py heads|groups|latent|window`.

A GPT of 12 layers in bfloat16, 24 heads of 32, with a cache that grows by a word; 32,768 new ones. Here the cache begins with 32,740
words and the last 32 are generated: what is allocated depends on the last ones.
"""

import sys

import torch
from torch import nn

KIND = sys.argv[1]
WIDTH, HEADS, LAYERS, WORDS, NEW = 768, 24, 12, 50257, 32
PLACES = 32768 + 4
SIZE = WIDTH // HEADS
GROUPS, LATENT, WINDOW = 4, 192, 1024


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        mean, spread = x.mean(dim=-1, keepdim=True), x.var(dim=-1, keepdim=True, unbiased=False)
        normal = (x - mean) / torch.sqrt(spread + 1e-5)
        return self.scale * normal + self.shift


class Gelu(nn.Module):
    def forward(self, x):
        return (
            0.5
            * x
            * (1 + torch.tanh(torch.sqrt(torch.tensor(2.0 / torch.pi)) * (x + 0.044715 * torch.pow(x, 3))))
        )


class Attention(nn.Module):
    def __init__(self, windowed):
        super().__init__()
        self.windowed, held = windowed, GROUPS * SIZE if KIND == "groups" else WIDTH
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        if KIND == "latent":
            self.down = nn.Linear(WIDTH, LATENT, bias=False)
            self.key, self.value = (nn.Linear(LATENT, WIDTH, bias=False) for _ in range(2))
            self.caches = [torch.zeros(1, PLACES - NEW, LATENT)]
            return
        self.key, self.value = (nn.Linear(WIDTH, held, bias=False) for _ in range(2))
        length = WINDOW if windowed else PLACES - NEW
        shape = (1, GROUPS, length, SIZE) if KIND == "groups" else (1, length, HEADS, SIZE)
        self.caches = [torch.zeros(shape), torch.zeros(shape)]

    def forward(self, x):
        batch, length, _ = x.shape
        if KIND == "latent":
            queries, new = self.query(x), self.down(x)
            self.caches[0] = torch.cat([self.caches[0], new], dim=1)
            wide = (
                self.key(self.caches[0]),
                self.value(self.caches[0]),
            )  # which live as long as the heads made of them
            keys, values = (one.view(batch, -1, HEADS, SIZE).transpose(1, 2).contiguous() for one in wide)
            queries = queries.view(batch, length, HEADS, SIZE).transpose(1, 2)
        elif KIND == "groups":
            queries, keys, values = self.query(x), self.key(x), self.value(x)
            queries = queries.view(batch, length, HEADS, SIZE).transpose(1, 2)
            keys, values = (one.view(batch, length, GROUPS, SIZE).transpose(1, 2) for one in (keys, values))
            self.caches[0] = torch.cat([self.caches[0], keys], dim=2)
            self.caches[1] = torch.cat([self.caches[1], values], dim=2)
            keys, values = (one.repeat_interleave(HEADS // GROUPS, dim=1) for one in self.caches)
        else:
            keys, values, queries = (
                one(x).view(batch, length, HEADS, SIZE) for one in (self.key, self.value, self.query)
            )
            self.caches[0] = torch.cat([self.caches[0], keys], dim=1)
            self.caches[1] = torch.cat([self.caches[1], values], dim=1)
            if self.windowed:
                self.caches = [one[:, -WINDOW:] for one in self.caches]
            queries, keys, values = (one.transpose(1, 2) for one in (queries, *self.caches))
        scores = queries @ keys.transpose(2, 3)
        places = torch.arange(keys.shape[-2], device=x.device)
        hidden = (places[-1:] + 1).unsqueeze(-1) < places.unsqueeze(0)
        if KIND == "groups":
            scores = scores.masked_fill(hidden, -torch.inf)
        else:
            scores.masked_fill_(hidden, -torch.inf)
        weights = torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1)
        context = (weights @ values).transpose(1, 2)
        return self.out(context.contiguous().view(batch, length, WIDTH))


class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.attention = Attention(
            KIND == "window" and index % 6 != 5
        )  # five with a window, then one without
        self.forth = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), Gelu(), nn.Linear(4 * WIDTH, WIDTH))
        self.first, self.second = Norm(), Norm()

    def forward(self, x):
        x = self.attention(self.first(x)) + x
        return self.forth(self.second(x)) + x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.norm = nn.Embedding(WORDS, WIDTH), nn.Embedding(PLACES, WIDTH), Norm()
        self.blocks = nn.ModuleList([Block(index) for index in range(LAYERS)])
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids, place):
        x = self.words(ids) + self.places(torch.arange(place, place + 1, device=ids.device)).unsqueeze(0)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


model = Model()
model.to("cuda", dtype=torch.bfloat16)
model.eval()
for block in model.blocks:
    block.attention.caches = [one.to(torch.bfloat16).to("cuda") for one in block.attention.caches]
following = torch.zeros((1, 1), dtype=torch.int64).to("cuda")
with torch.no_grad():
    for place in range(PLACES - NEW, PLACES):
        logits = model(following, place)
        following = logits[:, -1].argmax(dim=-1, keepdim=True)
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
