"""Which calls cuDNN is asked about: convolutions of known networks at usual batches, the most wanted first.

Run: `python -m benchmarks cudnn calls SHAPES.jsonl... --output CALLS.npz [--whole]`. `SHAPES.jsonl` are files of
`shapes.py`. How much a call is wanted is the product of

1. the logarithm of how many networks have its convolution (the family of `analyzer.libraries.cudnn.table`), well-known
   ones counted twice, those at a size that is not their own half, those of hand-written networks (`own_networks`) by how
   usual they are;
2. how usual the batch is (`_BATCHES`, `_BATCHES_3D`), and the dtype (`_TYPES`);
3. the layout: networks that run it channels-last by themselves do so whatever the user says; of the others some are made
   channels-last (`_MADE_LAST`);
4. a half for the second of the two 16-bit dtypes: the first stands in for it (rule 2 of `convolutions.py`).

Left out: calls the table has; depthwise convolutions that PyTorch runs itself; tensors PyTorch splits or no GPU holds.
With --whole, calls the table has with their first plan only count too, and just those of two or more networks: they are
asked for all their plans, which benchmark mode needs. With --again calls the table has count as well, and the families it has
most calls of (those many networks have) are wanted as much as one network more for every `_CALLS_A_NETWORK` of them: what
another GPU is asked (`elsewhere.py`). --without-bfloat16: float16 in its place, for GPUs that have no other.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from analyzer.libraries.cudnn.table import (
    MODELLED_ON,
    OPERATIONS,
    TRIAL,
    Convolution,
    Measurements,
    convolution_of,
    measurements,
    member_of,
)
from benchmarks.cudnn.networks import OTHER_SIZE

# How usual each dtype is, and of the networks that keep their input's layout those that are given channels-last ones.
_TYPES = {"float32": 1.0, "bfloat16": 0.85, "float16": 0.8}
_MADE_LAST = {"float32": 0.15, "bfloat16": 0.3, "float16": 0.4}
# Dtypes and layouts as lists of calls number them.
GROUPS = tuple(f"{dtype}.{layout}" for dtype in _TYPES for layout in ("nchw", "nhwc"))
_BATCHES = {
    32: 1.0, 16: 1.0, 8: 0.95, 64: 0.9, 4: 0.8, 24: 0.75, 12: 0.75, 1: 0.7, 2: 0.7, 128: 0.6, 48: 0.6, 6: 0.55, 20: 0.5,
    40: 0.5, 10: 0.5, 96: 0.4, 3: 0.3, 256: 0.25, 5: 0.2,
}  # fmt: skip
_BATCHES_3D = {1: 1.0, 2: 1.0, 4: 0.8, 8: 0.5, 3: 0.35, 6: 0.3, 16: 0.3}
_BATCHES_OWN = (1, 2, 4, 6, 8, 12, 16, 24, 32, 64)
_WELL_KNOWN = (
    "resnet", "resnext50", "wide_resnet50", "efficientnet", "tf_efficientnet", "convnext", "mobilenet", "densenet",
    "vgg", "regnet", "inception", "googlenet", "squeezenet", "shufflenet", "mnasnet", "swin", "vit_", "deit", "seresnet",
    "fcn_", "deeplab", "lraspp", "fasterrcnn", "retinanet", "maskrcnn", "ssd", "r3d", "mc3", "r2plus", "s3d", "mvit",
)  # fmt: skip
# Both sides of a convolution, and the elements PyTorch splits a call at (`use_cudnn`, `Convolution.cpp`).
_BYTES_MAX, _ELEMENTS_MAX = 48e9, 2**31
_SHAPES_BATCH = 2
_CALLS_A_NETWORK = 40


@dataclass(frozen=True)
class Calls:
    """A list of calls: `families` int32 [families, 18] and `entries` int32 [calls, 3] of (family, group, batch)."""

    families: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int64]

    @staticmethod
    def read(path: Path) -> Calls:
        """A list of calls, or the one that answers carry with them."""
        with np.load(path) as members:
            return Calls(members["families"].astype(np.int64), members["entries"].astype(np.int64))

    def write(self, path: Path, **more: npt.NDArray[Any]) -> None:
        """The list as `read` takes it, with further arrays; says how long it is."""
        lists = {"families": self.families.astype(np.int32), "entries": self.entries.astype(np.int32)}
        np.savez_compressed(path, allow_pickle=False, **lists, **more)
        print(f"{len(self.entries):,} calls of {len(self.families):,} convolutions", file=sys.stderr)

    def convolutions(self, number: int) -> list[Convolution]:
        """The three operations of an entry."""
        family, group, batch = (int(value) for value in self.entries[number])
        dtype, layout = GROUPS[group].split(".")
        return [
            convolution_of(
                self.families[family],
                batch,
                Convolution(name, dtype, layout == "nhwc", (1, 1), (1, 1), (), (), ()),
            )
            for name in OPERATIONS
        ]


@dataclass
class Wanted:
    """What is known of one family: how many networks have it (by themselves channels-last), at how many images a sample."""

    weight: float = 0.0
    weight_last: float = 0.0
    images: int = 1 << 20
    own: bool = True
    transposed: bool = False


@dataclass
class Families:
    """The families seen, in the order they were seen."""

    found: dict[tuple[int, ...], Wanted] = field(default_factory=dict)

    def read(self, path: Path) -> None:
        """Add the convolutions of a file of `shapes.py`."""
        for line in path.read_text(encoding="utf-8").splitlines():
            network = json.loads(line)
            weight = 2.0 if network["name"].startswith(_WELL_KNOWN) else 1.0
            weight *= 0.5 if OTHER_SIZE in network["name"] else 1.0
            for convolution in network["convolutions"]:
                self._add(convolution, weight)

    def _add(self, convolution: dict[str, Any], weight: float) -> None:
        x, y = convolution["x"], convolution["y"]
        transposed = convolution["transposed"]
        call = call_of(y if transposed else x, convolution)
        # Padding that cuDNN is not told of ("same" with an even filter) is its own operation.
        if 0 in (*x, *y) or x[0] % _SHAPES_BATCH or call.y_shape != tuple(two(x if transposed else y)):
            return
        wanted = self.found.setdefault(call.family, Wanted())
        if convolution["channels_last"]:
            wanted.weight_last += weight
        else:
            wanted.weight += weight
        wanted.images = min(wanted.images, x[0] // _SHAPES_BATCH)
        wanted.own = False
        wanted.transposed |= transposed

    def add_own(self) -> None:
        """Add the convolutions of networks people write by hand."""
        most = dict[tuple[int, ...], float]()
        for weight, call in own_networks():
            if min(call.y_shape) > 0:
                most[call.family] = max(most.get(call.family, 0.0), weight)
        for family, weight in most.items():
            wanted = self.found.setdefault(family, Wanted(images=1))
            wanted.weight += 2 * weight

    def add_known(self, table: Measurements) -> None:
        """Add the convolutions of a table, those that were asked most often most."""
        count = len(table.families)
        asked = {"nchw": np.zeros(count, np.int64), "nhwc": np.zeros(count, np.int64)}
        for name in GROUPS:
            if f"{name}.batch" in table.members:
                asked[name.partition(".")[2]] += np.bincount(table.array(f"{name}.family"), minlength=count)
        layouts = (asked["nchw"].tolist(), asked["nhwc"].tolist())
        for family, first, last in zip(map(tuple, table.families.tolist()), *layouts, strict=True):
            wanted = self.found.setdefault(family, Wanted(images=1, own=False))
            wanted.weight += first / _CALLS_A_NETWORK
            wanted.weight_last += last / _CALLS_A_NETWORK


def two(sizes: list[int]) -> list[int]:
    """A shape with at least two spatial dimensions: 1-D convolutions are 2-D ones of height 1."""
    return [*sizes[:2], 1, sizes[2]] if len(sizes) == 3 else sizes


def call_of(x: list[int], convolution: dict[str, Any]) -> Convolution:
    """The forward convolution from x, with the filter and the numbers given."""
    stride, padding, dilation = (convolution[name] for name in ("stride", "padding", "dilation"))
    if len(stride) == 1:
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    sizes = (two(x), two(convolution["w"]), padding, stride, dilation)
    return Convolution("forward", "float32", False, *(tuple(each) for each in sizes))


def own_networks() -> Iterator[tuple[float, Convolution]]:
    """(how usual, convolution) of encoders, U-Nets, discriminators and 1-D and 3-D networks written by hand."""

    def square(
        dimensions: int,
        c: int,
        k: int,
        size: int,
        kernel: int,
        padding: int,
        stride: int = 1,
        dilation: int = 1,
    ) -> Convolution:
        flat = dimensions == 1
        n = 2 if flat else dimensions

        def each(value: int, of_height: int) -> tuple[int, ...]:
            return (of_height, value) if flat else (value,) * n

        return Convolution(
            "forward", "float32", False, (1, c, *each(size, 1)), (k, c, *each(kernel, 1)),
            each(padding, 0), each(stride, 1), each(dilation, 1),
        )  # fmt: skip

    usual = (32, 64, 128, 256, 28, 16, 8, 4, 14, 7)
    sometimes = (224, 96, 48, 112, 56)
    rarely = (24, 12, 6, 10, 20, 40, 80, 160, 60, 30, 15, 120, 240, 192, 320)
    for size in (*usual, *sometimes, *rarely):
        often = 1.0 if size in usual else 0.5 if size in sometimes else 0.3
        for c in (1, 3, 4):
            for k in (8, 16, 32, 64, 128):
                yield often, square(2, c, k, size, 3, 1)
            for k in (16, 32, 64):
                for weight, form in (
                    (0.6, (3, 1, 2)),
                    (0.6, (4, 1, 2)),
                    (0.5, (5, 2, 1)),
                    (0.4, (7, 3, 2)),
                    (0.3, (7, 3, 1)),
                ):
                    yield weight, square(2, c, k, size, *form)
        for c in (16, 32, 64, 128, 256, 512, 24, 40, 48, 80, 96, 160, 192, 320, 384):
            if c * size * size > 128 * 256 * 256:
                continue
            power = 1.0 if c & (c - 1) == 0 else 0.5
            # A third: a skip of two levels' channels and what comes from below, joined.
            for k in (c, 2 * c, c // 2, *([c // 3] if c % 3 == 0 else [])):
                yield power * often, square(2, c, k, size, 3, 1)
                for weight, form in (
                    (0.6, (3, 1, 2)),
                    (0.6, (4, 1, 2)),
                    (0.5, (1, 0, 1)),
                    (0.4, (2, 0, 2)),
                    (0.3, (5, 2, 1)),
                ):
                    if k * 2 >= c:
                        yield power * min(weight, often), square(2, c, k, size, *form)
            for k in (1, 2, 3, 4, 10, 19, 21):
                yield 0.5, square(2, c, k, size, 1, 0)
            for k in (1, 3):
                yield 0.5, square(2, c, k, size, 3, 1)
                yield 0.4, square(2, c, k, size, 4, 1, 2)
    for size in (100, 128, 256, 512, 1000, 1024, 2048, 4096, 8192, 16000):
        for c in (1, 2, 3, 4, 12, 16, 32, 64, 80, 128, 256, 512):
            for k in sorted({2 * c, 64, 32, 128} | ({c} if c > 4 else set())):
                for form in ((3, 1), (5, 2), (7, 3)):
                    yield 0.35, square(1, c, k, size, *form)
            for dilation in (2, 4, 8, 16) if c >= 16 else ():
                yield 0.3, square(1, c, c, size, 3, dilation, 1, dilation)
    for size in (8, 16, 32, 64, 96, 128, 12, 20, 24, 40, 48, 80):
        for c, k in (
            (1, 24), (24, 24), (24, 48), (48, 48), (48, 96), (96, 96), (96, 48), (48, 24), (24, 4), (1, 8), (1, 16), (1, 32), (4, 16), (16, 16), (8, 8), (16, 32), (32, 32), (32, 64), (64, 64), (64, 128),
            (128, 128), (128, 64), (64, 32), (32, 16), (256, 128), (16, 2), (32, 3), (32, 2),
        ):  # fmt: skip
            if c * size**3 <= 64 * 128**3:
                for weight, form in ((0.4, (3, 1, 1)), (0.2, (3, 1, 2)), (0.25, (2, 0, 2))):
                    yield weight, square(3, c, k, size, *form)


def select(
    families: Families, table: Measurements, whole: bool, again: bool = False
) -> Iterator[tuple[float, tuple[int, ...], int, int]]:
    """(how much wanted, family, group, batch) of the calls the table lacks; again: of all."""
    known = set() if again else asked_calls(table, TRIAL if whole else None)
    like = Convolution("forward", "float32", False, (1, 1), (1, 1), (), (), ())
    for family, wanted in families.found.items():
        if whole and (wanted.own or wanted.weight + wanted.weight_last < 3):
            continue
        one = convolution_of(np.array(family), 1, like)
        dimensions = 3 if family[1] else 1 if family[2] == 1 and family[7] == 1 else 2
        depthwise = not wanted.transposed and one.groups == one.x_shape[1] > 1
        elements = math.prod(one.x_shape) + math.prod(one.y_shape)
        for batch, usual in (_BATCHES_3D if dimensions == 3 else _BATCHES).items():
            images = batch * wanted.images
            if (wanted.own and batch not in _BATCHES_OWN) or 4 * elements * images > _BYTES_MAX:
                continue
            if max(math.prod(one.x_shape), math.prod(one.y_shape)) * images >= _ELEMENTS_MAX:
                continue
            for number, (name, of_group) in enumerate(how_usual(wanted).items()):
                channels_last = name.endswith("nhwc")
                # PyTorch gives cuDNN depthwise convolutions in float16 or NHWC only; 1-D ones have no NHWC.
                if (depthwise and not channels_last and name != "float16.nchw") or (
                    dimensions == 1 and channels_last
                ):
                    continue
                if of_group and (name, family, images) not in known:
                    yield usual * of_group, family, number, images


def how_usual(wanted: Wanted) -> dict[str, float]:
    """How much each of `GROUPS` is wanted of a family."""
    found = {}
    for dtype, usual in _TYPES.items():
        stands_in = 0.5 if dtype == "float16" else 1.0
        made_last = wanted.weight_last + _MADE_LAST[dtype] * wanted.weight
        for layout, weight in (("nchw", wanted.weight), ("nhwc", made_last)):
            found[f"{dtype}.{layout}"] = math.log2(1 + weight) * usual * stands_in
    return found


def asked_calls(table: Measurements, figure: str | None) -> set[tuple[str, tuple[int, ...], int]]:
    """(group, family, batch) of a table; of one figure, those that were asked for it."""
    found = set[tuple[str, tuple[int, ...], int]]()
    families = [tuple(family) for family in table.families.tolist()]
    for name in GROUPS:
        if f"{name}.batch" not in table.members:
            continue
        rows, batches = table.array(f"{name}.family"), table.array(f"{name}.batch")
        if figure is not None:
            member = member_of(name, OPERATIONS[0], figure)
            asked = table.array(member) != -2 if member in table.members else np.zeros(len(rows), np.bool_)
            rows, batches = rows[asked], batches[asked]
        found |= {
            (name, families[row], batch) for row, batch in zip(rows.tolist(), batches.tolist(), strict=True)
        }
    return found


def list_of(chosen: Iterable[tuple[float, tuple[int, ...], int, int]], limit: int) -> Calls:
    """The most wanted calls, most wanted first."""
    ordered = sorted(chosen, key=lambda entry: -entry[0])[:limit]
    rows = {family: row for row, family in enumerate(dict.fromkeys(entry[1] for entry in ordered))}
    entries = [(rows[family], group, batch) for _, family, group, batch in ordered]
    return Calls(np.array(list(rows), np.int64).reshape(-1, 18), np.array(entries, np.int64).reshape(-1, 3))


@click.command("calls")
@click.argument("shapes", nargs=-1, type=Path)
@click.option("--output", required=True, type=Path)
@click.option("--table", default=MODELLED_ON)
@click.option("--limit", default=200_000)
@click.option("--whole", is_flag=True)
@click.option("--again", is_flag=True)
@click.option("--without-bfloat16", is_flag=True)
def main(
    shapes: tuple[Path, ...],
    output: Path,
    table: str,
    limit: int,
    whole: bool,
    again: bool,
    without_bfloat16: bool,
) -> None:
    """List the calls to ask about, the most wanted first."""
    families = Families()
    for path in shapes:
        families.read(path)
    known = measurements(table)
    if again:
        families.add_known(known)
    else:
        families.add_own()
    calls = list_of(select(families, known, whole, again), limit)
    if without_bfloat16:
        groups = calls.entries[:, 1]
        kept = np.array([not GROUPS[group].startswith("float16") for group in groups.tolist()])
        calls = Calls(calls.families, calls.entries[kept])
        calls.entries[:, 1] = [
            GROUPS.index(GROUPS[group].replace("bfloat16", "float16"))
            for group in calls.entries[:, 1].tolist()
        ]
    calls.write(output)
