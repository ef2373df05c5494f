"""A graph network by products with a sparse adjacency matrix, and embeddings whose sparse gradients other optimizers take."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def adjacency(nodes: int, edges: int) -> torch.Tensor:
    """Every edge both ways, and each node's with itself, shared out by the number of them."""
    one = torch.randint(0, nodes, (2, edges))
    loops = torch.arange(nodes).expand(2, nodes)
    index = torch.cat([one, one.flip(0), loops], 1)
    return torch.sparse_coo_tensor(index, torch.full((index.shape[1],), 0.1), (nodes, nodes)).coalesce()


class Layers(nn.Module):
    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inside, width), nn.Linear(width, classes)

    def forward(self, x, adjacency):
        x = F.relu(torch.sparse.mm(adjacency, self.first(x)))
        return torch.spmm(adjacency, self.second(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--words", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--uncoalesced", action="store_true")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Layers(100, args.width, 7).to(device)
    matrix = adjacency(args.nodes, args.edges).to(device)
    if args.uncoalesced:
        matrix = torch.sparse_coo_tensor(matrix.indices(), matrix.values(), matrix.shape)
    x = torch.randn(args.nodes, 100).to(device)
    y = torch.randint(0, 7, (args.nodes,)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, matrix), y)
        loss.backward()
        optimizer.step()
        print(step, float(loss))
    for name in ("SGD", "Adagrad"):
        table = nn.Embedding(args.words, args.width, sparse=True, padding_idx=0).to(device)
        optimizer = getattr(torch.optim, name)(table.parameters(), lr=0.1)
        for _ in range(args.steps):
            optimizer.zero_grad()
            for _ in range(2):  # a sum of two gradients
                words = torch.randint(1, args.words, (64, 50))
                table(words.to(device)).square().mean().backward()
            optimizer.step()
        print(name, table.weight.grad._nnz())


if __name__ == "__main__":
    main()
