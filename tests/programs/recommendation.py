"""Recommendation: bags of embeddings for what is chosen among many, a network for numbers, and what is between them."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, tables: int, rows: int, width: int, mode: str, sparse: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, width, mode=mode, sparse=sparse) for _ in range(tables)
        )
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 1))
        self.register_buffer("lower", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, numbers, bags, offsets):
        dense = self.bottom(numbers)
        parts = [
            dense,
            *(table(bag, offset) for table, bag, offset in zip(self.tables, bags, offsets, strict=True)),
        ]
        stacked = torch.stack(parts, 1)
        between = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.lower[0], self.lower[1]]
        return self.top(torch.cat([dense, between], 1)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--mode", default="sum", choices=["sum", "mean", "max"])
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Model(args.tables, args.rows, args.width, args.mode, args.sparse).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
    for step in range(args.steps):
        numbers = torch.randn(args.batch, 13).to(device)
        bags = [torch.randint(0, args.rows, (args.batch * 10,)).to(device) for _ in range(args.tables)]
        offsets = [torch.arange(0, args.batch * 10, 10).to(device) for _ in range(args.tables)]
        clicked = torch.randint(0, 2, (args.batch,)).float().to(device)
        loss = F.binary_cross_entropy_with_logits(model(numbers, bags, offsets), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
