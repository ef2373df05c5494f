"""torch_geometric: a node classifier over neighbourhoods, or a classifier of whole graphs from a loader of batches."""

import argparse
import itertools

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_max_pool, global_mean_pool


def convolution(kind: str, inside: int, outside: int) -> nn.Module:
    if kind == "gcn":
        return GCNConv(inside, outside)
    if kind == "gat":
        return GATConv(inside, outside // 4, heads=4)
    if kind == "gin":
        return GINConv(nn.Sequential(nn.Linear(inside, outside), nn.ReLU(), nn.Linear(outside, outside)))
    return SAGEConv(inside, outside)


class Network(nn.Module):
    def __init__(self, kind: str, inside: int, width: int, classes: int, layers: int, whole: bool) -> None:
        super().__init__()
        sizes = [inside] + [width] * layers
        self.layers = nn.ModuleList(convolution(kind, a, b) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(2 * width if whole else width, classes)

    def forward(self, x, edges, graph=None):
        for layer in self.layers:
            x = F.dropout(F.relu(layer(x, edges)), 0.2, self.training)
        if graph is not None:
            x = torch.cat([global_mean_pool(x, graph), global_max_pool(x, graph)], 1)
        return self.head(x)


def some_graph(nodes: int, wide: int, whole: bool) -> Data:
    edges = torch.randint(0, nodes, (2, 8 * nodes))
    return Data(
        x=torch.randn(nodes, wide), edge_index=edges, y=torch.randint(0, 10, (1 if whole else nodes,))
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="gcn", choices=["gcn", "gat", "sage", "gin"])
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Network(args.kind, 128, args.width, 10, args.layers, args.whole).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    if args.whole:
        loader = DataLoader([some_graph(args.nodes // 64, 128, True) for _ in range(128)], batch_size=64)
        for epoch in range(args.epochs):
            for batch in loader:
                here = batch.to(device)
                loss = F.cross_entropy(model(here.x, here.edge_index, here.batch), here.y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(epoch, float(loss))
        return
    data = some_graph(args.nodes, 128, False).to(device)
    known = torch.rand(args.nodes, device=device) < 0.8
    for epoch in range(args.epochs):
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        loss = F.cross_entropy(out[known], data.y[known])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(data.x, data.edge_index).argmax(1) == data.y
        print(epoch, float(loss), float(right[~known].float().mean()))


if __name__ == "__main__":
    main()
