"""From calls measured on two GPUs to `extensions/analyzer_timing/h200.npz` (`extensions/analyzer_timing/beside.py`).

A category's plane is fitted by least squares, its two slopes held a little towards zero; a call's ratio is the mean of those of a warm
and of a cold cache. A category of few calls has no plane of its own: what is said of it is that of all of its first name ("conv").
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from analyzer_timing import beside, table, traffic
from benchmarks.timing.pack import h100, measured_rows, of_gpu, work_of, write_packed

GPU = "h200"
_FEWEST, _HELD, _PARTS, _STRAY = 12, 1.0, 5, 0.02
Point = tuple[
    float, float, float
]  # factor, logarithm of the formula's seconds less the middle, logarithm of the ratio


def _key(row: dict[str, Any]) -> str:
    return json.dumps(
        {name: row[name] for name in sorted(row) if name not in ("warm", "cold", "kernels", "names")}
    )


def points() -> dict[str, list[Point]]:
    """Category -> the calls that were measured on both."""
    rates, found = h100(), defaultdict[str, list[Point]](list)
    others = {_key(row): row for row in measured_rows(of_gpu(GPU))}
    for row in measured_rows():
        other, work = others.get(_key(row)), work_of(row, rates)
        if (
            other is None
            or work is None
            or work.category == traffic.HOST_COPY
            or not row["warm"] * other["warm"]
        ):
            continue
        ratio = np.mean([np.log(other[name] / row[name]) for name in ("warm", "cold")])
        factor = np.log(row["warm"] / 1e9 / work.base)
        found[work.category].append((float(factor), float(np.log(work.base)) - beside.MIDDLE, float(ratio)))
    return found


def _weights(of: NDArray[Any]) -> NDArray[Any]:
    """Level and slopes of the plane through these points."""
    sides = np.c_[np.ones(len(of)), of[:, :2]]
    held = np.diag([0.0, _HELD, _HELD])
    found: NDArray[Any] = np.linalg.solve(sides.T @ sides + held, sides.T @ of[:, 2])
    return found


def _said(weights: NDArray[Any], of: NDArray[Any], to: NDArray[Any]) -> NDArray[Any]:
    """What a plane fitted to some points says of others."""
    return np.clip(weights[0] + to[:, :2] @ weights[1:], *_ends(of))


def _ends(of: NDArray[Any]) -> NDArray[Any]:
    """The ratios between which all but a few lie, which a stray measurement does not move."""
    found: NDArray[Any] = np.quantile(of[:, 2], (_STRAY, 1 - _STRAY))
    return found


def fitted(of: NDArray[Any]) -> beside.Plane:
    """The plane, and how far it is off of the points that it was not fitted to."""
    part = np.random.default_rng(0).permutation(len(of)) % _PARTS
    errors = [
        np.abs(
            _said(_weights(of[part != number]), of[part != number], of[part == number])
            - of[part == number, 2]
        )
        for number in range(_PARTS)
    ]
    return beside.Plane(*_weights(of), *_ends(of), float(np.concatenate(errors).mean()))


def all_planes() -> dict[str, beside.Plane]:
    """The plane of each category of the table."""
    found, known, kinds = {}, points(), defaultdict[str, list[Point]](list)
    for name, of in known.items():
        kinds[name.partition(":")[0]] += of
    for name in table.names():
        of = known.get(name, [])
        if len(of) < _FEWEST:
            of = kinds.get(name.partition(":")[0], [])
        if len(of) >= _FEWEST and name != traffic.HOST_COPY:
            found[name] = fitted(np.array(of))
    return found


@click.command("beside")
def main() -> None:
    """Write extensions/analyzer_timing/h200.npz, and print how far its planes are off of calls left out."""
    found = all_planes()
    rows = np.array([list(plane) for plane in found.values()])
    numbers = np.clip(np.round(rows * beside.SCALE), -beside.MOST, beside.MOST).astype(np.int8)
    path = Path(beside.__file__).parent / f"{GPU}.npz"
    write_packed(path, {"planes": numbers, "names": np.frombuffer("\n".join(found).encode(), np.uint8)})
    for name, plane in found.items():
        print(f"{name:44} {plane.least:+.2f} to {plane.most:+.2f}, off by {plane.spread:.1%} when left out")
    print(
        f"{path.name}: {path.stat().st_size:,} bytes, {np.mean([plane.spread for plane in found.values()]):.1%}"
    )
