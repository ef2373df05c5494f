"""What minGPT's demo trains: `sorting_gpt.py gpt-nano|gpt2-xl [early]`, six digits of three kinds to sort, 64 a batch.

early: gradients are given up after the optimizer's step, not before the backward pass (karpathy/minGPT#106).
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH = {"gpt-nano": (3, 3, 48), "gpt2-xl": (48, 25, 1600)}[sys.argv[1]]
VOCABULARY, WORDS, BATCH = 3, 11, 64


class Gelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.all, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop_shares, self.drop = nn.Dropout(0.1), nn.Dropout(0.1)
        self.register_buffer("seen", torch.tril(torch.ones(WORDS, WORDS)).view(1, 1, WORDS, WORDS))

    def heads(self, x):
        return x.view(BATCH, WORDS, HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x):
        query, key, value = self.all(x).split(WIDTH, dim=2)
        query, key, value = self.heads(query), self.heads(key), self.heads(value)
        scores = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(WIDTH // HEADS))
        scores = scores.masked_fill(self.seen[:, :, :WORDS, :WORDS] == 0, float("-inf"))
        scores = F.softmax(scores, dim=-1)
        scores = self.drop_shares(scores)
        found = scores @ value
        found = found.transpose(1, 2).contiguous().view(BATCH, WORDS, WIDTH)
        return self.drop(self.out(found))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.up, self.act, self.down, self.drop = (
            nn.Linear(WIDTH, 4 * WIDTH),
            Gelu(),
            nn.Linear(4 * WIDTH, WIDTH),
            nn.Dropout(0.1),
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.drop(self.down(self.act(self.up(self.norm2(x)))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places, self.drop = (
            nn.Embedding(VOCABULARY, WIDTH),
            nn.Embedding(WORDS, WIDTH),
            nn.Dropout(0.1),
        )
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids, wanted):
        places = torch.arange(0, WORDS, dtype=torch.long, device=ids.device).unsqueeze(0)
        tokens, placed = self.tokens(ids), self.places(places)
        x = self.drop(tokens + placed)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), wanted.view(-1), ignore_index=-1)


model = Gpt().to("cuda")
decayed = [one for one in model.parameters() if one.dim() > 1 and one.shape[0] not in (VOCABULARY, WORDS)]
decayed.append(model.head.weight)
known = {id(one) for one in decayed}
groups = [{"params": decayed, "weight_decay": 0.1},
          {"params": [one for one in model.parameters() if id(one) not in known], "weight_decay": 0.0}]  # fmt: skip
optimizer = torch.optim.AdamW(groups, lr=5e-4, betas=(0.9, 0.95), foreach=False)
model.train()
for _ in range(3):
    ids = torch.randint(VOCABULARY, (BATCH, WORDS)).to("cuda")
    wanted = torch.zeros(BATCH, WORDS, dtype=torch.long).to("cuda")
    logits, loss = model(ids, wanted)
    if "early" not in sys.argv:
        model.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
    optimizer.step()
    if "early" in sys.argv:
        model.zero_grad(set_to_none=True)
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
