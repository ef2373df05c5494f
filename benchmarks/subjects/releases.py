"""Small programs whose memory PyTorch's releases are compared by: torch alone, nothing read back.

Each is a model, a batch and a way of running it; `observe.py` runs them, `analyzer` predicts them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Program:
    """make_batch gives (inputs, target). loss and optimizer (a name in `OPTIMIZERS`): None in inference."""

    make_model: Callable[[], nn.Module]
    make_batch: Callable[[], tuple[tuple[Tensor, ...], Tensor]]
    loss: Callable[[Any, Tensor], Tensor] | None = None
    optimizer: str | None = None
    amp: str | None = None


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
    "adadelta": torch.optim.Adadelta,
    "adamax": torch.optim.Adamax,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "asgd": torch.optim.ASGD,
    "rprop": torch.optim.Rprop,
    "adafactor": torch.optim.Adafactor,
}


def _perceptron(*widths: int, between: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first, second in itertools.pairwise(widths):
        layers += [nn.Linear(first, second), between()]
    return nn.Sequential(*layers[:-1])


class _Encoder(nn.Module):
    """Tokens, a transformer's encoder, a classifier."""

    def __init__(self, width: int = 256, layers: int = 3, heads: int = 4, words: int = 2000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


class _Bert(nn.Module):
    """Blocks as BERT has them: sums of three embeddings, post-norm attention with a mask, tanh GELU."""

    def __init__(self, width: int = 384, layers: int = 3, heads: int = 6, words: int = 5000) -> None:
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, width) for n in (words, 512, 2))
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out, self.up = (
            nn.ModuleList(nn.Linear(width, size) for _ in range(layers))
            for size in (width, width, width, width, 4 * width)
        )
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, words)
        self.heads = heads

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places) + self.kinds(torch.zeros_like(tokens))
        x = F.dropout(self.norm(x), 0.1, self.training)
        for i in range(len(self.query)):
            q, k, v = (
                layer[i](x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
                for layer in (self.query, self.key, self.value)
            )
            found = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
            found = self.out[i](found.transpose(1, 2).reshape(x.shape))
            x = self.norms[2 * i](x + F.dropout(found, 0.1, self.training))
            x = self.norms[2 * i + 1](x + self.down[i](F.gelu(self.up[i](x), approximate="tanh")))
        return self.head(x)


class _Decoder(nn.Module):
    """Causal attention with grouped queries, root-mean-square norms, a gated perceptron; no bias anywhere."""

    def __init__(
        self, width: int = 256, layers: int = 2, heads: int = 8, groups: int = 2, words: int = 3000
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.words = nn.Embedding(words, width)
        rest = 2 * groups * self.size
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * layers))
        self.inner = nn.ModuleList(nn.Linear(width, width + rest, bias=False) for _ in range(layers))
        self.outer = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        self.gate, self.up = (
            nn.ModuleList(nn.Linear(width, 688, bias=False) for _ in range(layers)) for _ in range(2)
        )
        self.down = nn.ModuleList(nn.Linear(688, width, bias=False) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens)
        kept = self.groups * self.size
        for i in range(len(self.inner)):
            parts = self.inner[i](self.norms[2 * i](x)).split([x.shape[-1], kept, kept], dim=-1)
            q, k, v = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
            k, v = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (k, v))
            found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.outer[i](found.transpose(1, 2).flatten(2))
            inner = self.norms[2 * i + 1](x)
            x = x + self.down[i](F.silu(self.gate[i](inner)) * self.up[i](inner))
        return self.head(x)


class _Norms(nn.Module):
    """Every normalization that needs no cuDNN."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        self.norms = nn.ModuleList(
            [
                nn.GroupNorm(8, channels),
                nn.LayerNorm([channels, 100]),
                nn.RMSNorm(100),
                nn.LocalResponseNorm(5),
            ]
        )
        self.prelu = nn.PReLU(channels)

    def forward(self, x: Tensor) -> Tensor:
        for norm in self.norms:
            x = self.prelu(norm(x)) + x
        return F.normalize(x, dim=1)


class _Products(nn.Module):
    """Products of all shapes: stacks, vectors, transposed and cut operands, and with a bias."""

    def __init__(self, width: int = 300) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))
        self.stack = nn.Parameter(torch.zeros(8, width, width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.addmm(self.bias, x, self.weight) + x @ self.weight.t() + x[:, ::2] @ self.weight[::2]
        z = torch.baddbmm(y.expand(8, -1, -1), y.expand(8, -1, -1), self.stack) @ self.stack
        z = torch.einsum("bij,bkj->bik", z, z)
        w = torch.mv(self.weight, self.bias) + torch.addmv(self.bias, self.weight, self.bias)
        return z.sum() + torch.outer(w, w).sum() + torch.dot(w, w)


class _Indices(nn.Module):
    """Gathering, scattering, sorting, sampling of rows."""

    def __init__(self, words: int = 500, width: int = 64) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.bags = nn.EmbeddingBag(words, width, mode="sum")

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        where = tokens[:, :8, None].expand(-1, -1, x.shape[-1]) % 100
        top = x.gather(1, where)
        ordered, _ = x.sort(dim=1)
        x = x.scatter_add(1, where, top) + ordered.cumsum(1) + self.bags(tokens)[:, None]
        x = torch.cat([x, x.flip(1), x.roll(3, 1)], 1)
        x = torch.where(x > 0, x, x.exp())
        return x.gather(1, where).softmax(-1).logsumexp(1) + x.index_select(1, tokens[0, :8]).amax(1)


class _Losses(nn.Module):
    """Every common loss of one linear layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 1000)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        goal = torch.zeros_like(y)
        several = F.mse_loss(y, goal) + F.l1_loss(y, goal) + F.smooth_l1_loss(y, goal) + F.huber_loss(y, goal)
        several = several + F.binary_cross_entropy_with_logits(y, goal) + F.kl_div(F.log_softmax(y, 1), goal)
        classes = torch.zeros(len(y), dtype=torch.int64, device=y.device)
        return several + F.cross_entropy(y, classes, label_smoothing=0.1)


class _Blocks(nn.Module):
    """Convolutions as image classifiers have them: strided, grouped, depthwise, 1 x 1, normalized, pooled, with a shortcut."""

    def __init__(self, width: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.narrow = nn.Sequential(
            nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)
        )
        self.grouped = nn.Conv2d(width, width, 3, padding=1, groups=4, bias=False)
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.wide = nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.BatchNorm2d(4 * width))
        self.shortcut = nn.Conv2d(width, 4 * width, 1, 2)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.hardswish(self.depthwise(F.silu(self.grouped(self.narrow(x)))))
        y = F.avg_pool2d(self.wide(y), 2) + self.shortcut(x)
        return self.head(F.adaptive_avg_pool2d(F.relu(y), 1).flatten(1))


class _UNet(nn.Module):
    """Down, up by transposed convolution and by interpolation, and what was on the way beside it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, padding=1)
        self.norm = nn.GroupNorm(4, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.last = nn.Conv2d(2 * width, 1, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        low = F.leaky_relu(self.norm(self.second(F.max_pool2d(x, 2))), 0.1)
        up = self.up(low) + F.interpolate(low[:, : x.shape[1]], scale_factor=2, mode="bilinear")
        return self.last(torch.cat([x, up], 1))


class _Temporal(nn.Module):
    """Dilated convolutions along one axis, and one over a volume."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(4))
        self.volume = nn.Conv3d(1, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return self.volume(x.unflatten(-1, (16, -1))[:, None])


class _Recurrent(nn.Module):
    """Both recurrent networks of cuDNN, one above the other."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, width, 2, batch_first=True, dropout=0.1, bidirectional=True)
        self.gru = nn.GRU(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.lstm(x)
        x, _ = self.gru(x)
        return self.head(x[:, -1])


class _Patches(nn.Module):
    """A vision transformer: patches by convolution, a learned class token, pre-norm blocks."""

    def __init__(self, width: int = 192, layers: int = 2) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token, self.places = (
            nn.Parameter(torch.zeros(1, 1, width)),
            nn.Parameter(torch.zeros(1, 197, width)),
        )
        layer = nn.TransformerEncoderLayer(
            width, 3, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class _Resampled(nn.Module):
    """Pools, pads and samples of pictures that need no cuDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1, 8, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        x = F.pad(x, (1, 2, 3, 4), mode="replicate")
        grid = torch.zeros(len(x), 40, 40, 2, device=x.device)
        x = F.grid_sample(x, grid, align_corners=False) + F.adaptive_max_pool2d(x, 40)
        x = F.pixel_shuffle(F.unfold(x, 3, stride=2).unflatten(-1, (19, 19))[:, :64], 2)
        return F.interpolate(x, size=(50, 50), mode="bicubic").std() + x.var(dim=1).mean()


class _Sampled(nn.Module):
    """What generation does with logits: the highest, ordered, cut, drawn."""

    def __init__(self, words: int = 32000) -> None:
        super().__init__()
        self.head = nn.Linear(64, words)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(x) / 0.7
        top, _ = logits.topk(50)
        logits = logits.masked_fill(logits < top[:, -1:], float("-inf"))
        ordered, order = logits.sort(descending=True)
        gone = ordered.softmax(-1).cumsum(-1) > 0.9
        logits = logits.masked_fill(gone.scatter(1, order, gone), float("-inf"))
        return torch.multinomial(logits.softmax(-1), 1) + logits.argmax(-1, keepdim=True)


def _tokens(batch: int, length: int, words: int) -> tuple[tuple[Tensor, ...], Tensor]:
    return (torch.randint(0, words, (batch, length)),), torch.randint(0, words, (batch, length))


def _masked(batch: int, length: int, words: int) -> tuple[tuple[Tensor, ...], Tensor]:
    (tokens,), target = _tokens(batch, length, words)
    return (tokens, torch.ones(batch, length, dtype=torch.bool)), target


def _of_tokens(out: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(out.reshape(-1, out.size(-1)), target.reshape(-1))


def _mean(out: Tensor, _: Tensor) -> Tensor:
    return out.float().mean()


_DIGITS = lambda: ((torch.randn(100, 784),), torch.randint(0, 10, (100,)))  # noqa: E731
_ROWS = lambda: ((torch.randn(500, 2000),), torch.randn(500, 2000))  # noqa: E731

_IMAGES = lambda: ((torch.randn(8, 3, 112, 112),), torch.randint(0, 10, (8,)))  # noqa: E731
_PHOTOS = lambda: ((torch.randn(4, 3, 224, 224),), torch.randint(0, 10, (4,)))  # noqa: E731
_GRAY = lambda: ((torch.randn(2, 1, 96, 96),), torch.zeros(2, 1, 96, 96))  # noqa: E731
_SERIES = lambda: ((torch.randn(4, 32, 512),), torch.zeros(1))  # noqa: E731
_FRAMES = lambda: ((torch.randn(16, 50, 64),), torch.randint(0, 5, (16,)))  # noqa: E731

PROGRAMS: dict[str, Program] = {
    "linear": Program(lambda: _perceptron(784, 10), _DIGITS, F.cross_entropy, "sgd"),
    "perceptron": Program(
        lambda: _perceptron(2000, 1000, 2000, 1000, 2000, between=nn.Sigmoid), _ROWS, F.mse_loss, "adam"
    ),
    "perceptron, inference": Program(lambda: _perceptron(2000, 1000, 2000), _ROWS),
    "encoder": Program(_Encoder, lambda: _tokens(16, 128, 2000), _of_tokens, "adam"),
    "encoder, inference": Program(_Encoder, lambda: _tokens(16, 128, 2000)),
    "encoder, bf16": Program(_Encoder, lambda: _tokens(16, 128, 2000), _of_tokens, "adamw", "bf16"),
    "bert": Program(_Bert, lambda: _masked(8, 128, 5000), _of_tokens, "adamw"),
    "bert, inference": Program(_Bert, lambda: _masked(8, 128, 5000)),
    "decoder": Program(_Decoder, lambda: _tokens(4, 256, 3000), _of_tokens, "adamw_fused"),
    "decoder, inference": Program(_Decoder, lambda: _tokens(4, 256, 3000)),
    "decoder, bf16": Program(_Decoder, lambda: _tokens(4, 256, 3000), _of_tokens, "adamw", "bf16"),
    "norms": Program(_Norms, lambda: ((torch.randn(32, 64, 100),), torch.zeros(1)), _mean, "sgd"),
    "products": Program(_Products, lambda: ((torch.randn(300, 300),), torch.zeros(1)), _mean, "sgd"),
    "indices": Program(_Indices, lambda: _tokens(64, 100, 300), _mean, "sgd"),
    "losses": Program(_Losses, lambda: ((torch.randn(256, 64),), torch.zeros(1)), _mean, "sgd"),
    "encoder, fp16": Program(_Encoder, lambda: _tokens(16, 128, 2000), _of_tokens, "adamw", "fp16"),
    "blocks": Program(_Blocks, _IMAGES, F.cross_entropy, "momentum"),
    "blocks, inference": Program(_Blocks, _IMAGES),
    "blocks, bf16": Program(_Blocks, _IMAGES, F.cross_entropy, "adam", "bf16"),
    "blocks, fp16": Program(_Blocks, _IMAGES, F.cross_entropy, "momentum", "fp16"),
    "unet": Program(_UNet, _GRAY, F.mse_loss, "adam"),
    "unet, bf16": Program(_UNet, _GRAY, F.mse_loss, "adam", "bf16"),
    "temporal": Program(_Temporal, _SERIES, _mean, "adam"),
    "recurrent": Program(_Recurrent, _FRAMES, F.cross_entropy, "adam"),
    "recurrent, inference": Program(_Recurrent, _FRAMES),
    "patches": Program(_Patches, _PHOTOS, F.cross_entropy, "adamw"),
    "patches, bf16": Program(_Patches, _PHOTOS, F.cross_entropy, "adamw", "bf16"),
    "resampled": Program(_Resampled, lambda: ((torch.randn(4, 8, 64, 64),), torch.zeros(1)), _mean, "sgd"),
    "sampled, inference": Program(_Sampled, lambda: ((torch.randn(4, 64),), torch.zeros(1))),
    **{
        f"perceptron, {name}": Program(lambda: _perceptron(784, 700, 300, 10), _DIGITS, F.cross_entropy, name)
        for name in OPTIMIZERS
    },
}
