"""Graph networks written out: mean aggregation by `index_add_`, attention by `scatter_reduce`, pooling by graph."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Mean(nn.Module):
    """GraphSAGE's mean of neighbours."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.own, self.near = nn.Linear(inside, outside), nn.Linear(inside, outside, bias=False)

    def forward(self, x, edges):
        source, target = edges
        summed = torch.zeros_like(x).index_add_(0, target, x[source])
        degree = torch.zeros(x.shape[0], device=x.device).index_add_(
            0, target, torch.ones(target.shape[0], device=x.device)
        )
        return self.own(x) + self.near(summed / degree.clamp(min=1).unsqueeze(1))


class Attention(nn.Module):
    """GAT: a softmax over the edges that end in a node."""

    def __init__(self, inside: int, outside: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, outside // heads
        self.project = nn.Linear(inside, outside, bias=False)
        self.of_source = nn.Parameter(torch.randn(heads, self.width) / self.width)
        self.of_target = nn.Parameter(torch.randn(heads, self.width) / self.width)

    def forward(self, x, edges):
        source, target = edges
        h = self.project(x).view(-1, self.heads, self.width)
        score = (h * self.of_source).sum(-1)[source] + (h * self.of_target).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        index = target.unsqueeze(1).expand_as(score)
        most = torch.full((x.shape[0], self.heads), float("-inf"), device=x.device)
        most = most.scatter_reduce(0, index, score.detach(), "amax", include_self=False)
        weight = (score - most[target]).exp()
        total = torch.zeros(x.shape[0], self.heads, device=x.device).scatter_add_(0, index, weight)
        weight = weight / total[target]
        out = torch.zeros_like(h).index_add_(0, target, h[source] * weight.unsqueeze(-1))
        return out.flatten(1)


class Network(nn.Module):
    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = Mean(inside, width), Attention(width, width, 4)
        self.norm, self.third = nn.BatchNorm1d(width), Mean(width, width)
        self.head = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, classes)
        )

    def forward(self, x, edges, graph, graphs: int):
        x = F.relu(self.first(x, edges))
        x = F.elu(self.norm(self.second(x, edges)))
        x = F.relu(self.third(x, edges))
        size = torch.bincount(graph, minlength=graphs).clamp(min=1).unsqueeze(1)
        mean = torch.zeros(graphs, x.shape[1], device=x.device).index_add_(0, graph, x) / size
        return self.head(mean)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--graphs", type=int, default=64)
    parser.add_argument("--nodes", type=int, default=800)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Network(64, args.width, 10).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        count = args.graphs * args.nodes + 100 * step
        graph = (torch.arange(count) // args.nodes).clamp(max=args.graphs - 1).to(device)
        edges = torch.randint(0, count, (2, 8 * count)).to(device)
        x, y = torch.randn(count, 64).to(device), torch.randint(0, 10, (args.graphs,)).to(device)
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edges, graph, args.graphs), y)
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x, edges, graph, args.graphs).argmax(1) == y).float().mean()
        print(step, float(loss), float(right))


if __name__ == "__main__":
    main()
