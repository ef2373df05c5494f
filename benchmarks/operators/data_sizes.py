"""Cases of `cases.py` whose results have a size that is data: masks, what is selected by them, distinct values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from benchmarks.operators.cases import BF, CASES, HF, D, Given, both


def every(step: int, *shape: int) -> Given:
    """A mask in which each `step`th element is set."""
    return lambda _: ((torch.arange(math.prod(shape), device=D) + 1) % step == 0).reshape(shape)


def masks() -> None:
    """Results whose size is data: where something is not zero, selection by masks, and what is written through them."""
    counts = (
        1, 10, 500, 1000, 2048, 3000, 5000, 8192, 16384, 40000, 100_000, 131_072, 300_000, 1_000_000, 3_000_000
    )  # fmt: skip
    shapes = [(n,) for n in counts] + [(128, 100), (1000, 1000), (64, 64, 64), (2, 3, 32, 32), (0,), ()]
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float32, HF):
        for shape in shapes:
            for step in (1, 2, 5):

                def where(shape: Any = shape, dtype: Any = dtype, step: int = step) -> None:
                    n = math.prod(shape)
                    x = (torch.arange(n, device=D) % step == 0).to(dtype).reshape(shape)
                    x.nonzero()
                    if x.dim() == 2:
                        x.t().nonzero()
                        torch.where(x)

                CASES[f"nonzero {dtype} {shape} {step}"] = where
    for shape, rest in (
        ((5000,), ()),
        ((5000,), (16,)),
        ((200_000,), (3,)),
        ((100, 60), ()),
        ((100, 60), (8,)),
    ):
        for step in (1, 3, 10**9):
            for dtype in (torch.float32, BF, torch.int64):
                CASES[f"mask {shape} {rest} {step} {dtype}"] = partial(_chosen, shape, rest, step, dtype)
            given = ((*shape, *rest), every(step, *shape))
            both(f"mask gradient {shape} {rest} {step}", given, lambda x, mask: x[mask] * 2)
    third: Given = lambda _: torch.arange(6400, device=D).reshape(64, 100) % 3 == 0  # noqa: E731
    both("masked_select gradient", ((64, 100), third), lambda x, m: x.masked_select(m))
    both("masked_scatter gradient", ((64, 100), third, (6400,)), lambda x, m, y: x.masked_scatter(m, y))
    CASES["indices on the host"] = _from_host
    for dtype in (torch.float32, HF, torch.float64, torch.int64):
        x, n = (torch.ones(300, 70, device=D, dtype=of) for of in (dtype, torch.int64))
        calls: dict[str, Callable[[Any, Any], Any]] = {
            "isinf": lambda x, n: (x.isinf(), x.isnan(), x.isfinite(), x.isposinf()),
            "nan_to_num": lambda x, n: (x.nan_to_num(), torch.isclose(x, x), torch.equal(x, x)),
            "ldexp": lambda x, n: (x.ldexp(n), torch.allclose(x, x)),
            "unique": lambda x, n: (x.unique(), x.unique(return_inverse=True, return_counts=True)),
            "unique dim": lambda x, n: (x.unique(dim=0), x.unique_consecutive()),
            "bincount": lambda x, n: (n.flatten().bincount(), n.flatten().bincount(minlength=40)),
            "bincount weighted": lambda x, n: n.flatten().bincount(x.flatten()),
            "repeat": lambda x, n: (x.repeat_interleave(2), x.repeat_interleave(n[:, 0], 0)),
            "repeat sized": lambda x, n: x.repeat_interleave(n[:, 0], 0, output_size=300),
            "isin": lambda x, n: (torch.isin(x, x[:3, 0]), x.count_nonzero()),
            "median": lambda x, n: (x.median(), x.median(1), x.kthvalue(3, 1)),
            "mode": lambda x, n: x.mode(1),
            "quantile": lambda x, n: (x.flatten().histc(10), x.quantile(0.3), x.nanmedian(1)),
            "mvlgamma": lambda x, n: (x + 9).mvlgamma(3),
        }
        for name, call in calls.items():
            CASES[f"{name} {dtype}"] = partial(call, x, n)


def _chosen(shape: tuple[int, ...], rest: tuple[int, ...], step: int, dtype: torch.dtype) -> None:
    """Read and written through a mask in which each `step`th element is set."""
    mask = every(step, *shape)(dtype)
    x = torch.zeros(*shape, *rest, device=D, dtype=dtype)
    y = torch.ones(*shape, *rest, device=D, dtype=dtype)
    one = torch.ones((), device=D, dtype=dtype)
    x[mask] = y[mask]
    x[mask] = 0
    x[mask] = one
    x[mask, ...] = 3.0 if dtype.is_floating_point else 3
    x[mask] += 1
    x.index_put((mask,), one)
    x.index_put_((mask,), one, accumulate=True)
    x.index_put_((mask,), y[mask], accumulate=True)
    if rest:
        x[mask, 1] = 2
        x[mask, 1] = y[mask, 0]
        x[mask, :2]
        x.transpose(0, -1)[..., mask] if len(shape) == 1 else x[0, mask[0]]
    else:
        x.masked_select(mask)
        x.masked_scatter(mask, y)
        x.masked_fill(mask, one)
        x[~mask].sum()
        part = 0 if len(shape) == 2 else slice(None, None, 2)
        x[part][mask[part]]


def _from_host() -> None:
    """Indices and masks that lie on the host."""
    x, i = torch.zeros(5000, 8, device=D), torch.arange(100)
    mask, j = torch.arange(5000) % 2 == 0, torch.arange(100, device=D)
    both_ways = torch.arange(40000).reshape(5000, 8) % 3 == 0
    x[i], x[mask], x[both_ways], x[i, i % 8], x[i, j % 8], x[:, i % 8]
    x[i] = 0
    x[j] = 0
    x[mask] = 0
    x[both_ways] = 0
    x[both_ways.to(D)] = 0
    x[j, j % 8] = 1
    x[j] = torch.ones(8, device=D)
    x[mask] = torch.ones(8, device=D)
    x[mask.to(D)] = torch.ones(8, device=D)
    x[mask, 1] = 2
    x[mask.to(D), 1] = 2
    x[mask.to(D), j[:1]] = 2
    x[mask.to(D), 2:4] = 2
    x.index_put_((i,), torch.ones(8, device=D), accumulate=True)
    x.index_put_((j,), torch.ones((), device=D), accumulate=True)


def tiles() -> None:
    """Where CUB's temporaries grow by a tile: counts of elements in small steps."""

    def sweep(call: Callable[[Any], Any], dtype: torch.dtype, counts: Iterable[int]) -> Callable[[], None]:
        def run() -> None:
            for n in counts:
                call(torch.ones(n, device=D, dtype=dtype))

        return run

    CASES["tiles nonzero"] = sweep(torch.nonzero, torch.bool, range(131_072, 137_000, 64))
    CASES["tiles count"] = sweep(torch.nonzero, torch.bool, (*range(3_900, 4_200, 4), 4_095, 4_097))
    inverse = partial(torch.unique, return_inverse=True)
    counts = partial(torch.unique_consecutive, return_counts=True)
    for dtype in (torch.uint8, HF, torch.float32, torch.int32, torch.float64):
        CASES[f"tiles unique {dtype}"] = sweep(torch.unique, dtype, range(30_000, 90_000, 384))
        consecutive = range(65_000, 200_000, 1024)
        CASES[f"tiles consecutive {dtype}"] = sweep(torch.unique_consecutive, dtype, consecutive)
        CASES[f"tiles inverse {dtype}"] = sweep(inverse, dtype, range(30_000, 60_000, 384))
        CASES[f"tiles counts {dtype}"] = sweep(counts, dtype, range(30_000, 120_000, 512))
