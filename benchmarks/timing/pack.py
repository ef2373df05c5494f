"""From the measured rows to the file that comes with the package, and how well it says a row that is left out of it."""

from __future__ import annotations

import random
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from analyzer.devices import load
from analyzer.timing import attention, convolutions, products, table, traffic
from analyzer.timing.rates import Rates, rates_of
from analyzer.timing.work import Work
from benchmarks import ROOT
from benchmarks.harness import files

RAW = ROOT / "tests" / "data" / "h100" / "timing"
# Rows kept of a category whose measurements are many.
_MOST = {"mm": 420, "bmm": 260, "conv": 500}
_MOVED = {
    "clone": 2, "relu": 2, "relu_": 2, "gelu": 2, "silu": 2, "sigmoid": 2, "tanh": 2, "exp": 2, "pow2": 2, "pow3": 2, "rsqrt": 2, "hardswish": 2,
    "leaky_relu": 2, "neg": 2, "sin": 2, "mul.Scalar": 2, "add": 3, "add_": 3, "mul": 3, "mul_": 3, "sub": 3, "div": 3, "threshold_backward": 3,
    "gelu_backward": 3, "silu_backward": 3, "hardswish_backward": 3, "lerp_": 3, "addcmul": 3, "bernoulli_": 1, "fill_": 1, "zero_": 1, "normal_": 1,
}  # fmt: skip
_STRIDED = ("bias_add", "channel_mul", "row_mul", "head_permute", "nchw_nhwc", "transpose", "cat2", "cat_last", "slice_copy", "flip", "roll", "pad",
            "repeat_kv", "interleave", "stride2", "masked_fill")  # fmt: skip


def outside(spec: dict[str, Any]) -> int:
    """Elements of one side of a convolution's result."""
    p, r, s = spec["p"], spec["r"], spec["stride"]
    reach = spec["dilation"] * (r - 1)
    pad = 0 if s == r and not spec["transposed"] else reach // 2
    return (p - 1) * s + reach + 1 - 2 * pad if spec["transposed"] else (p + 2 * pad - reach - 1) // s + 1


def work_of(spec: dict[str, Any], rates: Rates) -> Work | None:
    """The same piece of work as `analyzer.timing` makes of an operator like it."""
    kind, itemsize = spec["kind"], 2 if "float16" in spec["dtype"] else 4
    match kind:
        case "mm":
            return products.product(
                spec["m"], spec["n"], spec["k"], spec["b"], spec["dtype"], spec["layout"], rates
            )
        case "conv":
            d, out = spec["d"], outside(spec)
            conv = convolutions.Convolution(
                spec["part"], spec["dtype"], spec["layout"] == "nhwc", d, spec["n"], spec["c"], spec["k"], spec["p"] ** d, out**d,
                spec["r"] ** d, spec["stride"], spec["dilation"], spec["groups"], bool(spec["transposed"]),
            )  # fmt: skip
            return convolutions.convolution(conv, rates)
        case "attention":
            sizes = (spec["b"], spec["h"], spec["q"], spec["l"], spec["w"])
            return attention.attention(
                spec["kernel"], spec["dtype"], spec["part"], sizes, bool(spec["causal"]), rates
            )
        case "moved":
            return _moved(spec, itemsize, rates)
        case "reduced":
            count = spec["nbytes"] // itemsize
            return traffic.reduced(spec["name"], itemsize, count, spec["width"], rates)
        case "rows":
            return traffic.rows(spec["name"], itemsize, spec["rows"], spec["width"], rates)
        case "planes":
            p = spec["p"]
            name, *_ = spec["name"].split("_backward")
            side = {
                "max_pool": (p - 1) // 2 + 1,
                "avg_pool": p // 2,
                "adaptive": 7,
                "nearest": 2 * p,
                "bilinear": 2 * p,
            }.get(name, p)
            sizes3 = (spec["n"], spec["c"], p * p)
            return traffic.planes(
                spec["name"], itemsize, spec["layout"] == "nhwc", sizes3, side * side, rates
            )
        case "lookup":
            return traffic.lookup(
                spec["name"], itemsize, (spec["rows"], spec["width"], spec["vocabulary"]), rates
            )
        case "foreach":
            return traffic.lists(spec["name"], itemsize, spec["tensors"], spec["each"], rates)
        case "sorted":
            return traffic.sorting(spec["name"], spec["rows"], spec["width"], rates)
        case "recurrent":
            return traffic.recurrent(
                spec["name"], itemsize, spec["part"], (spec["layers"], spec["t"], spec["b"], spec["w"]), rates
            )
    return None


def _moved(spec: dict[str, Any], itemsize: int, rates: Rates) -> Work | None:
    name, nbytes = spec["name"], spec["nbytes"]
    if name == "from_host":
        return traffic.from_host(nbytes, rates)
    if name in _MOVED:
        read = max(_MOVED[name] - 1, 0) * nbytes
        return traffic.vectors(name, itemsize, _MOVED[name] * nbytes, read, rates)
    if name in ("where", "native_dropout_backward", "native_dropout", "eq"):
        tensors = {"where": 3, "native_dropout_backward": 2, "native_dropout": 2, "eq": 1}[name]
        return traffic.vectors(
            name, itemsize, tensors * nbytes + nbytes // itemsize, (tensors - 1) * nbytes, rates
        )
    if name.startswith("to_"):
        if spec["dtype"] != "float32" and name != "to_float32":
            return None  # no conversion, or one between two halves
        if name == "to_float32" and spec["dtype"] == "float32":
            return None
        to = 4 if name == "to_float32" else 2
        return traffic.vectors(f"to{to}", itemsize, nbytes + nbytes // itemsize * to, nbytes, rates)
    if name in _STRIDED:
        share = {
            "slice_copy": 0.5,
            "stride2": 0.5,
            "cat2": 2,
            "cat_last": 2,
            "repeat_kv": 2,
            "interleave": 2,
        }.get(name, 1)
        return traffic.strided(
            name, itemsize, share * nbytes / itemsize, 2 * share * nbytes, share * nbytes, rates
        )
    return None


def measured_rows() -> list[dict[str, Any]]:
    """All that was measured, in columns as it is kept."""
    found: list[dict[str, Any]] = []
    for path in sorted(RAW.glob("operators*.json.gz")):
        for columns, rows in files.read(path)["rows"]:
            found += [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def by_category(
    rows: list[dict[str, Any]], rates: Rates
) -> dict[str, list[tuple[tuple[float, ...], float, float, int]]]:
    """Category -> (place, logarithm of the factor, logarithm of the cold factor, kernels)."""
    found: dict[str, list[tuple[tuple[float, ...], float, float, int]]] = defaultdict(list)
    for row in rows:
        work = work_of(row, rates)
        if work is not None:
            warm = float(np.log(row["warm"] / 1e9 / work.base))
            found[work.category].append(
                (work.place, warm, float(np.log(max(row["cold"], 1) / row["warm"])), row["kernels"])
            )
    return found


def packed(rates: Rates) -> dict[str, Any]:
    """The arrays of the file."""
    arrays: dict[str, list[Any]] = defaultdict(list)
    names = []
    for name, rows in sorted(by_category(measured_rows(), rates).items()):
        kept = random.Random(0).sample(rows, min(len(rows), _MOST.get(name.split(":")[0], 700)))
        if len(kept) < 2:
            continue
        kept.sort()
        names.append(name)
        places = np.array([row[0] for row in kept], np.float32)
        found = table.Rows(
            places,
            np.array([r[1] for r in kept], np.float32),
            np.array([r[2] for r in kept], np.float32),
            0.0,
        )
        said = np.array(table.near(found, places, left_out=True))
        spread = float(np.mean(np.abs(said[:, 0] - found.factors)))
        arrays["kernels"].append(min(round(10 * float(np.mean([r[3] for r in kept]))), 255))
        arrays["counts"].append(len(kept))
        arrays["widths"].append(places.shape[1])
        arrays["spreads"].append(min(round(spread * 100), 255))
        arrays["places"].append(np.clip(np.round(places * table.PLACE), 0, 255).astype(np.uint8).ravel())
        arrays["factors"].append(np.clip(np.round(found.factors * table.FACTOR), -127, 127).astype(np.int8))
        arrays["colds"].append(np.clip(np.round(found.colds * table.COLD), -127, 127).astype(np.int8))
    done = {key: np.concatenate(arrays[key]) for key in ("places", "factors", "colds")}
    done |= {"counts": np.array(arrays["counts"], np.uint16), "widths": np.array(arrays["widths"], np.uint8)}
    done |= {
        "spreads": np.array(arrays["spreads"], np.uint8),
        "kernels": np.array(arrays["kernels"], np.uint8),
        "names": np.frombuffer("\n".join(names).encode(), np.uint8),
    }
    return done


def h100() -> Rates:
    """What the measurements are shares of."""
    rates = rates_of(load("h100"))
    assert rates is not None
    return rates


def write_packed(path: Path, arrays: Mapping[str, Any]) -> None:
    """Packed with LZMA: `numpy.load` reads it as it reads deflated ones, and it is a fifth smaller."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as file:
        for name, array in arrays.items():
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


@click.command("pack")
def main() -> None:
    """Write analyzer/timing/h100.npz from the measured rows, and print how well it says a row that is left out."""
    arrays = packed(h100())
    write_packed(table.FILE, arrays)
    names = bytes(arrays["names"]).decode().split("\n")
    for name, count, spread in zip(names, arrays["counts"], arrays["spreads"], strict=True):
        print(f"{name:44} {count:5} rows, off by {spread} % when left out")
    print(f"{table.FILE.name}: {table.FILE.stat().st_size:,} bytes, {sum(arrays['counts']):,} rows")
