"""Parts of networks that people write by hand (`handwritten.py`): their convolutions, and what decides their shapes.

Normalizations, activations and dropout are left out: they keep a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

# Name, how it is made, the shape of one sample.
Made = tuple[str, Callable[[], nn.Module], tuple[int, ...]]

# One convolution of a chain: channels out, kernel, stride, padding; and dilation, or output padding of a transposed one.
Form = tuple[int, int, int, int]


def chain(c: int, *forms: Form, up: bool = False, dimensions: int = 2) -> nn.Sequential:
    """Convolutions one after the other, from c channels; up: transposed ones."""
    kind: Any = getattr(nn, f"Conv{'Transpose' if up else ''}{dimensions}d")
    layers = nn.Sequential()
    for k, *form in forms:
        layers.append(kind(c, k, *form))
        c = k
    return layers


class UNet(nn.Module):
    """An encoder, and a decoder that is given what the encoder had at each size.

    widths: channels by level; transposed: how the decoder grows (else by interpolation and, `after`, a convolution);
    timed: as diffusion models have it, with residual blocks that project, and attention's projections.
    """

    def __init__(
        self, c: int, k: int, widths: Sequence[int], *, dimensions: int = 2, transposed: bool = True,
        kernel: int = 3, first: int = 0, timed: bool = False, last_kernel: int = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.dimensions, self.transposed, self.timed = dimensions, transposed, timed
        conv: Any = getattr(nn, f"Conv{dimensions}d")
        grow: Any = getattr(nn, f"ConvTranspose{dimensions}d")
        pad, before = kernel // 2, widths[0] if timed else c
        self.stem = conv(c, widths[0], first or 3, padding=(first or 3) // 2) if timed else nn.Identity()
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        for width in widths:
            self.down.append(self._block(conv, before, width, kernel, pad))
            self.shrink.append(conv(width, width, 3, 2, 1) if timed else nn.Identity())
            before = width
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for width in reversed(widths[:-1]):
            grown = width if transposed else before
            self.grow.append(
                grow(before, width, 2, 2)
                if transposed
                else conv(before, before, 3, padding=1)
                if timed
                else nn.Identity()
            )
            self.up.append(self._block(conv, grown + width, width, kernel, pad))
            before = width
        self.last = conv(before, k, last_kernel, padding=last_kernel // 2)

    def _block(self, conv: Any, c: int, k: int, kernel: int, pad: int) -> nn.Module:
        both = nn.Sequential(conv(c, k, kernel, padding=pad), conv(k, k, kernel, padding=pad))
        if not self.timed:
            return both
        sides = {
            "both": both,
            "attend": nn.Sequential(conv(k, 384, 1, bias=False), conv(384, 128, 1), conv(128, k, 1)),
        }
        return nn.ModuleDict(sides | {"beside": conv(c, k, 1), "queries": nn.Conv1d(k, 3 * k, 1)})

    def _through(self, block: Any, x: Any) -> Any:
        if not self.timed:
            return block(x)
        y = block["both"](x)
        block["beside"](x), block["attend"](y), block["queries"](y.flatten(2))
        return y

    def forward(self, x: Any) -> Any:
        x, kept = self.stem(x), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            x = self._through(block, x)
            kept.append(x)
            x = shrink(x) if self.timed else F.max_pool2d(x, 2) if self.dimensions == 2 else x[..., ::2]
            if self.dimensions == 3:
                x = x[:, :, ::2, ::2]
        x = kept.pop()
        for grow, block in zip(self.grow, self.up, strict=True):
            like = kept.pop()
            if not self.transposed:
                x = x.new_empty((*x.shape[:2], *like.shape[2:]))
            x = grow(x)
            x = x.new_empty((*x.shape[:2], *like.shape[2:]))
            x = self._through(block, torch.cat([like, x], 1))
        return self.last(x)


class Pix2Pix(nn.Module):
    """Its generator: halved down to one by one and back, the way up given what the way down had."""

    def __init__(self, c: int, k: int, width: int, levels: int) -> None:
        super().__init__()
        widths = [min(width << level, 8 * width) for level in range(levels)]
        self.down = chain(c, *((each, 4, 2, 1) for each in widths))
        backward = [*reversed(widths[:-1]), k]
        inputs = [widths[-1], *(2 * each for each in backward[:-1])]
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 4, 2, 1) for a, b in zip(inputs, backward, strict=True)
        )

    def forward(self, x: Any) -> Any:
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
        kept.pop()
        for layer in self.up:
            x = layer(x)
            x = torch.cat([x, kept.pop()], 1) if kept else x
        return x


class Translating(nn.Module):
    """CycleGAN's and Johnson's generator: two halvings, residual blocks whose borders are reflected, two doublings."""

    def __init__(self, c: int, k: int, width: int, kernel: int = 7) -> None:
        super().__init__()
        self.edge = kernel // 2
        self.first = chain(c, (width, kernel, 1, 0), (2 * width, 3, 2, 1), (4 * width, 3, 2, 1))
        self.block = nn.Conv2d(4 * width, 4 * width, 3)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(a, a // 2, 3, 2, 1, output_padding=1) for a in (4 * width, 2 * width)
        )
        self.last = nn.Conv2d(width, k, kernel)

    def forward(self, x: Any) -> Any:
        x = self.first(F.pad(x, (self.edge,) * 4))
        x = self.block(F.pad(x, (1,) * 4))
        for layer in self.up:
            x = layer(x)
        return self.last(F.pad(x, (self.edge,) * 4))


class Style(nn.Module):
    """StyleGAN2's convolutions without the fused modulation: synthesis, and critic that blurs before it halves."""

    def __init__(self, size: int, most: int = 512, base: int = 16384) -> None:
        super().__init__()
        sizes = [4 << level for level in range((size // 4).bit_length())]
        widths = [min(most, base // each) for each in sizes]
        self.plain = nn.ModuleList(nn.Conv2d(each, each, 3, padding=1) for each in widths)
        self.colours = nn.ModuleList(nn.Conv2d(each, 3, 1) for each in widths)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 3, 2) for a, b in pairwise(widths))
        self.begin = nn.Conv2d(3, widths[-1], 1)
        self.shrink = nn.ModuleList(nn.Conv2d(b, a, 3, 2) for a, b in pairwise(widths))
        self.beside = nn.ModuleList(nn.Conv2d(b, a, 1, 2) for a, b in pairwise(widths))
        self.end = nn.Conv2d(widths[0] + 1, widths[0], 3, padding=1)

    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        y = x.new_empty((n, self.plain[0].in_channels, 4, 4))
        for level, layer in enumerate(self.plain):
            y = layer(y)
            self.colours[level](y)
            if level < len(self.grow):
                grown = self.grow[level](y)
                y = grown.new_empty((n, grown.shape[1], y.shape[2] * 2, y.shape[3] * 2))
        y = self.begin(y.new_empty((n, 3, *y.shape[2:])))
        for plain, shrink, beside in zip(
            reversed(self.plain), reversed(self.shrink), reversed(self.beside), strict=False
        ):
            y = plain(y)
            beside(F.pad(y, (0, -1, 0, -1)))
            y = shrink(F.pad(y, (1, 0, 1, 0)))
        return self.end(F.pad(y, (0, 0, 0, 0, 0, 1)))


class Yolo(nn.Module):
    """The backbone, neck and head of YOLOv5 and v8 at a width: halvings, split blocks, one map at each of three sizes."""

    def __init__(self, width: float, stem: int, classes: int = 80) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = (int(each * width) for each in (64, 128, 256, 512, 1024))
        self.first = nn.Conv2d(3, c1, stem, 2, stem // 2 if stem % 2 else 2)
        self.halve = nn.ModuleList(
            nn.Conv2d(a, b, 3, 2, 1) for a, b in ((c1, c2), (c2, c3), (c3, c4), (c4, c5))
        )
        self.split = nn.ModuleList(_split(each, each) for each in (c2, c3, c4, c5))
        self.pooled = chain(c5, (c5 // 2, 1, 1, 0)), nn.Conv2d(2 * c5, c5, 1)
        self.pools = nn.ModuleList(self.pooled)
        self.neck = nn.ModuleDict({
            "joined4": _split(c5 + c4, c4), "joined3": _split(c4 + c3, c3), "narrow5": nn.Conv2d(c5, c4, 1),
            "narrow4": nn.Conv2d(c4, c3, 1), "down3": nn.Conv2d(c3, c3, 3, 2, 1), "down4": nn.Conv2d(c4, c4, 3, 2, 1),
        })  # fmt: skip
        boxes, marks = max(16, c3 // 4, 64), max(c3, min(classes, 100))
        self.heads = nn.ModuleList(
            nn.ModuleList((
                nn.Conv2d(c, 3 * (classes + 5), 1), chain(c, (boxes, 3, 1, 1), (boxes, 3, 1, 1), (64, 1, 1, 0)),
                chain(c, (marks, 3, 1, 1), (marks, 3, 1, 1), (classes, 1, 1, 0)),
            ))
            for c in (c3, c4, c5)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        x, maps = self.first(x), []
        for halve, split in zip(self.halve, self.split, strict=True):
            x = halve(x)
            _run(split, x)
            maps.append(x)
        _, x3, x4, x5 = maps
        half = self.pools[0](x5)
        self.pools[1](torch.cat([half] * 4, 1))
        neck: Any = self.neck
        for name, with_ in (("joined4", (x5, x4)), ("joined3", (x4, x3))):
            like = with_[1]
            _run(neck[name], x.new_empty((x.shape[0], sum(each.shape[1] for each in with_), *like.shape[2:])))
        for name, given in (("narrow5", x5), ("narrow4", x4), ("down3", x3), ("down4", x4)):
            neck[name](given)
        for head, given in zip(self.heads, (x3, x4, x5), strict=True):
            for branch in head:
                branch(given)


def _split(c: int, k: int) -> nn.ModuleList:
    """The convolutions of a C3 and of a C2f block."""
    half = k // 2
    return nn.ModuleList((
        nn.Conv2d(c, half, 1), chain(half, (half, 1, 1, 0), (half, 3, 1, 1)), nn.Conv2d(c, k, 1),
    ))  # fmt: skip


def _run(block: Any, x: Any) -> None:
    narrow, inner, whole = block
    y = inner(narrow(x))
    whole(x)
    nn.Conv2d(2 * y.shape[1], whole.out_channels, 1)(torch.cat([y, y], 1))
    nn.Conv2d(3 * y.shape[1], whole.out_channels, 1)(torch.cat([y, y, y], 1))


class Each(nn.Module):
    """Convolutions that are given the same input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any) -> None:
        for layer in self.layers:
            layer(x)
