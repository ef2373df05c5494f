"""Skip-gram with negative samples: embeddings with sparse gradients, `SparseAdam`, and a bag of words beside."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocabulary", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--negatives", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    centre = nn.Embedding(args.vocabulary, args.width, sparse=True).to(device)
    context = nn.Embedding(args.vocabulary, args.width, sparse=True).to(device)
    bag = nn.EmbeddingBag(args.vocabulary, args.width, mode="mean", sparse=True).to(device)
    sparse = torch.optim.SparseAdam([*centre.parameters(), *context.parameters()], lr=1e-3)
    plain = torch.optim.SGD(bag.parameters(), lr=0.1)
    for step in range(args.steps):
        words = torch.randint(0, args.vocabulary, (args.batch,)).to(device)
        near = torch.randint(0, args.vocabulary, (args.batch,)).to(device)
        far = torch.randint(0, args.vocabulary, (args.batch, args.negatives), device=device)
        c = centre(words)
        near_score = (c * context(near)).sum(1)
        far_score = torch.bmm(context(far), c.unsqueeze(2)).squeeze(2)
        loss = -(F.logsigmoid(near_score).mean() + F.logsigmoid(-far_score).sum(1).mean())
        loss = loss + bag(far).square().mean()
        sparse.zero_grad()
        plain.zero_grad()
        loss.backward()
        sparse.step()
        plain.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
