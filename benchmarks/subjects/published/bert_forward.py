"""What Hugging Face's benchmark page runs: `bert_forward.py HIDDEN LAYERS BATCH WORDS`, one forward pass of an untrained BERT.

BERT as transformers 2.11 wrote it: a score is divided, then masked, each into a new tensor, and what a layer made lives until it ends.
"""

import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

HIDDEN, LAYERS, BATCH, WORDS = map(int, sys.argv[1:])
HEADS, INNER, VOCABULARY, POSITIONS = 12, 3072, 30522, 512


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(HIDDEN, HIDDEN) for _ in range(3))
        self.dense, self.norm = nn.Linear(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN, eps=1e-12)

    def heads(self, states):
        return states.view(BATCH, WORDS, HEADS, HIDDEN // HEADS).permute(0, 2, 1, 3)

    def looked(self, states, mask):
        query, key, value = self.query(states), self.key(states), self.value(states)
        scores = torch.matmul(self.heads(query), self.heads(key).transpose(-1, -2))
        scores = scores / math.sqrt(HIDDEN // HEADS)
        scores = scores + mask
        shares = torch.softmax(scores, dim=-1)
        found = torch.matmul(shares, self.heads(value))
        found = found.permute(0, 2, 1, 3).contiguous()
        return found.view(BATCH, WORDS, HIDDEN)

    def forward(self, states, mask):
        found = self.looked(states, mask)
        dense = self.dense(found)
        return self.norm(dense + states)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.up, self.down, self.norm = (
            nn.Linear(HIDDEN, INNER),
            nn.Linear(INNER, HIDDEN),
            nn.LayerNorm(HIDDEN, eps=1e-12),
        )

    def widened(self, states):
        states = self.up(states)
        return F.gelu(states)

    def forward(self, states, mask):
        attended = self.attention(states, mask)
        wide = self.widened(attended)
        dense = self.down(wide)
        return self.norm(dense + attended)


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, HIDDEN) for n in (VOCABULARY, POSITIONS, 2))
        self.norm = nn.LayerNorm(HIDDEN, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.pooler = nn.Linear(HIDDEN, HIDDEN)

    def embedded(self, ids):
        places = torch.arange(WORDS, device=ids.device).unsqueeze(0).expand(BATCH, WORDS)
        words, placed, kinds = self.words(ids), self.places(places), self.kinds(torch.zeros_like(ids))
        summed = words + placed + kinds
        return self.norm(summed)

    def forward(self, ids):
        mask = (1.0 - torch.ones(BATCH, WORDS, device=ids.device)[:, None, None, :]) * -10000.0
        first = states = self.embedded(ids)
        for layer in self.layers:
            states = layer(states, mask)
        return states, torch.tanh(self.pooler(states[:, 0])), first


model = Bert().eval().to("cuda")
ids = torch.randint(VOCABULARY, (BATCH, WORDS)).to("cuda")
with torch.no_grad():
    model(ids)
print(f"PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}")
