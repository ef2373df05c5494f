"""A small GPT: gradient accumulation, bfloat16, evaluation, an average of the weights, and sampled text at
the end."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    """Attention and a feed-forward part, each normalized first."""

    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, length, wide)."""
        batch, length, wide = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.first(x)).split(wide, 2)
        )
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, wide))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class LanguageModel(nn.Module):
    """Predicts the next of `words` tokens."""

    def __init__(self, words: int, wide: int, layers: int, longest: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, wide), nn.Embedding(longest, wide)
        self.layers = nn.Sequential(*(Layer(wide, wide // 64) for _ in range(layers)))
        self.last = nn.LayerNorm(wide)
        self.longest = longest

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, length) -> (batch, length, words)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.last(self.layers(self.words(tokens) + self.places(places)))
        return functional.linear(x, self.words.weight)

    @torch.no_grad()
    def generate(self, tokens: torch.Tensor, count: int) -> torch.Tensor:
        """The tokens with `count` sampled ones behind them."""
        for _ in range(count):
            logits = self(tokens[:, -self.longest :])[:, -1]
            tokens = torch.cat((tokens, torch.multinomial(logits.softmax(-1), 1)), 1)
        return tokens


def main() -> None:
    """Train, evaluate now and then, generate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--wide", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--words", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--new", type=int, default=8)
    given = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LanguageModel(given.words, given.wide, given.layers, given.length).to(device)
    average = copy.deepcopy(model).requires_grad_(requires_grad=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)

    def loss_of() -> torch.Tensor:
        tokens = torch.randint(0, given.words, (given.batch, given.length + 1), device=device)
        with torch.autocast(device, torch.bfloat16):
            logits = model(tokens[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    for step in range(given.steps):
        for _ in range(2):
            (loss_of() / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, weight in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight, 0.01)
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                print(f"step {step}: loss {loss_of().item():.3f}")
            model.train()
    print(average.eval().generate(torch.zeros(1, 1, dtype=torch.long, device=device), given.new).tolist())


if __name__ == "__main__":
    main()
