"""Networks of the third held-out set that nobody ships: graphs, points, tables, fields and pairs.

Written before any of them was predicted or measured.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn


class GraphConvolutions(nn.Module):
    """Three rounds of messages over edges, summed with index_add, and a mean over nodes by graph."""

    def __init__(self, features: int = 64, d: int = 192) -> None:
        super().__init__()
        self.enter = nn.Linear(features, d)
        self.message = nn.ModuleList(
            [nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d)) for _ in range(3)]
        )
        self.update = nn.ModuleList([nn.GRUCell(d, d) for _ in range(3)])
        self.norms, self.out = nn.ModuleList([nn.BatchNorm1d(d) for _ in range(3)]), nn.Linear(d, 12)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        x = self.enter(nodes)
        source, target = edges[0], edges[1]
        for message, update, norm in zip(self.message, self.update, self.norms, strict=True):
            sent = message(torch.cat([x[source], x[target]], -1))
            summed = torch.zeros_like(x).index_add(0, target, sent.to(x.dtype))
            x = norm(update(summed, x))
        return self.out(x)


class Points(nn.Module):
    """PointNet with a learned transform, then neighbours found by distance and a second round over them."""

    def __init__(self, classes: int = 40) -> None:
        super().__init__()

        def shared(*widths: int) -> nn.Sequential:
            return nn.Sequential(
                *[
                    layer
                    for i, o in itertools.pairwise(widths)
                    for layer in (nn.Conv1d(i, o, 1), nn.BatchNorm1d(o), nn.ReLU())
                ]
            )

        self.first, self.turn = (
            shared(3, 64, 128, 512),
            nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 9)),
        )
        self.local = nn.Sequential(
            nn.Conv2d(6, 64, 1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Conv2d(64, 128, 1),
            nn.BatchNorm2d(128),
            nn.ReLU(),
        )
        self.last, self.out = (
            shared(128, 256, 1024),
            nn.Sequential(
                nn.Linear(1024, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, classes)
            ),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turn = self.turn(self.first(x).amax(-1)).view(-1, 3, 3) + torch.eye(3, device=x.device, dtype=x.dtype)
        points = torch.bmm(turn, x).transpose(1, 2)
        near = torch.cdist(points, points).topk(16, largest=False).indices
        b, n, k = near.shape
        neighbours = points.gather(1, near.reshape(b, n * k, 1).expand(-1, -1, 3)).view(b, n, k, 3)
        edges = torch.cat([points[:, :, None].expand(-1, -1, k, -1), neighbours - points[:, :, None]], -1)
        y = self.local(edges.permute(0, 3, 1, 2)).amax(-1)
        return self.out(self.last(y).amax(-1))


class Recommender(nn.Module):
    """DLRM: bags of embeddings, a bottom network, products of all pairs, a top network."""

    def __init__(self, tables: int = 8, rows: int = 20000, d: int = 64) -> None:
        super().__init__()
        self.bags = nn.ModuleList([nn.EmbeddingBag(rows, d, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, d), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + d, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.tables = tables

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = torch.stack([x, *[bag(sparse[:, number]) for number, bag in enumerate(self.bags)]], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))
        i, j = torch.tril_indices(self.tables + 1, self.tables + 1, -1, device=dense.device)
        return self.top(torch.cat([x, products[:, i, j]], 1)).squeeze(-1)


class FactorizationMachine(nn.Module):
    """DeepFM over fields of one table with offsets."""

    def __init__(self, fields: int = 26, rows: int = 60000, d: int = 16) -> None:
        super().__init__()
        self.linear, self.embedding = nn.Embedding(rows, 1), nn.Embedding(rows, d)
        self.register_buffer("offsets", torch.arange(fields) * (rows // fields))
        self.deep = nn.Sequential(
            nn.Linear(fields * d, 400),
            nn.BatchNorm1d(400),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(400, 400),
            nn.BatchNorm1d(400),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(400, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.offsets
        e = self.embedding(x)
        second = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1)
        return self.linear(x).sum((1, 2)) + second + self.deep(e.flatten(1)).squeeze(-1)


class FourierOperator(nn.Module):
    """Four layers that mix channels of the lowest frequencies, beside 1x1 convolutions."""

    def __init__(self, c: int = 32, modes: int = 12) -> None:
        super().__init__()
        self.enter, self.modes = nn.Conv2d(1, c, 1), modes
        self.mix = nn.ParameterList([nn.Parameter(torch.randn(c, c, modes, modes, 2) / c) for _ in range(4)])
        self.beside, self.out = (
            nn.ModuleList([nn.Conv2d(c, c, 1) for _ in range(4)]),
            nn.Sequential(nn.Conv2d(c, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, m = self.enter(x), self.modes
        for mix, beside in zip(self.mix, self.beside, strict=True):
            spectrum = torch.fft.rfft2(x)
            low = torch.zeros_like(spectrum)
            low[:, :, :m, :m] = torch.einsum(
                "bixy,ioxy->boxy", spectrum[:, :, :m, :m], torch.view_as_complex(mix)
            )
            x = F.gelu(torch.fft.irfft2(low, s=x.shape[-2:]) + beside(x))
        return self.out(x)


class RadianceField(nn.Module):
    """A NeRF: positions to sinusoids, eight layers with a skip, and the sum along each ray."""

    def __init__(self, d: int = 256) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(63, d), *[nn.Linear(d + 63 if n == 4 else d, d) for n in range(1, 8)]]
        )
        self.density, self.colour = (
            nn.Linear(d, 1),
            nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 3), nn.Sigmoid()),
        )

    def forward(self, rays: torch.Tensor) -> torch.Tensor:
        depth = torch.linspace(2, 6, 64, device=rays.device)
        points = rays[:, None, :3] + depth[None, :, None] * rays[:, None, 3:]
        waves = [f(points * 2.0**k) for k in range(10) for f in (torch.sin, torch.cos)]
        enter = torch.cat([points, *waves], -1)
        x = enter
        for number, layer in enumerate(self.layers):
            x = F.relu(layer(torch.cat([x, enter], -1) if number == 4 else x))
        opacity = 1 - torch.exp(-F.relu(self.density(x)).squeeze(-1) * (4 / 64))
        passed = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity + 1e-10], -1), -1)[
            :, :-1
        ]
        return ((opacity * passed)[..., None] * self.colour(x)).sum(1)


class SetTransformer(nn.Module):
    """Induced attention over sets by nn.MultiheadAttention, pooled by a learned query."""

    def __init__(self, d: int = 192) -> None:
        super().__init__()
        self.enter, self.induced, self.seed = (
            nn.Linear(6, d),
            nn.Parameter(torch.randn(1, 32, d)),
            nn.Parameter(torch.randn(1, 1, d)),
        )
        self.a = nn.ModuleList([nn.MultiheadAttention(d, 6, batch_first=True) for _ in range(2)])
        self.b = nn.ModuleList([nn.MultiheadAttention(d, 6, batch_first=True) for _ in range(2)])
        self.pool, self.out = nn.MultiheadAttention(d, 6, batch_first=True), nn.Linear(d, 15)
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        for a, b, norm in zip(self.a, self.b, self.norms, strict=True):
            seen = a(self.induced.expand(len(x), -1, -1), x, x, need_weights=False)[0]
            x = norm(x + b(x, seen, seen, need_weights=False)[0])
        return self.out(self.pool(self.seed.expand(len(x), -1, -1), x, x)[0].squeeze(1))


class Contrastive(nn.Module):
    """Two towers and a temperature: all similarities of a batch."""

    def __init__(self, d: int = 256) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 64, 7, 4, 3),
            nn.GroupNorm(8, 64),
            nn.GELU(),
            nn.Conv2d(64, 160, 3, 2, 1),
            nn.GroupNorm(8, 160),
            nn.GELU(),
            nn.Conv2d(160, 256, 3, 2, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(256, d),
        )
        self.words, self.text = (
            nn.Embedding(5000, d),
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(d, 4, 4 * d, batch_first=True, norm_first=True, activation="gelu"),
                2,
                enable_nested_tensor=False,
            ),
        )
        self.temperature = nn.Parameter(torch.tensor(2.6))

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        a = F.normalize(self.image(image), dim=-1)
        b = F.normalize(self.text(self.words(text)).mean(1), dim=-1)
        return self.temperature.exp() * a @ b.t()


def contrast(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Both directions."""
    return (F.cross_entropy(output, target) + F.cross_entropy(output.t(), target)) / 2
